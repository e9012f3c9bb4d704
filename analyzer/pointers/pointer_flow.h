// Which pointers lie in the memory that a step uses: what a kernel may reach that reads addresses from memory, and what
// a schedule has to compare before it may rest on that.
//
// Pointers get into memory by copies from the host, of which the trace holds the words that may be addresses, and by
// kernels that store what they were given (analyzer/pointers/kernel_flow.h); copies on the device and kernels move
// them.
//
// Where memory was looked through behind a launch (NIMBLE_PROBE), and held none, there are none, whoever has written to
// it before, if that was over by then: that is believed where observations are.
//
// What the step itself puts there replay sees as well: the payload of a copy can be compared with the recorded one, and
// a kernel's parameters are. These pointers are known one by one. Of what was put there before the step, or by ops of
// which too little is known, or may be put there by the host without a call, it is only known that there may be some:
// whoever would follow them is not known to touch anything in particular.
//
// What the step leaves behind lies there when it comes again. Where somebody follows such pointers, replay has to see
// to it that the step before was as recorded as well: carries().
//
// Refers to its arguments, which must outlive it. One thread; ops are asked about in their order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/memory/objects.h"
#include "analyzer/pointers/kernel_flow.h"
#include "analyzer/pointers/signature.h"
#include "analyzer/step/happens_before.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

class HeldPointers {
 public:
  // What a kernel has touched by following pointers.
  struct Followed {
    std::uint32_t object;
    PointerFlow flow;
    bool operator==(const Followed&) const = default;
  };
  // What became of the step's ops, each by its place.
  struct Outcome {
    std::vector<std::uint8_t> known;  // replay compares the op's parameters with what was recorded
    std::vector<std::vector<Followed>> followed;
    bool operator==(const Outcome&) const = default;
  };
  struct Step {
    std::span<const std::uint32_t> calls;  // its ops
    // Per call of the trace: 1 for ops of other repeats of it, which did the same. May be shorter.
    std::vector<std::uint8_t> repeats;
    // Per op: whether replay lets it pass without a look at it. May be shorter.
    std::vector<std::uint8_t> uncompared;
    // What is taken to have become of the repeat before; nothing: that every op is known.
    Outcome before;
  };

  // Nothing is computed before somebody asks.
  HeldPointers(const Trace& trace, const ObjectTable& table, Step step, const Rules& rules,
               const Observations* seen = nullptr);

  // Op `op` is being asked about; did() was called for all before it.
  void reach(std::uint32_t op) { now_ = op; }
  // What was made of it: `known` where replay compares its parameters with what was recorded.
  void did(std::uint32_t op, bool known) { now_is_.known[op] = known; }

  // Objects are indices into the ObjectTable. Each appends what is found to `found`, or returns false and says why it
  // cannot be told. The op at hand is taken to depend on that.

  // All that the pointers in `object` lead to. Only where the step itself has put them there, all of them.
  bool table(std::uint32_t object, Pointee pointee, std::vector<std::uint32_t>& found, std::string& why);
  // Whether `object` was filled by the step itself: nobody can have put something else there before.
  bool fresh(std::uint32_t object, std::string& why);
  // Whether it was, and not with pointers.
  bool plain(std::uint32_t object, std::string& why);
  // All that can be reached from these objects, over any number of pointers, beside themselves. Where the step has put
  // nothing, and nothing is known to have been put before, there is taken to be nothing.
  bool reachable(std::span<const std::uint32_t> from, std::vector<std::uint32_t>& found, std::string& why);

  // Per op of the step, once all were asked about: whether it is a copy or a set that must be as recorded: in the same
  // place, and what comes from the host pointer by pointer.
  const std::vector<std::uint8_t>& compared() {
    catch_up();
    return compared_;
  }
  // Per op, likewise: whether it is a launch of which something holds only for its shape (KernelFlows::by_sight).
  const std::vector<std::uint8_t>& by_sight() {
    catch_up();
    return by_sight_;
  }
  // Whether anybody follows pointers that an earlier step has left.
  bool carries() const { return carries_; }
  // Whether anybody has asked.
  bool asked() const { return started_; }
  const Outcome& outcome() const { return now_is_; }

 private:
  // Why something is not known.
  static constexpr std::string_view kByHost = "the host may fill it without a call";
  static constexpr std::string_view kUnlooked = "a copy filled it whose content the trace does not hold";
  static constexpr std::string_view kBefore = "pointers were put into it outside of the step";
  static constexpr std::string_view kByKernel = "a kernel of which too little is known may have put pointers into it";
  static constexpr std::string_view kByOther = "an op of which too little is known may have put pointers into it";
  static constexpr std::string_view kNotFilled = "the step itself does not fill all of it";
  static constexpr std::string_view kPointers = "there are pointers in it, and its type does not tell what to";
  static constexpr std::string_view kTooMuch = "it may lead to too much to be told apart";
  static constexpr std::size_t kMostStreams = 32;  // among which what was before the step is ordered
  // More in one object, or on the way from one, is as good as anything.
  static constexpr std::size_t kMostPlaces = 1 << 16, kMostBundles = 16, kMostFillers = 256, kMostReached = 128;

