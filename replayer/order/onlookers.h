// Who touches the memory of work in an order of ours from elsewhere while it runs: of steps, of rewritten graphs, of
// regions.
//
// Such work has what its own ops depend on in order, and nothing else. An op that is none of it, that touches memory
// which the work touches, and that the program has put in no order with it could see that: a flag that says that data
// is there, before the data. So the two never run at the same time. An op that comes while the work may run waits until
// it is through, before the driver has it; and work that comes while the op may run keeps the program's order. What
// comes before what is known by the program's own order alone (stream_clocks.h): nobody is asked about a stream of the
// program's.
//
// Any thread; one lock, under which nobody else is called but the driver, to end the event of work that has gone.
// Errors: whatever there is no room for may touch anything, and is in no order.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/schedule.h"
#include "replayer/order/stream_clocks.h"
#include "replayer/order/touched.h"

namespace nimble {

class Onlookers {
 public:
  // A launch in our order. `number` from 1.
  struct Launch {
    StreamClocks::Op op;
    std::uint64_t number = 0;
  };

  // Something that is launched again and again, in an order of ours or in the program's. Its launches come one after
  // another, on whatever streams.
  class Work {
   public:
    // Uses so many ranges at most; more take memory then.
    explicit Work(std::size_t ranges = 0) {
      memory_.reserve(ranges);
      if (ranges > 0) former_.reserve(kMostFormer);
    }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;
    virtual ~Work() = default;

    // Whether the driver says that all that was launched in our order is through; false where it cannot be asked just
    // now. Any thread, without the lock of Onlookers.
    virtual bool is_through() noexcept = 0;

   private:
    friend class Onlookers;
    static constexpr std::size_t kLaunches = 8, kMostFormer = 256;

    struct Former {
      MemoryRange range;
      std::uint64_t until = 0;  // the number of the last launch that used it
    };

    // All guarded by the lock of Onlookers.
    std::vector<MemoryRange> memory_;  // that the next launch uses, by address, without overlap
    bool variables_ = false;           // and what its kernels reach by these
    bool anything_ = false;
    std::vector<Former> former_;              // that earlier launches used, which may still be running
    std::uint64_t former_anything_ = 0;       // the number of the last one of which that is not known
    std::array<Launch, kLaunches> launches_;  // the last ones in our order that the driver has had
    std::uint64_t begun_ = 0;                 // launches
    std::uint32_t on_their_way_ = 0;          // to the driver
    bool running_ = false;                    // some may be
    bool gone_ = false;                       // its owner has let go of it
  };
  // Work that has to be through before something else goes on.
  class Works {
   public:
    bool empty() const { return count_ == 0 && !all_; }
    bool has(const Work* work) const {
      return all_ ||
             std::any_of(list_.begin(), list_.begin() + count_, [&](const auto& each) { return each.get() == work; });
    }

   private:
    friend class Onlookers;
    void add(const std::shared_ptr<Work>& work) {
      if (count_ == list_.size()) {
        all_ = true;
      } else {
        list_[count_++] = work;
      }
    }
    std::array<std::shared_ptr<Work>, 8> list_;
    std::uint32_t count_ = 0;
    bool all_ = false;  // there is more
  };

  // What a call has said before the driver has it, for when the driver has had it.
  struct Passage {
    StreamClocks::Op op;
    StreamClocks::Token token = 0;
    bool forgets = false;   // it may have recorded any event
    bool captured = false;  // its stream captures
  };

  explicit Onlookers(CallContext& context);

  // --- Of the program's calls. Those on streams that capture are passed over: nothing runs.

  // Whether what comes and went says something of such a call.
  static bool matters(const Call& call);
  // The call is about to reach the driver. Adds what has to be through before it does. `work`: it launches this, in
  // the program's order. `apart`: its op is kept apart from all work by whoever calls. From a call on by which others
  // may look at any time (Call::shown) nothing may be launched in our order any more.
  Passage comes(const Call& call, Works& met, const std::shared_ptr<Work>& work = nullptr, bool apart = false);
  // The driver has had it.
  void went(const Call& call, CUresult result, const Passage& passage);
  // The same of the call that this thread makes: what it has said is kept with the thread, whose calls do not nest.
  void passes(const Call& call, Works& met, const std::shared_ptr<Work>& work = nullptr, bool apart = false);
  void passed(const Call& call, CUresult result);
  // An event is about to be recorded by something else than a call of the program's; recorded() has to follow.
  Passage records(CUevent event, const StreamRef& stream);
  void recorded(const Passage& passage, bool good);
  // Something may have recorded any event, or is about to; or this one.
  void records_any();
  void records_unseen(CUevent event);
  // The memory went before, and with it what work has used of it: who uses it from now on comes behind that by itself.
  void released(std::uint64_t address, std::uint64_t size);

