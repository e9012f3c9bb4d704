// When launches may come by a work's gate, and what of them has to be known: with the lock, but for close_gate() and
// try_close_gate().
#include <thread>

#include "replayer/onlookers/onlookers.h"

namespace nimble {

void Onlookers::close(Work& work) {
  ++work.closings_;
  if (StreamClocks::Gate* const gate = work.gate_.load(std::memory_order_relaxed)) StreamClocks::close(*gate);
}

void Onlookers::close_all() {
  for (const std::shared_ptr<Work>& work : works_) close(*work);
}

// Something has come on the stream of that slot that touches this: its own works' launches there are ordered with it.
// `work`: and is a launch of this in the program's order, which is another graph.
void Onlookers::close_where_it_matters(const MemoryView& touched, std::uint32_t slot, const Work* work) {
  for (const std::shared_ptr<Work>& each : works_) {
    const StreamClocks::Gate* const gate = each->gate_.load(std::memory_order_relaxed);
    const bool is_open = gate && gate->is_open();
    if (!is_open && each->on_their_way_ == 0) continue;  // and begins anew before it opens
    const bool is_ordered = gate && slot != StreamClocks::kNoSlot && StreamClocks::slot_of(*gate) == slot;
    if (each.get() == work || (!is_ordered && conflict(touched, each->view()))) close(*each);
  }
}

// An event that is recorded now is not the one that such a launch may record.
void Onlookers::close_those_that_record() {
  for (const std::shared_ptr<Work>& work : works_)
    if (work->records_) close(*work);
}

// Launches by the gate that have not been counted.
void Onlookers::count_launches(Work& work) {
  StreamClocks::Gate* const gate = work.gate_.load(std::memory_order_relaxed);
  if (!gate) return;
  const StreamClocks::Op last = clocks_.entered(*gate);
  if (last.number == 0 || (last.slot == work.by_gate_.slot && last.number == work.by_gate_.number)) return;
  work.by_gate_ = last;
  work.run_by_gate(last);
}

bool Onlookers::is_in_gate(const Work& work) {
  const StreamClocks::Gate* const gate = work.gate_.load(std::memory_order_relaxed);
  return gate && gate->is_busy();
}

// After a launch. Nothing has come since it began for which the gate would have been closed.
void Onlookers::open_gate(Work& work, const Launch& launch) {
  if (!launch.repeats || launch.closings != work.closings_) return;
  if (!work.gate_.load(std::memory_order_relaxed)) work.gate_.store(clocks_.take_gate(), std::memory_order_release);
  if (StreamClocks::Gate* const gate = work.gate_.load(std::memory_order_relaxed)) {
    count_launches(work);
    clocks_.open(*gate, launch.op);
  }
}

void Onlookers::close_gate(Work& work) {
  while (!try_close_gate(work)) std::this_thread::sleep_for(kBetweenLooks);
}

bool Onlookers::try_close_gate(Work& work) {
  StreamClocks::Gate* const gate = work.gate_.load(std::memory_order_acquire);
  if (!gate) return true;
  if (gate->is_open()) {
    const std::lock_guard lock(mutex_);
    StreamClocks::close(*gate);
  }
  return !gate->is_busy();
}

}  // namespace nimble
