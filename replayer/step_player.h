// One schedule on the streams of the program that it is for: the state machine that replayer.h describes, without its
// lock, its log, and the loading.
//
// Owns the graphs and the arena of step-local memory. Not synchronised. Driver calls are made through DriverApi; the
// step's context is made current around those that may come from other threads.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nimble/internal/step_paths.h"
#include "replayer/audit/audit.h"
#include "replayer/bind/memory_answers.h"
#include "replayer/bind/memory_map.h"
#include "replayer/bind/object_map.h"
#include "replayer/driver/driver_api.h"
#include "replayer/match/live_step.h"
#include "replayer/match/step_cursor.h"
#include "replayer/match/unrelated_calls.h"
#include "replayer/order/onlookers.h"
#include "replayer/stats/counters.h"
#include "replayer/submit/deferred_errors.h"
#include "replayer/submit/segment_graph.h"
#include "replayer/submit/step_streams.h"
#include "replayer/tune/step_clock.h"
#include "replayer/tune/tuner.h"

namespace nimble {

class StepPlayer {
 public:
  StepPlayer(Schedule schedule, CallContext& context, const DriverApi& driver, Counters& counters);

  // The program's call, before the driver sees it. A value is the answer; nothing means: let the driver have it.
  std::optional<CUresult> before(Call& call);
  // The driver has answered a call that passed.
  void after(const Call& call, CUresult result);

  // The same once replay has stood aside: only memory that the plan served is still looked after.
  std::optional<CUresult> before_aside(Call& call);

  // Audits every `every`th step from now on. `elsewhere` tells how many ops passed that were none of the player's
  // business.
  void audit(std::uint32_t every, std::function<std::uint64_t()> elsewhere);
  // Tries from now on which way of submitting is the fastest, and takes that.
  void tune(Tune when);
  // By kind of step.
  const std::vector<Tuner>& tuners() const { return tuners_; }
  // The program ends: submits what is held, leaves the streams to themselves, and judges what is still to be judged,
  // waiting for it for a while at most.
  void finish();

  // The memory for the step's own objects goes back to the pool, in stream order: behind all that has used it. Not
  // where the program has something in it, where a capture is in the way, or where not all is known of its use. Whether
  // it went.
  bool give_arena_back();

  // Code was loaded, which may have brought memory along. Any thread, without the lock.
  void code_has_come() { memory_.nearby().may_have_come(); }
  // Memory came or went by a call that did not come through here.
  void note(const MemoryEvent& event);
  // What calls of other threads are judged by.
  Bystanders::State state() const;
  const Schedule& schedule() const { return schedule_; }
  // How far it has come: a step is bound; or one is being matched, or has been, and will be.
  bool bound() const { return state_ == State::bound; }
  bool matching() const { return cursor_.begun() || to_bind_ != kNone; }
  // Whether the program has something here that nobody else can look after: memory, errors, a capture that goes on.
  bool indispensable() const { return objects_.all_taken() != 0 || owed_.any() || !captures_.empty(); }
  const MemoryMap& memory() const { return memory_; }

  // Submits what is held, in program order. What the driver refuses is owed to the program, and replay stands aside.
  void flush();
  // Submits what is held, leaves the streams to themselves, and gives the arena back if it can: no one comes back for
  // any of them.
  void leave();
  // Replay ends with the call at hand: leave() comes after it.
  void stand_aside(std::string why);
  // Memory is short: what is held goes out, and the step binds anew when it comes again. Whether anything was let go
  // of. Not for a program that is capturing. `arena`: what has become of the arena; without an event where it stays.
  struct GoingArena {
    CUevent gone = nullptr;  // behind its release; the caller's
    CUcontext context = nullptr;
    CUmemoryPool pool = nullptr;
    std::uint64_t bytes = 0;
  };
  bool let_go_of_memory(GoingArena& arena);
  // Nothing of the program's comes here any more, not even the end of a stream: graphs go.
  void retire();
  // 0 while nothing is held; otherwise a number that changes with every op that is held, and with nothing else.
  std::uint64_t holding() const { return held_.empty() ? 0 : holds_; }