  // --- Of work.

  // There will be some: from now on it is kept in mind what calls touch. Of those before, anything.
  void expect() { expected_.store(true, std::memory_order_seq_cst); }
  // What it uses from its next launch on: `memory` by address, without overlap.
  void uses(Work& work, std::span<const MemoryRange> memory, bool variables, bool anything);
  // Whether it may be launched in our order now. It comes behind what its stream does, and behind what `others` had
  // got. If so begun() has to follow once the driver has had it. If not, adds what has to be through before it is
  // launched at all; comes() says so, too.
  std::optional<Launch> begins(const std::shared_ptr<Work>& work, const StreamRef& stream,
                               std::span<const StreamRef> others, Works& met);
  // `good`: it was launched; `in_our_order`: and so.
  void begun(const std::shared_ptr<Work>& work, const Launch& launch, bool good, bool in_our_order);
  // Whether it may be running in our order, as far as that is known without asking.
  bool may_run(const Work& work) const;
  // Its owner lets go of it. While it may run it is still held against what comes.
  void leave(const std::shared_ptr<Work>& work);
  // What may be running in our order, of any work.
  Works running() const;
  // Waits until they are through; for a second at most, since they may be waiting for the very call. Not under a lock.
  void wait_for(const Works& works);

 private:
  static constexpr std::size_t kMostParts = 96, kMostLaunched = 64, kMostGone = 64;

  // What ops of a stream touch that are not known to be through, each with the number of the last one that did.
  struct Part {
    MemoryRange range;
    std::uint64_t number = 0;
  };
  struct OfStream {
    std::vector<Part> parts;
    std::uint64_t variables = 0, anything = 0;  // 0: none
  };
  // A launch of work in the program's order.
  struct Launched {
    StreamClocks::Op op;
    std::shared_ptr<Work> work;
  };

  // What is touched, by whomever. Ranges of work are sorted.
  struct View {
    std::span<const MemoryRange> ranges;
    bool variables = false, anything = false;
  };
  static View view(const Touched& touched) { return {touched.ranges(), touched.variables, touched.anything}; }
  static View view(const Work& work) { return {work.memory_, work.variables_, work.anything_}; }
  static bool conflict(const View& one, const View& work);

  StreamClocks::Stream describe(const StreamRef& stream, std::unique_lock<std::mutex>& lock);
  std::uint64_t context_of(const StreamRef& stream) const;
  std::uint64_t context_of(const Call& call) const;
  bool is_capturing(const StreamRef& stream) const;
  void abandon(const Passage& passage);
  void forget(const Call& call);
  void enter(StreamClocks::Op op, const Touched& touched, const std::shared_ptr<Work>& work);
  void enter(StreamClocks::Op op, const MemoryRange& range);
  static bool are_before(const StreamClocks::Clock& clock, const Work& work, std::uint64_t until);
  static bool meets(const StreamClocks::Clock& clock, const Work& work, const View& touched);
  bool is_looked_at(const StreamClocks::Clock& clock, const Work& work) const;
  void settle();
  void settle(Work& work) const;
  static void through(Work& work, std::uint64_t number);
  bool wait_for(const std::shared_ptr<Work>& work, std::chrono::steady_clock::time_point end);

  CallContext& context_;
  std::atomic<bool> expected_{false};  // see expect()
  std::atomic<int> captures_{0};       // how many capturing_ has
  mutable std::mutex mutex_;           // guards all below
  StreamClocks clocks_;
  std::vector<OfStream> touched_;  // by slot
  StreamClocks::Clock last_{};     // by slot: of these ops the last one
  std::vector<Launched> launched_;
  std::vector<std::uint64_t> capturing_;      // keys of streams on which a capture has begun and has not ended
  bool crowded_ = false;                      // there was an op of which nothing is known
  bool shown_ = false;                        // see comes()
  std::vector<std::shared_ptr<Work>> works_;  // that may be running in our order
};

}  // namespace nimble
