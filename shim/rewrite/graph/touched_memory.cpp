#include "shim/rewrite/graph/touched_memory.h"

#include <algorithm>
#include <utility>

namespace nimble::shim {

namespace {

// A word this close before memory may mean it, and so may one at its end, as in analyzer/memory/objects.h.
constexpr std::uint64_t kBeside = 255;

// Whether it is the device's own memory, at addresses chosen by the driver.
bool is_of_the_device(const Call& call) {
  return call.memory.kind == MemoryKind::device || call.memory.kind == MemoryKind::stream_ordered;
}

}  // namespace

void TouchedMemory::name(std::vector<TraceProbe::Range> allocations) {
  allocations_.clear();
  for (const TraceProbe::Range& range : allocations)
    allocations_.push_back({range.address, range.address + std::max<std::uint64_t>(range.bytes, 1), false});
  std::sort(allocations_.begin(), allocations_.end(),
            [](const Allocation& a, const Allocation& b) { return a.begin < b.begin; });
}

void TouchedMemory::name_stray(std::vector<std::uint64_t> words, std::vector<std::uint64_t> known) {
  stray_ = std::move(words);
  known_ = std::move(known);
  for (auto* each : {&stray_, &known_}) std::sort(each->begin(), each->end());
}

// Visits those that share a byte with the call's memory, whose size may be unknown if it is released.
template <class Visit>
void TouchedMemory::each_in(auto& allocations, const Call& call, const Visit& visit) {
  const std::uint64_t end = call.memory.address + std::max<std::uint64_t>(call.memory.size, 1);
  auto at = std::lower_bound(allocations.begin(), allocations.end(), call.memory.address,
                             [](const Allocation& each, std::uint64_t address) { return each.end <= address; });
  for (; at != allocations.end() && at->begin < end; ++at) visit(*at);
}

bool TouchedMemory::release(const Call& call) {
  bool any = false;
  each_in(allocations_, call, [&](Allocation& each) { any = each.went = true; });
  return any;
}

void TouchedMemory::release_all() {
  for (Allocation& each : allocations_) each.went = true;
}

bool TouchedMemory::brings_together(const Call& call) const {
  int went = 0;
  each_in(allocations_, call, [&](const Allocation& each) { went += each.went; });
  return went > (is_of_the_device(call) ? 1 : 0);
}

bool TouchedMemory::leads_to(const Call& call) const {
  const std::vector<std::uint64_t>& words = is_of_the_device(call) ? known_ : stray_;
  const auto at =
      std::lower_bound(words.begin(), words.end(), call.memory.address - std::min(call.memory.address, kBeside));
  return at != words.end() && *at <= call.memory.address + call.memory.size;
}

}  // namespace nimble::shim
