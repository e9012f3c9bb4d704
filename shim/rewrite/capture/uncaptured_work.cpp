#include "shim/rewrite/capture/uncaptured_work.h"

#include <algorithm>

#include "shim/rewrite/program_memory/library_memory.h"

namespace nimble::shim {

bool is_in_nccl(const void* place) { return file_at(place).starts_with("libnccl.so"); }

void StrayWork::began(std::uint64_t capture, std::uint32_t thread) {
  const std::lock_guard lock(mutex_);
  captures_[capture][thread].belongs = true;
}

void StrayWork::submitted(std::uint32_t thread, std::uint64_t capture, const void* caller,
                          std::span<const std::uint64_t> rehearsed) {
  const auto is_rehearsed = [&](const auto& one) { return std::ranges::find(rehearsed, one.first) != rehearsed.end(); };
  std::unique_lock lock(mutex_);
  if (capture == 0) {
    for (auto& one : captures_)
      if (is_rehearsed(one)) one.second[thread].belongs = true;
    if (std::ranges::all_of(captures_, is_rehearsed)) return;
    auto known = prepares_.find(caller);
    if (known == prepares_.end()) {
      // A thread that loads a library holds the dynamic loader's lock, which this needs, and may be about to come here.
      lock.unlock();
      const bool is_preparing = is_preparing_(caller);
      lock.lock();
      if (captures_.empty()) return;
      known = prepares_.insert_or_assign(caller, is_preparing).first;
    }
    if (known->second) return;
    for (auto& one : captures_)
      if (!is_rehearsed(one)) ++one.second[thread].past;
  } else if (const auto found = captures_.find(capture); found != captures_.end()) {
    found->second[thread].belongs = true;
  }
}

std::uint64_t StrayWork::ended(std::uint64_t capture, CUgraph graph) {
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(capture);
  if (found == captures_.end()) return 0;
  std::uint64_t past = 0;
  for (const auto& [number, thread] : found->second)
    if (thread.belongs) past += thread.past;
  captures_.erase(found);
  if (captures_.empty()) prepares_.clear();   // other code may be loaded at these addresses
  if (graph && past) graphs_[graph] += past;  // several captures may have built one graph
  return past;
}

std::uint64_t StrayWork::of(CUgraph graph) {
  const std::lock_guard lock(mutex_);
  const auto found = graphs_.find(graph);
  return found == graphs_.end() ? 0 : found->second;
}

void StrayWork::destroyed(CUgraph graph) {
  const std::lock_guard lock(mutex_);
  graphs_.erase(graph);
}

}  // namespace nimble::shim