  // Errors of ops that were held, which the program has yet to be told of; and what it is told of a call that the
  // driver has answered with `result`: that, or such an error.
  bool owes() const { return owed_.any(); }
  CUresult tell(const Call& call, CUresult result);
  // A call has failed with an error that its context does not survive.
  void context_failed(CUresult result);
  // A context has ended, as the driver has confirmed.
  void context_gone(const Call& call);

  // --- Who looks at the step's memory from elsewhere (step_onlookers.cpp).

  // Whether some of its graphs run in another order than the program's.
  bool runs_relaxed() const { return runs_relaxed_; }
  // Before any call: these are told of them from now on. `are_through` calls graphs_are_through() with the lock.
  void hold_against(Onlookers& onlookers, std::function<bool()> are_through);
  // Whether those that were launched are through; asks the driver.
  bool graphs_are_through();
  // From now on graphs keep the program's order.
  void keep_program_order();

  // What there is to say to people since the last time: how a step diverged, once for each reason.
  bool has_news() const { return !news_.empty(); }
  std::string take_news() { return std::exchange(news_, {}); }
  // Non-empty once replay must not go on: why.
  const std::string& stood_aside() const { return aside_; }
  // Whether that is how programs end, and no cause for concern.
  bool ended() const { return ended_; }

 private:
  enum class State : std::uint8_t { searching, bound };
  static constexpr const char* kPoolAsked = "the program asks how much memory its pool has, which replay would change";

