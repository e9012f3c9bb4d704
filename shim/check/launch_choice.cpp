#include "shim/check/launch_choice.h"

namespace nimble::shim {

namespace {

// SplitMix64.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

bool LaunchChoice::chooses(std::uint64_t kind) {
  const std::uint64_t number = launches_.fetch_add(1, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    if (known_.insert(kind).second) return true;
  }
  return every_ != 0 && mixed(mixed(seed_) + number) % every_ == 0;
}

void LaunchChoice::missed(std::uint64_t kind) {
  const std::lock_guard lock(mutex_);
  known_.erase(kind);
}

}  // namespace nimble::shim