  struct Place {
    std::uint32_t object;  // that is pointed to
    bool old = false;      // from the repeat before
    bool operator==(const Place&) const = default;
  };
  // What a kernel has been given, or has moved, is kept once: a bundle of objects, by its number.
  std::uint32_t bundle(std::vector<std::uint32_t> objects);

  // What lies in one object since the step began. `places` are exact; `somewhere` may be anywhere in it.
  struct Held {
    std::map<std::uint64_t, Place> places;          // by offset
    std::set<std::uint32_t> somewhere;              // bundles
    std::map<std::uint64_t, std::uint64_t> filled;  // by the step: begin to end, apart from each other
    bool old = false;                               // of `somewhere`: some are from the repeat before
    std::set<std::uint32_t> fillers;                // copies and sets of the step that brought any of this
    bool unknown = false;                           // something else may be there: `why`
    std::string_view why;
    void become_unknown(std::string_view reason);
    bool carried() const;
    std::vector<std::uint32_t> placed() const;  // all objects that `places` lead to
    bool empty() const { return places.empty() && somewhere.empty() && !unknown; }
    bool operator==(const Held&) const = default;
  };

  static bool host_fills(MemoryKind memory);
  void catch_up();
  void before_the_step();
  void repeat_before();
  static bool overflows(const Held& held);
  bool born_in_step(std::uint32_t object) const;
  void outside(std::uint32_t call);
  void inside(std::uint32_t op);
  void copy_outside(std::uint32_t call);
  void copy_inside(std::uint32_t op);
  void kernel_outside(std::uint32_t call);
  void kernel_inside(std::uint32_t op);
  // In the step, with parameters that replay compares with nothing: each may be a pointer to anything.
  void kernel_not_compared(std::uint32_t call);
  // Whether a kernel that reads memory may come upon pointers anywhere.
  bool any_pointers() const;
  void taint(std::uint32_t object, std::string_view why, std::uint32_t call = kNone);
  void taint_all(std::uint32_t call, std::string_view why);
  void clear(std::uint32_t object, std::uint32_t call);
  // Why nobody can tell what lies there; empty where it can be told.
  std::string_view doubt(std::uint32_t object);
  void look(std::uint32_t call);
  // Keeps a call among these, in the place of earlier ones of its stream.
  void remember(std::vector<std::uint32_t>& calls, std::uint32_t call) const;
  void order_what_was_before();
  // Whether an op outside of the step is over when another one begins.
  bool is_over(std::uint32_t call, std::uint32_t before) const;
  bool visit(std::uint32_t object, std::string& why);
  bool filled_by_step(std::uint32_t object, std::string& why);

  // Whether the payload that was looked at when the copy was called is what it carried later.
  bool payload_is_known(std::uint32_t call) const;
  const PointerWord* pointer_at(std::uint32_t call, std::uint32_t at) const;
  std::vector<PointerWord> all_words(std::uint32_t call) const;
  bool covers(std::uint32_t call, const PointerWord& pointer) const;
  // All mapped memory may be the same memory.
  std::uint32_t slot(std::uint32_t object) const;
  Held& held(std::uint32_t object) { return held_[slot(object)]; }

  const Trace& trace_;
  const ObjectTable& table_;
  const Step step_;
  const std::span<const std::uint32_t> calls_;
  KernelFlows flows_;
  const Observations* const seen_;
  std::uint32_t mapped_ = kNone;  // the first object that is mapped

  std::uint32_t now_ = 0, done_ = 0;  // the op that is asked about; how many have had their effect
  bool started_ = false;
  bool host_functions_ = false;
  bool may_clear_ = true;
  bool carries_ = false;
  Outcome now_is_;                                 // of the ops up to the one at hand
  const Outcome* outcome_ = nullptr;               // of the repeat that is gone through
  std::vector<std::uint8_t> compared_, by_sight_;  // per op

  // Per object, of what happened outside of the step: may hold pointers, and why.
  std::vector<std::string_view> tainted_;
  std::vector<std::vector<std::uint32_t>> tainted_by_;  // per object: calls that did, the last of each stream
  std::vector<std::uint32_t> all_tainted_by_;           // likewise, of those that may have put anything anywhere
  std::optional<HappensBefore> order_;                  // of ops before the step, where somebody may look
  std::vector<std::uint32_t> place_;                    // per call before the step: its place there
  // By context: when the host had first waited for all of it behind what was not recorded, in microseconds.
  std::map<std::uint32_t, double> waited_;
  bool reads_host_ = false;                  // a kernel of the step is given memory that the host may fill
  std::vector<std::uint8_t> device_writes_;  // per object of the host's memory: something on the device writes it
  std::vector<std::uint32_t> cleared_;       // per object: the call that last overwrote all of it, plus one
  std::uint32_t all_tainted_ = 0;            // the last call, plus one, that may have put anything anywhere
  std::string_view all_why_;
  std::vector<std::vector<std::uint32_t>> bundles_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> bundle_of_;
  std::map<std::uint32_t, Held> held_;  // by slot
  std::set<std::uint32_t> visited_;     // slots that somebody has asked about
};

}  // namespace nimble::analyzer
