// Which objects may hold pointers that calls outside of a step have put there, and why.
//
// Refers to the trace, which must outlive it. One thread; calls come in their order. Objects are slots
// (PointerFacts::slot). No errors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "analyzer/memory/objects.h"
#include "analyzer/pointers/state/pointer_facts.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

class Taints {
 public:
  explicit Taints(const Trace& trace) : trace_(trace) {}

  // `objects`: how many there are; `step`: the first call of the step.
  void prepare(std::size_t objects, std::uint32_t step);

  // `call` may have put pointers into the object; kNone: an earlier call.
  void taint(std::uint32_t object, std::string_view why, std::uint32_t call = kNone);
  // It may have put pointers into any object that exists.
  void taint_all(std::uint32_t call, std::string_view why);
  // It has overwritten the whole object, or shown that no pointers were there. Without effect while clearing is off.
  void clear(std::uint32_t object, std::uint32_t call);
  // Returns what it was before.
  bool set_clearing(bool on) { return std::exchange(may_clear_, on); }

  // From now on it only counts what is there when the step begins, and not when it got there.
  void begin_step(const PointerFacts& facts, std::span<const Object> objects);

  // Why the object may hold such pointers; empty if it holds none. `birth`: Object::birth.
  std::string_view why(std::uint32_t object, std::uint32_t birth) const {
    return tainted_by_all(object, birth) ? all_why_ : tainted_[object];
  }
  bool any() const;
  // Whether `is` holds for all calls before the step that may have put pointers into the object; into any object.
  template <class Is>
  bool all_of(std::uint32_t object, Is is) const {
    return std::ranges::all_of(tainted_by_[object], is);
  }
  template <class Is>
  bool all_of_any(Is is) const {
    return std::ranges::all_of(all_tainted_by_, is);
  }

 private:
  bool tainted_by_all(std::uint32_t object, std::uint32_t birth) const {
    return all_tainted_ > cleared_[object] && all_tainted_ > birth + 1;
  }
  void remember(std::vector<std::uint32_t>& calls, std::uint32_t call) const;

  const Trace& trace_;
  std::uint32_t step_ = 0;
  bool may_clear_ = true;
  std::vector<std::string_view> tainted_;               // per object: why; empty if it is not
  std::vector<std::vector<std::uint32_t>> tainted_by_;  // per object: calls before the step, the last of each stream
  std::vector<std::uint32_t> all_tainted_by_;           // likewise, for calls that may have put anything anywhere
  std::vector<std::uint32_t> cleared_;                  // per object: the call that last overwrote all of it, plus one
  std::uint32_t all_tainted_ = 0;                       // the last call, plus one, that may have put anything anywhere
  std::string_view all_why_;
};

}  // namespace nimble::analyzer
