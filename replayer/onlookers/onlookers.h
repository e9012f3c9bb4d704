// Finds ops of the program that access the memory of *relaxed work* while it runs: of steps' graphs, rewritten graphs
// and regions, which are launched in an order of Nimble's.
//
// Relaxed work keeps its own dependencies in order, and nothing else. An op that is not part of it, accesses the same
// memory, and is not ordered with it by the program could see the difference: a flag that says that data is there,
// before the data. So the two never run at the same time. An op that arrives while such work may be running waits
// until that has completed, before the driver gets the op; and work that is launched while such an op may be running
// keeps the program's order. What happens before what is known from the program's own synchronization alone
// (stream_clocks.h): the driver is never asked about the program's streams.
//
// Any thread. One lock, under which nothing is called but the driver, to destroy the event of work that has gone. Ops
// that access nothing that relaxed work uses do not take it: they are only counted, and stand for ops on whatever is
// used later (watched_memory.h). Nor does a launch that follows one of the same work on the same stream, where nothing
// has come since that touches the work's memory: it goes through a gate, which whatever comes closes. Errors: what
// there is no room to remember may access anything, and is ordered with nothing.
#pragma once

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "nimble/internal/call.h"
#include "nimble/internal/process/light_mutex.h"
#include "nimble/internal/schedule.h"
#include "replayer/onlookers/passage.h"
#include "replayer/onlookers/relaxed_work.h"
#include "replayer/onlookers/stream_clocks.h"
#include "replayer/onlookers/stream_facts.h"
#include "replayer/onlookers/touched.h"
#include "replayer/onlookers/touched_by_ops.h"
#include "replayer/onlookers/watched_memory.h"

namespace nimble {

class Onlookers {
 public:
  using Work = RelaxedWork;
  using Works = RelaxedWorks;
  using Launch = RelaxedWork::Launch;
  using Passage = nimble::Passage;

  explicit Onlookers(CallContext& context);

  // --- The program's calls. Those on capturing streams are ignored: nothing runs.

  // Whether comes() and went() have to be told of such a call.
  static bool matters(const Call& call);
  // The call is about to reach the driver. True where no relaxed work is concerned, which takes no lock to find out;
  // then only passed() has to follow. `apart`: the caller itself orders the op with all relaxed work.
  bool passes_unseen(Call& call, bool apart = false);
  // The same of any call. Adds what has to be through before it does. `work`: it launches this, in
  // the program's order. From a call on by which others may look at any time (Call::shown) nothing may be launched in
  // our order any more.
  Passage comes(const Call& call, Works& met, const std::shared_ptr<Work>& work = nullptr, bool apart = false);
  // The driver has had it.
  void went(const Call& call, CUresult result, const Passage& passage);
  // The same of the call that this thread makes: what it has said is kept with the thread, whose calls do not nest.
  void passes(Call& call, Works& met, const std::shared_ptr<Work>& work = nullptr, bool apart = false);
  void passed(const Call& call, CUresult result) {
    if (call.unseen == 0) {
      was_seen(call, result);
    } else if (call.unseen > kWaits) {
      has_waited(call.unseen - kWaits, result);
    } else if (call.unseen != kUncounted) {
      const std::uint32_t place = call.unseen - kUncounted - 1;
      clocks_.passing(place / 2).leave(/*crowded=*/place % 2 != 0);
    }
  }
  // An event is about to be recorded by something other than one of the program's calls; recorded() has to follow.
  Passage records(CUevent event, const StreamRef& stream);
  void recorded(const Passage& passage, bool good);
  // Something may have recorded the event, or is about to.
  void records_unseen(CUevent event);
  // The memory was released. Whoever uses it from now on is ordered after what work has done there.
  void released(std::uint64_t address, std::uint64_t size);

  // --- Of work.