  std::optional<CUresult> play(Call& call);
  void answered(const Call& call, CUresult result);
  std::optional<CUresult> on_op(Call& call);
  std::optional<CUresult> begin_step(Call& call);
  void begin_matched_step();
  std::optional<CUresult> on_matched(std::uint32_t index, Call& call);
  std::optional<CUresult> outside(Call& call);
  std::optional<CUresult> on_free(Call& call);
  std::optional<CUresult> free_in_arena(const Call& call);
  // Why `call` is not this op of the step, or null if it is.
  const char* mismatch(std::uint32_t index, const Call& call);
  // The op that the call is, as the next on this stream of the schedule's; the step is taken for a kind that has it.
  // kNone for none: `reason` says why it is not what was expected.
  std::uint32_t next_op(std::uint32_t stream, const Call& call, const char*& reason);
  bool has_this_shape(std::uint32_t index, const Call& call) const;
  void take_for(std::uint32_t kind);
  void pass_rest();
  // The same where the call is the step's first on a stream that no stream of the program stands for yet, or that may
  // have moved.
  std::uint32_t op_that_begins_a_stream(const Call& call);
  // Whether steps of some kind may begin with it.
  bool may_begin_step(std::uint32_t stream, const Call& call) const;
  bool observes(const Call& call) const;
  bool is_captured(const Call& call) const;
  void forget_capture(const StreamRef& stream);
  bool record_is_held(CUevent event) const;
  bool wait_is_held(CUevent event) const;
  void flush_early();
  // Submits the segments of which all ops have come.
  void submit_ready();
  void find_segment_end();
  // What of held_ and changed_ belongs to the segment, in batch_.
  void take_batch(std::uint32_t segment);
  // The driver is about to get an op by itself on this stream of the schedule's.
  void individually(std::uint32_t stream);
  void keep_order(CUresult result);
  void place_by_plan();
  void end_clock();
  void finish_audits();
  // What the program asks about memory of the arena, or of the pool that it would be of.
  std::optional<CUresult> answer_question(Call& call);
  std::optional<CUresult> ask_of_pool(Call& call);
  std::optional<CUresult> answer_pool(Call& call) const;
  bool is_of_arena(const Call& call) const;
  void submit_segment(std::uint32_t segment);
  // The result of the first call that failed, if any did; all of them are owed to the program.
  CUresult submit_by_calls(const std::vector<std::uint32_t>& ops, bool on_launch_stream);
  void submit_audited(std::uint32_t segment, const std::optional<Onlookers::Launch>& unseen);
  CUresult patch_changed(std::uint32_t segment);
  SegmentGraph& graph(std::uint32_t segment) {
    return way_ == Way::one_stream && in_order_[segment].built() ? in_order_[segment] : graphs_[segment];
  }
  // How the step that begins is to be submitted.
  void choose_way();
  void read_clock();
  void drop_graphs();
  bool build_graphs(std::uint32_t kind);
  bool is_bound(std::uint32_t kind) const;
  std::uint64_t ops_elsewhere() const { return elsewhere_() + ops_elsewhere_; }
  void judge_audit();
  // What of who looks from elsewhere.
  void find_relaxed();
  bool is_relaxed(std::uint32_t segment) const {
    const bool in_order = in_program_order_ || (way_ == Way::one_stream && in_order_[segment].built());
    return onlookers_ && relaxed_[segment] && !in_order;
  }
  std::optional<Onlookers::Launch> launch_unseen();
  void watch_memory();
  void unwatch(std::uint64_t address, std::uint64_t size);
  void mark_end();
  void batch_begins(std::uint32_t segment);
  void launched(const std::optional<Onlookers::Launch>& launch, bool good);
  void batch_recorded(std::uint32_t segment, bool good);
  Onlookers::Passage op_comes(std::uint32_t index);
  void op_went(const Onlookers::Passage& passage, bool good);
  // `passes`: the driver has yet to have its last op.
  void end_step(bool passes, std::uint32_t thread);
  // `at_op`: the op that should have come where the reason was found.
  void diverge(const char* reason, std::uint32_t at_op = kNone);
  // Builds graphs and arena from a step of that kind that matched as a whole. False if that cannot be done (yet).
  bool bind(std::uint32_t kind);
  void unbind(const char* why = "code or a stream went away");
  void stream_ends(std::uint32_t stream);
  void let_go(CUevent event);
  void context_ended(const Call& call);
  // The driver has refused an op of which the program was told that it had been submitted.
  void refused(CUresult error);
  bool may_tell(const Call& call) const;
  // The driver does not let our stream wait for the one on which the program has freed memory of the arena.
  CUresult could_not_wait(CUresult error);
  // Looks which step-local memory of earlier steps the program still has, as a step may begin.
  bool is_on_another_side(std::uint32_t index) const;
  void note_leftovers();
  bool is_in_use(std::uint32_t object) const;
  bool in_arena(std::uint64_t address) const { return address - arena_ < schedule_.arena_bytes && arena_; }

  const Schedule schedule_;
  const bool rests_on_pointers_;  // Schedule::rests_on_pointers()
  const StepPaths paths_;
  CallContext& context_;
  const DriverApi& driver_;
  Counters& counters_;
  MemoryMap memory_;
  ObjectMap objects_;
  LiveStep live_;

