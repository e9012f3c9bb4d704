#include "replayer/onlookers/touched.h"

#include <algorithm>

#include "replayer/onlookers/launch_addresses.h"
#include "replayer/onlookers/watched_memory.h"

namespace nimble {

namespace {

std::uint64_t bytes_of(const Call& call, const Region& at) {
  return call.transfer.height == 0 ? 0 : (call.transfer.height - 1) * at.pitch + call.transfer.width;
}

void add(Touched& touched, const Call& call, const Region& at, bool writes) {
  const std::uint64_t bytes = bytes_of(call, at);
  if (bytes != 0) touched.add({at.address, at.address + bytes, writes});
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
      add(touched, call, call.transfer.dst, true);
      add(touched, call, call.transfer.src, false);
      break;
    case CallKind::set:
      add(touched, call, call.transfer.dst, true);
      break;
    case CallKind::launch: {
      const FunctionInfo& function = context.function(call.launch.function);
      touched.variables = uses_variables(function);
      touched.anything = !each_address(call, function, [&](std::uint64_t word) {
        touched.add({word, word + 1, true});
        return false;
      });
      break;
    }
    default:
      touched.anything = touches_memory(call.kind);
  }
  return touched;
}

bool touches(const Call& call, CallContext& context, const WatchedMemory& watched) {
  if (call.kind == CallKind::launch) return launch_touches(call, context, watched);
  const WatchedMemory::Kinds kinds = watched.kinds();
  if (kinds.none() || kinds.anything) return kinds.anything;
  const auto has = [&](const Region& at) {
    const std::uint64_t bytes = bytes_of(call, at);
    return bytes != 0 && watched.has(at.address, at.address + bytes);
  };
  switch (call.kind) {
    case CallKind::copy:
      return has(call.transfer.dst) || has(call.transfer.src);
    case CallKind::set:
      return has(call.transfer.dst);
    default:
      return touches_memory(call.kind);
  }
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
