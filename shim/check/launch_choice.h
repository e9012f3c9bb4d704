// Which launches are checked: the first of each kind, and of all later ones some at random.
//
// The same seed and the same launches give the same choice. Any thread; one lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_set>

namespace nimble::shim {

class LaunchChoice {
 public:
  // One in `every` later launches; 0: none.
  LaunchChoice(std::uint64_t every, std::uint64_t seed) : every_(every), seed_(seed) {}

  // `kind`: what tells the launch's kernel, and which of its parameters lead to memory, from others.
  bool chooses(std::uint64_t kind);
  // The launch was to be checked, and could not be: the next of its kind is.
  void missed(std::uint64_t kind);

 private:
  const std::uint64_t every_, seed_;
  std::atomic<std::uint64_t> launches_{0};
  std::mutex mutex_;
  std::unordered_set<std::uint64_t> known_;
};

}  // namespace nimble::shim
