#include "replayer/order/touched.h"

#include <algorithm>
#include <cstring>

#include "nimble/internal/launch_params.h"

namespace nimble {

namespace {

constexpr std::uint32_t kMostBytes = 4096;  // of parameters: more of them may hold anything
// No device has memory for a program to use below the first, and none of the processors above the second.
constexpr std::uint64_t kLeastAddress = 1 << 16, kMostAddress = std::uint64_t{1} << 57;

void add(Touched& touched, const Call& call, const Region& at, bool writes) {
  const std::uint64_t bytes = call.height == 0 ? 0 : (call.height - 1) * at.pitch + call.width;
  if (bytes != 0) touched.add({at.address, at.address + bytes, writes});
}

void add_parameters(Touched& touched, const Call& call, CallContext& context) {
  const FunctionInfo& function = context.function(call.function);
  std::array<std::uint8_t, kMostBytes> params;
  touched.variables = !function.self_contained && !function.constants;
  touched.anything = function.param_bytes > params.size() || !pack_params(call, function, params.data());
  const auto leads = [&](std::uint32_t at) {
    std::uint64_t word = 0;
    std::memcpy(&word, params.data() + at, sizeof word);
    if (word >= kLeastAddress && word < kMostAddress) touched.add({word, word + 1, true});
  };
  // A pointer is aligned as such; a parameter smaller than one holds none.
  constexpr std::uint32_t kPointer = sizeof(std::uint64_t);
  if (touched.anything) return;
  if (!function.params)
    for (std::uint32_t at = 0; at + kPointer <= function.param_bytes; at += kPointer) leads(at);
  else
    for (const ParamLayout& param : *function.params)
      for (std::uint32_t at = (param.offset + kPointer - 1) / kPointer * kPointer;
           at + kPointer <= param.offset + param.size; at += kPointer)
        leads(at);
}

}  // namespace

void Touched::add(const MemoryRange& range) {
  for (std::uint32_t i = 0; i < count; ++i)
    if (list[i] == range) return;
  if (count == kMost) {
    anything = true;
  } else {
    list[count++] = range;
  }
}

Touched touched_by(const Call& call, CallContext& context) {
  Touched touched;
  switch (call.kind) {
    case CallKind::copy:
      add(touched, call, call.dst, true);
      add(touched, call, call.src, false);
      break;
    case CallKind::set:
      add(touched, call, call.dst, true);
      break;
    case CallKind::launch:
      add_parameters(touched, call, context);
      break;
    default:
      touched.anything = touches_memory(call.kind);
  }
  return touched;
}

void sort_and_merge(std::vector<MemoryRange>& ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const MemoryRange& one, const MemoryRange& other) { return one.begin < other.begin; });
  std::size_t kept = 0;
  for (const MemoryRange& range : ranges) {
    if (kept == 0 || ranges[kept - 1].end <= range.begin) {
      ranges[kept++] = range;
      continue;
    }
    MemoryRange& last = ranges[kept - 1];
    last.end = std::max(last.end, range.end);
    last.written = last.written || range.written;
  }
  ranges.resize(kept);
}

bool conflict(const MemoryRange& one, std::span<const MemoryRange> sorted) {
  const auto first = std::partition_point(sorted.begin(), sorted.end(),
                                          [&](const MemoryRange& each) { return each.end <= one.begin; });
  for (auto at = first; at != sorted.end() && at->begin < one.end; ++at)
    if (conflict(one, *at)) return true;
  return false;
}

bool conflict(const MemoryView& one, const MemoryView& sorted) {
  if (one.none() || sorted.none()) return false;
  if (one.anything || sorted.anything || (one.variables && sorted.variables)) return true;
  return std::ranges::any_of(one.ranges, [&](const MemoryRange& range) { return conflict(range, sorted.ranges); });
}

}  // namespace nimble
