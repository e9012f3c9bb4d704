// Whether a replayed step still occurs, by checks from time to time.
#pragma once

#include <cstdint>

namespace nimble::shim {

// Not synchronised.
class IdleChecks {
 public:
  // A program whose steps have matched before may be evaluating: it gets this many times as long.
  static constexpr std::uint32_t kPatience = 8;

  explicit IdleChecks(std::uint32_t most) : most_(most) {}

  // A replay begins; so many steps have matched.
  void begin(std::uint64_t matched) {
    matched_ = matched;
    ever_matched_ = false;
    idle_ = 0;
  }
  // So many steps have matched by now. Whether none has in the last checks, as many as it takes to give up; then it
  // takes as many again.
  bool is_idle(std::uint64_t matched) {
    if (matched != matched_) {
      matched_ = matched;
      ever_matched_ = true;
      idle_ = 0;
    }
    if (++idle_ < (ever_matched_ ? most_ * kPatience : most_)) return false;
    idle_ = 0;
    return true;
  }

 private:
  const std::uint32_t most_;
  std::uint64_t matched_ = 0;  // at the last check
  bool ever_matched_ = false;
  std::uint32_t idle_ = 0;
};

}  // namespace nimble::shim