  // There will be some: from now on it is kept in mind what calls touch, until it is known what work uses. Of those
  // before, anything.
  void expect();
  // What it uses from its next launch on: `memory` by address, without overlap.
  void uses(const std::shared_ptr<Work>& work, std::span<const MemoryRange> memory, bool variables, bool anything);
  // Whether it may be launched in our order now. It is ordered after what is on its stream, and after what `others` had
  // got. If so begun() has to follow once the driver has had it. If not, adds what has to be through before it is
  // launched at all; comes() says so, too.
  std::optional<Launch> begins(const std::shared_ptr<Work>& work, const StreamRef& stream,
                               std::span<const StreamRef> others, Works& met);
  // `good`: it was launched; `in_our_order`: and so.
  void begun(const std::shared_ptr<Work>& work, const Launch& launch, bool good, bool in_our_order);
  // Instead of begins() and begun(), without the lock. What holds for the work's last launch on the stream holds for
  // this one: whatever might change that has closed the gate. Then leave_gate() has to follow. False: it takes
  // begins().
  static bool enter_gate(Work& work, const StreamRef& stream) {
    StreamClocks::Gate* const gate = work.gate_.load(std::memory_order_acquire);
    return gate && gate->enter(stream);
  }
  static void leave_gate(Work& work) { work.gate_.load(std::memory_order_relaxed)->leave(); }
  // Closes its gate, and waits until no launch is in it, so none of this thread may be. For an owner whose launches
  // come from several threads, under the lock with which it calls begun().
  void close_gate(Work& work);
  // The same without waiting: whether no launch is in it.
  bool try_close_gate(Work& work);
  // Whether it may be running in our order, as far as that is known without asking.
  bool may_run(Work& work);
  // Its owner lets go of it. While it may run it is still held against what comes.
  void leave(const std::shared_ptr<Work>& work);
  // What may be running in our order, of any work.
  Works running();
  // Waits until they have finished; for a second at most, since they may be waiting for the very call. Not under a
  // lock.
  void wait_for(const Works& works);

 private:
  static constexpr std::size_t kMostGone = 64;
  static constexpr std::chrono::microseconds kBetweenLooks{20};
  static constexpr std::uint32_t kCalm = 256;  // launches since the memory of any work has moved
  // Call::unseen: no op that others may meet; above it, 1 + twice a slot, and 1 if others are under way there.
  static constexpr std::uint32_t kUncounted = 1;
  // And above this, of a call in which the host waits, its token.
  static constexpr std::uint32_t kWaits = kUncounted + 2 * StreamClocks::kMostStreams;

  StreamClocks::Stream describe(const StreamRef& stream, std::unique_lock<LightMutex>& lock);
  Touched look(const Call& call) const;
  void watch(const MemoryView& memory);
  void count_as_touching(const MemoryView& memory);
  void may_watch_less();
  void watch_less();
  void end(const Call& call, Works& met);
  StreamClocks::Token order(const Call& call, std::uint64_t context, std::unique_lock<LightMutex>& lock);
  void was_seen(const Call& call, CUresult result);
  void has_waited(StreamClocks::Token token, CUresult result);
  void keep(const Passage& passage);
  void abandon_last();
  void forget(const Call& call);
  static void close(Work& work);
  void close_all();
  void close_those_that_record();
  void close_where_it_matters(const MemoryView& touched, std::uint32_t slot, const Work* work);
  void count_launches(Work& work);
  static bool is_in_gate(const Work& work);
  void open_gate(Work& work, const Launch& launch);
  void meet(const StreamClocks::Clock& before, const MemoryView& touched, const std::shared_ptr<Work>& work,
            Works& met) const;
  bool is_alone(const std::shared_ptr<Work>& work, const StreamClocks::Stream& stream,
                std::span<const StreamRef> others, Works& met, std::unique_lock<LightMutex>& lock);
  void settle(const Work* kept = nullptr);
  bool has_settled(Work& work);
  std::shared_ptr<Work> find_running();
  bool wait_for(const std::shared_ptr<Work>& work, std::chrono::steady_clock::time_point end);

  CallContext& context_;
  const StreamFacts facts_;
  std::atomic<bool> expected_{false};     // see expect()
  std::atomic<int> captures_{0};          // how many capturing_ has
  WatchedMemory watched_;                 // at least what all works use, and have used while they may run
  alignas(64) mutable LightMutex mutex_;  // guards all below, and changes of the above; away from what each op reads
  StreamClocks clocks_;
  TouchedByOps touched_;
  std::vector<std::uint64_t> capturing_;      // keys of streams on which a capture has begun and has not ended
  bool shown_ = false;                        // see comes()
  std::vector<std::shared_ptr<Work>> works_;  // all that may be running in our order
  std::vector<std::weak_ptr<Work>> users_;    // that use what is watched
  std::uint32_t calm_ = kCalm;                // so many launches, at most, since memory of a work moved
  std::size_t changes_ = 0;                   // of what they use, since all of it was looked through
};

}  // namespace nimble
