// Which segments of a schedule run in another order than the program's, and what memory those use.
//
// Found once, then constant; any thread. No errors.
#pragma once

#include <cstdint>
#include <vector>

#include "nimble/internal/schedule.h"

namespace nimble {

class RelaxedSegments {
 public:
  // How graphs in another order use an object.
  static constexpr std::uint8_t kRead = 1, kWritten = 2;

  explicit RelaxedSegments(const Schedule& schedule);

  bool any() const { return any_; }
  bool has(std::uint32_t segment) const { return segments_[segment].relaxed; }
  // Whether the segment records events, whatever its order; and the op that records one after all others, or kNone.
  bool records(std::uint32_t segment) const { return segments_[segment].records; }
  std::uint32_t last_record(std::uint32_t segment) const { return segments_[segment].last_record; }
  // 0 where they do not.
  std::uint8_t use_of(std::uint32_t object) const { return uses_[object]; }
  bool use_variables() const { return use_variables_; }

 private:
  struct Segment {
    bool relaxed = false, records = false;
    std::uint32_t last_record = kNone;
  };

  void use(std::uint32_t object, std::uint8_t how) {
    if (object != kNone) uses_[object] |= how;
  }
  void use(const Schedule& schedule, const ScheduleOp& op);

  std::vector<Segment> segments_;
  std::vector<std::uint8_t> uses_;  // by object
  bool use_variables_ = false, any_ = false;
};

}  // namespace nimble
