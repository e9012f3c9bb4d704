#include "shim/rewrite/pool/workspace_table.h"

#include <algorithm>

namespace nimble::shim {

std::optional<std::uint64_t> WorkspaceTable::given(std::uint64_t capture, std::uint64_t workspace, std::uint64_t bytes,
                                                   std::size_t nodes, bool claims) {
  const std::lock_guard lock(mutex_);
  const auto of = captures_.find(capture);
  if (of == captures_.end()) return std::nullopt;
  const auto found = of->second.slots.find({workspace, false});
  if (found == of->second.slots.end()) return std::nullopt;
  Slot& slot = found->second;
  if (slot.claimed || slot.bytes < bytes || slot.nodes != nodes) return std::nullopt;
  slot.claimed = claims;
  return slot.address;
}

std::optional<std::uint64_t> WorkspaceTable::end_one(std::uint64_t capture, std::uint64_t workspace, bool for_one) {
  const std::lock_guard lock(mutex_);
  const auto of = captures_.find(capture);
  if (of == captures_.end()) return std::nullopt;
  const auto found = of->second.slots.find({workspace, for_one});
  if (found == of->second.slots.end()) return std::nullopt;
  const std::uint64_t address = found->second.address;
  of->second.slots.erase(found);
  return address;
}

std::optional<std::uint64_t> WorkspaceTable::left(std::uint64_t capture) {
  const std::lock_guard lock(mutex_);
  const auto of = captures_.find(capture);
  return of == captures_.end() ? std::nullopt : of->second.left;
}

void WorkspaceTable::bound(std::uint64_t capture, std::uint64_t free) {
  const std::lock_guard lock(mutex_);
  captures_[capture].left = free / kPartOfWhatIsFree;
}

bool WorkspaceTable::may_have(std::uint64_t capture, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  std::optional<std::uint64_t>& left = captures_[capture].left;
  if (left && bytes > *left) left = 0;
  return left && bytes <= *left;
}

void WorkspaceTable::full(std::uint64_t capture) {
  const std::lock_guard lock(mutex_);
  captures_[capture].left = 0;
}

void WorkspaceTable::began(std::uint64_t capture, std::uint64_t workspace, std::uint64_t slot, std::uint64_t bytes,
                           std::size_t nodes, bool for_one) {
  const std::lock_guard lock(mutex_);
  Capture& of = captures_[capture];
  of.slots[{workspace, for_one}] = {slot, bytes, nodes, false};
  if (of.left) *of.left -= std::min(*of.left, bytes);
}

std::vector<std::uint64_t> WorkspaceTable::end(std::uint64_t capture) {
  std::vector<std::uint64_t> ended;
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(capture);
  if (found == captures_.end()) return ended;
  for (const auto& [workspace, slot] : found->second.slots) ended.push_back(slot.address);
  captures_.erase(found);
  return ended;
}

}  // namespace nimble::shim
