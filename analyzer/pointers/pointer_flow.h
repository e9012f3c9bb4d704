// Which pointers lie in the memory that a step uses: where a kernel may get to that reads addresses from memory, and
// what a schedule has to compare before it may rely on that.
//
// Pointers get into memory by copies from the host, for which the trace holds the words that may be addresses, and by
// kernels that store what they were given (analyzer/pointers/kernel_flow.h); copies on the device and kernels move
// them. If memory was searched after a launch (NIMBLE_PROBE) and held no pointers, there are none, whatever wrote to it
// before, provided that was over by then; that is believed where observations are.
//
// Replay sees what the step itself puts there: it can compare the payload of a copy with the recorded one, and it does
// compare a kernel's parameters. So these pointers are known one by one. What was put there before the step, by ops
// that too little is known about, or by the host without a call, is not: a kernel that would follow such pointers is
// not known to touch anything in particular.
//
// What the step leaves in memory is there when it comes again. If something follows such pointers, replay has to make
// sure that the step before was as recorded, too: carries().
//
// Refers to its arguments, which must outlive it. One thread; ops are asked about in their order.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/memory/objects.h"
#include "analyzer/pointers/kernel_flow.h"
#include "analyzer/pointers/parameter_types.h"
#include "analyzer/pointers/state/contents.h"
#include "analyzer/pointers/state/op_completion.h"
#include "analyzer/pointers/state/pointer_facts.h"
#include "analyzer/pointers/state/taints.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

class PointersInMemory {
 public:
  // What a kernel has touched by following pointers.
  struct Followed {
    std::uint32_t object;
    PointerFlow flow;
    bool operator==(const Followed&) const = default;
  };
  // What is known about the step's ops, by op.
  struct Outcome {
    std::vector<std::uint8_t> known;  // replay compares the op's parameters with what was recorded
    std::vector<std::vector<Followed>> followed;
    bool operator==(const Outcome&) const = default;
  };
  struct Step {
    std::span<const std::uint32_t> calls;  // its ops
    // Per call of the trace: 1 for ops of its other repeats, which did the same. May be shorter.
    std::vector<std::uint8_t> repeats;
    // Per op: whether replay lets it pass without comparing it. May be shorter.
    std::vector<std::uint8_t> uncompared;
    // What is assumed about the repeat before; empty: that every op is known.
    Outcome before;
  };

  // Computes nothing until it is asked.
  PointersInMemory(const Trace& trace, const ObjectTable& table, Step step, const Rules& rules,
                   const Observations* seen = nullptr);

  // The next questions are about op `op`; did() was called for all before it.
  void reach(std::uint32_t op) { now_ = op; }
  // What was decided about it: `known` if replay compares its parameters with the recorded ones.
  void did(std::uint32_t op, bool known) { now_is_.known[op] = known; }

  // The questions. Objects are indices into the ObjectTable. Each appends what is found to `found`, or returns false
  // and says why it is not known. The answer holds for the op at hand, which then depends on it.

  // All that the pointers in `object` lead to. Only known if the step itself has put all of them there.
  bool table(std::uint32_t object, Pointee pointee, std::vector<std::uint32_t>& found, std::string& why);
  // Whether the step itself has filled `object`, so that nothing else can have been put there before.
  bool fresh(std::uint32_t object, std::string& why);
  // Whether it has, and not with pointers.
  bool plain(std::uint32_t object, std::string& why);
  // All other objects that these lead to, over any number of pointers. Where the step has put no pointers, and none are
  // known to have been put there before, there are assumed to be none.
  bool reachable(std::span<const std::uint32_t> from, std::vector<std::uint32_t>& found, std::string& why);

  // Per op of the step, once all were asked about: whether it is a copy or a set that must be as recorded, in the same
  // place and, if it comes from the host, with the same pointers.
  const std::vector<std::uint8_t>& compared() {
    catch_up();
    return compared_;
  }
  // Per op, likewise: whether it is a launch whose answers hold only for its shape (KernelFlows::by_sight).
  const std::vector<std::uint8_t>& by_sight() {
    catch_up();
    return by_sight_;
  }
  // Whether any op follows pointers that an earlier step has left.
  bool carries() const { return carries_; }
  // Whether any question was asked.
  bool asked() const { return started_; }
  const Outcome& outcome() const { return now_is_; }

 private:
  // Why something is not known.
  static constexpr std::string_view kByHost = "the host may fill it without a call";
  static constexpr std::string_view kUnlooked = "it was filled by a copy whose content the trace does not hold";
  static constexpr std::string_view kBefore = "pointers were put into it outside of the step";
  static constexpr std::string_view kByKernel = "a kernel that too little is known about may have put pointers into it";
  static constexpr std::string_view kByOther = "an op that too little is known about may have put pointers into it";
  static constexpr std::string_view kNotFilled = "the step itself does not fill all of it";
  static constexpr std::string_view kPointers =
      "there are pointers in it, and its type does not tell what they point to";
  static constexpr std::string_view kTooMuch = "it may lead to more objects than can be told apart";

  // The order in which things are found out: all calls before the step, the repeat before, then the step's ops as they
  // are asked about.
  void catch_up();
  void before_the_step();
  void repeat_before();

  // The effect of a call outside of the step, or of an op that replay does not compare.
  void outside(std::uint32_t call);
  void copy_outside(std::uint32_t call);
  void kernel_outside(std::uint32_t call);
  // The effect of an op of the step.
  void inside(std::uint32_t op);
  void copy_inside(std::uint32_t op);
  void set_inside(std::uint32_t op);
  void kernel_inside(std::uint32_t op);
  // What a kernel loads from the memory that its uses lead to.
  struct Moved {
    std::set<std::uint32_t> bundles, fillers;
    bool carried = false;
    std::string_view why;  // not empty: it may be anything

    bool nothing() const { return why.empty() && bundles.empty() && fillers.empty(); }
  };
  Moved moved_by(std::span<const Followed> uses);
  // What a copy brings to `to`. False, with the reason, if that is not known.
  bool arriving(std::uint32_t op, const PointerWord& to, Contents& result, std::string_view& why);
  // A launch of the step with parameters that replay compares with nothing: each may be a pointer to anything.
  void kernel_not_compared(std::uint32_t call);

  // Why it is not known what lies there; empty if it is.
  std::string_view doubt(std::uint32_t object) const;
  bool may_hold_pointers(std::uint32_t object) const;
  // Clears objects that were seen to hold no pointers after a launch.
  void believe_probe(std::uint32_t call);
  bool visit(std::uint32_t object, std::string& why);
  bool filled_by_step(std::uint32_t object, std::string& why);
  void compare_fillers(std::uint32_t object);
  Contents& contents(std::uint32_t object) { return contents_.at(facts_.slot(object)); }

  const Trace& trace_;
  const ObjectTable& table_;
  const Step step_;
  PointerFacts facts_;
  KernelFlows flows_;
  const Observations* const seen_;
  OpCompletion completion_;
  Taints taints_;  // before the step
  StepContents contents_;

  std::uint32_t now_ = 0, done_ = 0;  // the op that is asked about; how many have had their effect
  bool started_ = false;
  bool carries_ = false;
  Outcome now_is_;                                 // for the ops up to the one at hand
  const Outcome* outcome_ = nullptr;               // for the repeat that is being gone through
  std::vector<std::uint8_t> compared_, by_sight_;  // per op
  std::set<std::uint32_t> visited_;                // slots that were asked about
};

}  // namespace nimble::analyzer
