#include "shim/rewrite/program_memory/released_memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "nimble/internal/launch_params.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kMost = 4096;

// Calls `look` with each word of the node that may be an address, until it returns true. Whether it did.
template <class Look>
bool any_word(const Call& call, CallContext& context, Look look) {
  if (call.kind != CallKind::launch) return look(call.transfer.dst.address) || look(call.transfer.src.address);
  const FunctionInfo& function = context.function(call.launch.function);
  std::vector<std::uint8_t> params(function.param_bytes);
  if (!pack_params(call, function, params.data())) return false;  // then it is ordered with everything
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= params.size(); at += 4) {
    std::uint64_t word = 0;
    std::memcpy(&word, params.data() + at, sizeof word);
    if (look(word)) return true;
  }
  return false;
}

}  // namespace

void ReleasedMemory::began(std::uint64_t capture) {
  const std::lock_guard lock(mutex_);
  captures_[capture] = released_;
  any_.store(true, std::memory_order_relaxed);
}

void ReleasedMemory::ended(std::uint64_t capture, CUgraph graph) {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(capture);
  if (found == captures_.end()) return;
  if (graph) graphs_.try_emplace(graph, found->second);  // several captures may build one: the first counts
  captures_.erase(found);
  any_.store(!captures_.empty() || !graphs_.empty(), std::memory_order_relaxed);
}

void ReleasedMemory::destroyed(CUgraph graph) {
  if (!any_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  graphs_.erase(graph);
  if (!captures_.empty() || !graphs_.empty()) return;
  any_.store(false, std::memory_order_relaxed);
  ranges_.clear();
}

void ReleasedMemory::goes(std::uint64_t address, std::uint64_t size) {
  if (!any_.load(std::memory_order_relaxed) || address == 0) return;
  const auto ask =
      reinterpret_cast<decltype(&::cuMemGetAddressRange_v2)>(context_.driver_symbol("cuMemGetAddressRange_v2"));
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  if (size == 0 && ask && ask(&base, &bytes, address) == CUDA_SUCCESS) size = bytes - (address - base);
  const std::lock_guard lock(mutex_);
  ranges_.push_back({released_++, address, std::max<std::uint64_t>(size, 1)});
  if (ranges_.size() <= kMost) return;
  forgotten_ = ranges_.front().number + 1;
  ranges_.pop_front();
}

void ReleasedMemory::came(std::uint64_t address, std::uint64_t size) {
  if (!any_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(ranges_, [&](const Range& range) {
    return range.begin >= address && range.begin - address < size && range.size <= size - (range.begin - address);
  });
}

bool ReleasedMemory::is_named_by(const ProgramGraph& graph) const {
  std::map<std::uint64_t, std::uint64_t> ends;  // by begin: memory may have been released several times, in pieces
  {
    const std::lock_guard lock(mutex_);
    const auto found = graphs_.find(graph.handle());
    if (found == graphs_.end()) return false;
    if (found->second < forgotten_) return true;
    for (const Range& range : ranges_)
      if (range.number >= found->second) ends[range.begin] = std::max(ends[range.begin], range.begin + range.size);
  }
  if (ends.empty()) return false;
  std::uint64_t reached = 0;
  for (auto& [begin, end] : ends) reached = end = std::max(end, reached);
  const auto is_there = [&](std::uint64_t word) {
    const auto after = ends.upper_bound(word);
    return after != ends.begin() && word < std::prev(after)->second;
  };
  return std::ranges::any_of(graph.nodes(),
                             [&](const ProgramNode& node) { return any_word(node.call, context_, is_there); });
}

}  // namespace nimble::shim
