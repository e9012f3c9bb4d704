#include "analyzer/pointers/state/taints.h"

namespace nimble::analyzer {

void Taints::prepare(std::size_t objects, std::uint32_t step) {
  step_ = step;
  tainted_.resize(objects);
  tainted_by_.resize(objects);
  cleared_.assign(objects, 0);
}

void Taints::taint(std::uint32_t object, std::string_view why, std::uint32_t call) {
  tainted_[object] = why;
  if (call < step_) remember(tainted_by_[object], call);
}

void Taints::taint_all(std::uint32_t call, std::string_view why) {
  all_tainted_ = call + 1;
  all_why_ = why;
  if (call < step_) remember(all_tainted_by_, call);
}

// Replaces earlier calls of its stream.
void Taints::remember(std::vector<std::uint32_t>& calls, std::uint32_t call) const {
  std::erase_if(calls, [&](std::uint32_t other) { return trace_.calls[other].stream == trace_.calls[call].stream; });
  calls.push_back(call);
}

void Taints::clear(std::uint32_t object, std::uint32_t call) {
  if (!may_clear_) return;
  tainted_[object] = {};
  tainted_by_[object].clear();
  cleared_[object] = call + 1;
}

void Taints::begin_step(const PointerFacts& facts, std::span<const Object> objects) {
  for (std::uint32_t i = 0; i < objects.size(); ++i) {
    if (tainted_by_all(i, objects[i].birth)) taint(facts.slot(i), all_why_);
    if (facts.born_in_step(i)) tainted_[i] = {};
  }
  all_tainted_ = 0;
  std::fill(cleared_.begin(), cleared_.end(), 0);
}

bool Taints::any() const {
  return all_tainted_ != 0 || std::ranges::any_of(tainted_, [](std::string_view why) { return !why.empty(); });
}

}  // namespace nimble::analyzer
