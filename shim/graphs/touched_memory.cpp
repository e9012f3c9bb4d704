#include "shim/graphs/touched_memory.h"

#include <algorithm>
#include <utility>

namespace nimble::shim {

namespace {

// A word this little before memory may stand for it, and one at its end: as analyzer/objects.h has it.
constexpr std::uint64_t kBeside = 255;

}  // namespace

void TouchedMemory::name(std::vector<TraceProbe::Range> allocations) {
  allocations_.clear();
  for (const TraceProbe::Range& range : allocations)
    allocations_.push_back({range.address, range.address + std::max<std::uint64_t>(range.bytes, 1), false});
  std::sort(allocations_.begin(), allocations_.end(),
            [](const Allocation& a, const Allocation& b) { return a.begin < b.begin; });
}

void TouchedMemory::name_stray(std::vector<std::uint64_t> words) {
  stray_ = std::move(words);
  std::sort(stray_.begin(), stray_.end());
}

// Those that share a byte with the call's memory. What it releases may have no size that is known.
template <class Visit>
void TouchedMemory::each_in(auto& allocations, const Call& call, const Visit& visit) {
  const std::uint64_t end = call.address + std::max<std::uint64_t>(call.size, 1);
  auto at = std::lower_bound(allocations.begin(), allocations.end(), call.address,
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
  const bool of_its_own = call.memory == MemoryKind::device || call.memory == MemoryKind::stream_ordered;
  return went > (of_its_own ? 1 : 0);
}

bool TouchedMemory::has_stray(std::uint64_t first, std::uint64_t last) const {
  const auto at = std::lower_bound(stray_.begin(), stray_.end(), first);
  return at != stray_.end() && *at <= last;
}

bool TouchedMemory::leads_to(const Call& call) const {
  return has_stray(call.address - std::min(call.address, kBeside), call.address + call.size);
}

}  // namespace nimble::shim
