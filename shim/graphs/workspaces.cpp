#include "shim/graphs/workspaces.h"

namespace nimble::shim {

std::optional<std::uint64_t> Workspaces::claim(std::uint64_t capture, std::uint64_t workspace, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto& slots = captures_[capture].slots;
  const auto found = slots.find(workspace);
  if (found == slots.end() || found->second.claimed || found->second.bytes < bytes) return std::nullopt;
  found->second.claimed = true;
  return found->second.address;
}

std::optional<std::uint64_t> Workspaces::end_one(std::uint64_t capture, std::uint64_t workspace) {
  const std::lock_guard lock(mutex_);
  auto& slots = captures_[capture].slots;
  const auto found = slots.find(workspace);
  if (found == slots.end()) return std::nullopt;
  const std::uint64_t address = found->second.address;
  slots.erase(found);
  return address;
}

bool Workspaces::may_have(std::uint64_t capture, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  Capture& of = captures_[capture];
  if (bytes > kMostForWorkspaces - of.bytes) of.bytes = kMostForWorkspaces;
  return bytes <= kMostForWorkspaces - of.bytes;
}

void Workspaces::full(std::uint64_t capture) {
  const std::lock_guard lock(mutex_);
  captures_[capture].bytes = kMostForWorkspaces;
}

void Workspaces::began(std::uint64_t capture, std::uint64_t workspace, std::uint64_t slot, std::uint64_t bytes,
                       bool claimed) {
  const std::lock_guard lock(mutex_);
  Capture& of = captures_[capture];
  of.slots[workspace] = {slot, bytes, claimed};
  of.bytes += bytes;
}

std::vector<std::uint64_t> Workspaces::end(std::uint64_t capture) {
  std::vector<std::uint64_t> ended;
  const std::lock_guard lock(mutex_);
  const auto found = captures_.find(capture);
  if (found == captures_.end()) return ended;
  for (const auto& [workspace, slot] : found->second.slots) ended.push_back(slot.address);
  captures_.erase(found);
  return ended;
}

}  // namespace nimble::shim
