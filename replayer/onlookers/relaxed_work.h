// Work that is launched again and again, in Nimble's order or in the program's: a step's graphs, a rewritten graph, a
// region. What its launches use, and which of them may still be running.
//
// Its owner launches it, on whatever streams, one launch after another. All but is_through() and its gate is guarded by
// the lock of Onlookers, which alone reads and writes it. Allocates nothing while there is room for its ranges.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "replayer/onlookers/stream_clocks.h"
#include "replayer/onlookers/touched.h"

namespace nimble {

class RelaxedWork {
 public:
  // A launch in our order, but by no gate. `number` from 1. `closings`: as of when the work may not have a gate any
  // more. `repeats`: the next one may come by the gate.
  struct Launch {
    StreamClocks::Op op;
    std::uint64_t number = 0, closings = 0;
    bool repeats = false;
  };
  // Whether launches in our order may come by a gate, where nothing else has come since the last one: then no lock is
  // taken. Its owner must bear that others close the gate while the launch is made.
  enum class Gated : std::uint8_t { no, yes };

  // Uses so many ranges at most; more take memory then. `records`: it may record events, any.
  explicit RelaxedWork(std::size_t ranges = 0, bool records = false, Gated gated = Gated::no)
      : records_(records), gated_(gated) {
    memory_.reserve(ranges);
    if (ranges > 0) former_.reserve(kMostFormer);
  }
  RelaxedWork(const RelaxedWork&) = delete;
  RelaxedWork& operator=(const RelaxedWork&) = delete;
  virtual ~RelaxedWork() = default;

  // Whether the driver says that all that was launched in Nimble's order has finished; false where it cannot be asked
  // just now. Any thread, without the lock of Onlookers.
  virtual bool is_through() noexcept = 0;

 private:
  friend class Onlookers;
  friend class TouchedByOps;
  static constexpr std::size_t kMostFormer = 256;
  static constexpr std::uint64_t kLaunches = 8;

  // What the next launch uses.
  MemoryView view() const { return {memory_, variables_, anything_}; }
  void use(std::span<const MemoryRange> memory, bool variables, bool anything);
  // Tells `each` of what the next launch uses, and of what earlier ones use that may be running.
  template <class Each>
  void each_use(const Each& each) const {
    each(view());
    for (const Former& former : former_) each(MemoryView{{&former.range, 1}});
    if (former_anything_ != 0) each(MemoryView{{}, false, true});
  }
  // The memory went, and with it what was used of it.
  void release(std::uint64_t address, std::uint64_t size);

  // It is about to be launched in our order; it has been, if that is how it went.
  Launch begin(StreamClocks::Op op) {
    ++on_their_way_;
    return {op, ++begun_, closings_, gated_ == Gated::yes};
  }
  void land() { --on_their_way_; }
  void run(const Launch& launch) {
    running_ = true;
    launches_[ran_++ % kLaunches] = {launch.op, launch.number};
  }
  // It has been launched by the gate, at least once; all that were count as one launch.
  void run_by_gate(StreamClocks::Op op) { run({op, ++begun_}); }
  // Some launch in our order may be running, or is about to.
  bool may_run() const { return running_ || on_their_way_ != 0; }
  // Whether what is touched, by something that comes after what the clock has, is used by launches that may be running
  // then.
  bool meets(const StreamClocks::Clock& clock, const MemoryView& touched) const;
  // What is known to be through is so, and need not be looked at until it is launched again.
  void settle(const StreamClocks::Clock& done);
  // All launches so far have finished, if there were no more than so many.
  void end(std::uint64_t launches);
  bool are_before(const StreamClocks::Clock& clock, std::uint64_t until) const;

  struct Former {
    MemoryRange range;
    std::uint64_t until = 0;  // the number of the last launch that used it
  };
  struct Past {
    StreamClocks::Op op;
    std::uint64_t number = 0;
  };

  const bool records_;
  const Gated gated_;
  std::atomic<StreamClocks::Gate*> gate_{nullptr};  // set with the lock
  StreamClocks::Op by_gate_;                        // what stands for the launches by the gate so far
  std::uint64_t closings_ = 0;                      // how often something came because of which it would be closed
  std::vector<MemoryRange> memory_;                 // that the next launch uses, by address, without overlap
  bool variables_ = false;                          // and what its kernels reach by these
  bool anything_ = false;
  std::vector<Former> former_;            // that earlier launches used, which may still be running
  std::uint64_t former_anything_ = 0;     // the number of the last one of which that is not known
  std::array<Past, kLaunches> launches_;  // the last ones in our order that the driver has had, by turns
  std::uint64_t begun_ = 0;               // launches
  std::uint64_t ran_ = 0, ended_ = 0;     // how many have run in Nimble's order; the first so many have finished
  std::uint32_t on_their_way_ = 0;        // to the driver
  bool running_ = false;                  // some may be
  bool gone_ = false;                     // its owner has let go of it
  bool is_watched_ = false;               // what it uses is
};

// Works that have to be through before something else goes on. Where memory is short it says that there are more.
class RelaxedWorks {
 public:
  bool empty() const { return list_.empty() && !all_; }
  bool has(const RelaxedWork* work) const {
    return all_ || std::any_of(list_.begin(), list_.end(), [&](const auto& each) { return each.get() == work; });
  }

 private:
  friend class Onlookers;
  void add(const std::shared_ptr<RelaxedWork>& work) noexcept try {
    list_.push_back(work);
  } catch (const std::bad_alloc&) {
    all_ = true;
  }
  std::vector<std::shared_ptr<RelaxedWork>> list_;
  bool all_ = false;  // there are more
};

}  // namespace nimble
