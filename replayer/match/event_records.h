// Which op of the step recorded an event last, so that a wait for it can be identified.
//
// Forgets events that something else has recorded since. Holds one event for each record of the schedule, and searches
// them linearly: steps have few. Allocates nothing once built. Not synchronised: the replayer's lock guards it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "nimble/internal/schedule.h"

namespace nimble {

class EventRecords {
 public:
  explicit EventRecords(const Schedule& schedule) : slot_(schedule.ops.size(), kNone) {
    for (std::uint32_t op = 0; op < slot_.size(); ++op) {
      if (schedule.ops[op].kind != CallKind::event_record) continue;
      slot_[op] = static_cast<std::uint32_t>(records_.size());
      records_.push_back({op});
    }
  }

  void begin_step() { ++step_; }
  // The op of this step records the event.
  void record(std::uint32_t op, CUevent event) {
    Record& record = records_[slot_[op]];
    record.event = event;
    record.step = step_;
    record.serial = ++serial_;
  }
  // Something outside the step records it, or it is destroyed.
  void forget(CUevent event) {
    for (Record& record : records_)
      if (record.event == event) record.event = nullptr;
  }

  // Something may have recorded any of them.
  void forget() {
    for (Record& record : records_) record.event = nullptr;
  }

  struct Found {
    std::uint32_t op = kNone;  // kNone: not known
    bool this_step = false;
  };
  Found find(CUevent event) const {
    const Record* last = nullptr;
    for (const Record& record : records_)
      if (event && record.event == event && (!last || record.serial > last->serial)) last = &record;
    return last ? Found{last->op, last->step == step_} : Found{};
  }

 private:
  struct Record {
    std::uint32_t op = kNone;
    CUevent event = nullptr;
    std::uint64_t step = 0, serial = 0;
  };

  std::vector<std::uint32_t> slot_;  // by op: index into records_
  std::vector<Record> records_;
  std::uint64_t step_ = 1, serial_ = 0;
};

}  // namespace nimble