  State state_ = State::searching;
  StepCursor cursor_;
  StepStreams streams_;  // of the step at hand; of all steps once bound
  // A whole step of this kind has come, and matched, but could not be replayed, since the kind is not bound. It will be
  // before the next step begins. kNone: there is no such kind.
  std::uint32_t to_bind_ = kNone;
  bool as_recorded_ = false;            // the last step was, from its first op to its last
  bool disturbed_ = false;              // since it began, something else may have put pointers into memory
  bool pass_step_ = false;              // this step passes, since the schedule rests on the one before
  bool by_graphs_ = true;               // no segment of this step was submitted call by call
  bool serving_ = false;                // this step's own memory comes from the plan
  bool planned_ = false;                // objects_ has it there
  std::uint32_t next_segment_ = 0;      // the first of this step that has not gone yet, in its kind's segments
  std::uint32_t segment_end_ = kNone;   // its last op; kNone where there is none
  std::vector<std::uint64_t> passing_;  // by segment: the step in which its rest passes, since a part was flushed
  std::uint64_t step_ = 0;              // counts those that began
  CUcontext cu_context_ = nullptr;
  std::vector<std::uint32_t> held_, changed_;  // op indices, as they came
  std::vector<std::uint32_t> batch_;           // of held_, while a segment is submitted
  std::vector<CUevent> held_events_;
  std::vector<SegmentGraph> graphs_, in_order_;  // by the schedule; in the program's order, while that is tried or used
  std::vector<bool>
      up_to_date_;           // by segment: whether the graph of the way at hand has all values but the changed ones
  Way way_ = Way::schedule;  // of the step at hand, and of graph()
  std::uint64_t arena_ = 0;
  CUcontext arena_context_ = nullptr;
  CUmemoryPool arena_pool_ = nullptr;     // of which it is; null where the driver does not say
  bool left_ = false;                     // the streams are on their own
  bool arena_use_unknown_ = false;        // something may use it that the launch stream cannot be put behind
  MemoryAnswers answers_;                 // of the program's allocations in the arena
  bool pool_asked_ = false;               // the program has asked how much memory a device's pool has
  bool handover_failed_ = false;          // what is after the last use of the arena is not known
  CUevent stand_in_ = nullptr;            // what nodes record whose event was destroyed
  CUevent handover_ = nullptr;            // after the last use of the arena on a stream that is not ours any more
  std::uint64_t holds_ = 0;               // ops held so far
  std::vector<std::uint32_t> leftovers_;  // objects that the program had when the step began
  std::uint32_t placing_ = kNone;         // op whose allocation the driver is making
  std::uint32_t placing_thread_ = 0;
  std::multiset<std::uint64_t> captures_;  // keys of the streams in which a capture began and has not ended
  std::vector<Tuner> tuners_;              // by kind
  StepClock clock_;
  CUcontext clock_context_ = nullptr;  // that its events are of
  bool tried_ = false;                 // the step at hand is as the tuner wants it
  bool last_due_ = false;              // its last op has passed, and the driver has not had it yet
  std::uint32_t last_thread_ = 0;      // by this thread
  bool clock_due_ = false;             // the same, and the step is timed
  std::optional<Audit> audit_;
  Audit::Run run_ = Audit::Run::graphs;  // of the step at hand
  std::function<std::uint64_t()> elsewhere_;
  std::uint64_t ops_elsewhere_ = 0;          // ops of other streams that came through here
  std::uint32_t refused_ = kNone;            // the op whose node the driver would not change
  std::vector<bool> relaxed_, records_;      // by segment: its order is not the program's; it records events
  std::vector<std::uint32_t> last_records_;  // by segment: the op that records an event behind all others, or kNone
  std::vector<std::uint8_t> uses_;           // by object: whether graphs of the former read it, or write it, too
  bool uses_globals_ = false, runs_relaxed_ = false;
  bool in_program_order_ = false, order_due_ = false;  // see keep_program_order()
  std::uint32_t times_looked_at_ = 0;
  Onlookers* onlookers_ = nullptr;  // null where nothing runs in another order
  std::shared_ptr<Onlookers::Work> work_;
  std::vector<MemoryRange> ranges_;           // that it uses
  std::vector<Onlookers::Passage> recorded_;  // events that the graph records which is being launched
  std::uint64_t watched_moves_ = 0, watched_arena_ = 0;
  std::uint64_t relaxed_launches_ = 0, through_ = 0;  // so many of them are known to be through
  StreamRef relaxed_on_;                              // the last one's stream
  CUevent end_ = nullptr;
  std::uint64_t end_of_ = 0;  // the launch that end_ is behind
  OwedErrors owed_;
  CUresult failed_ = CUDA_SUCCESS;  // what every call in the step's context answers by now
  std::vector<void*> scratch_;
  std::string aside_, news_;
  bool ended_ = false;
};

}  // namespace nimble
