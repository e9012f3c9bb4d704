#include "analyzer/order/onlookers.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "analyzer/step/happens_before.h"

namespace nimble::analyzer {
namespace {

// What a step's op does to an object of the trace; ops are numbered among all that ran.
struct Touch {
  std::uint32_t op = 0;
  std::uint32_t object = kNone;  // of the step
  bool writes = false;
};

class Finder {
 public:
  Finder(const Trace& trace, const ObjectTable& table, const Step& step, const StepAccesses& accesses,
         const StepObjects& objects)
      : trace_(trace),
        table_(table),
        step_(step),
        accesses_(accesses),
        objects_(objects),
        order_(trace, step.ops),
        touches_(order_.streams()),
        watched_(objects.objects.size(), 0) {}

  std::vector<std::uint8_t> run(std::span<const std::uint32_t> onlookers) {
    for (std::uint32_t i = 0; i < step_.begins.size(); ++i)
      for (std::uint32_t k = 0; k < step_.period; ++k) note_touches(step_.begins[i] + k, k);
    for (const std::uint32_t op : onlookers) look_at(op);
    return std::move(watched_);
  }

 private:
  const TraceCall& call(std::uint32_t op) const { return trace_.calls[step_.ops[op]]; }

  // For an op of some occurrence, which is op `k` of the step.
  void note_touches(std::uint32_t op, std::uint32_t k) {
    const std::span<const PointerWord> there = table_.pointers(step_.calls()[k]);
    const bool is_barrier = accesses_.ops[k].role == OpRole::barrier;
    for (const PointerWord& here : table_.pointers(step_.ops[op])) {
      const auto same = std::ranges::find(there, here.at, &PointerWord::at);
      const std::uint32_t object = same == there.end() ? kNone : objects_.find(same->object);
      if (object == kNone) continue;
      const auto is_it = [&](const Access& access) { return access.object == object; };
      const auto writes = [&](const Access& access) { return is_it(access) && access.writes; };
      const auto known = accesses_.of(k);
      if (!is_barrier && std::ranges::none_of(known, is_it)) continue;
      touches_[order_.stream(op)][here.object].push_back(
          {op, object, is_barrier || std::ranges::any_of(known, writes)});
    }
  }

  void look_at(std::uint32_t op) {
    const bool is_copy = call(op).kind == CallKind::copy, is_set = call(op).kind == CallKind::set;
    for (const PointerWord& pointer : table_.pointers(step_.ops[op])) {
      const bool writes = (!is_copy && !is_set) || pointer.at == kAtDst;
      for (std::uint32_t s = 0; s < order_.streams(); ++s) {
        if (s == order_.stream(op)) continue;
        const auto found = touches_[s].find(pointer.object);
        if (found != touches_[s].end()) look_at(op, writes, s, found->second);
      }
    }
  }

  // Those of stream `s` that are neither before nor after the op.
  void look_at(std::uint32_t op, bool writes, std::uint32_t s, const std::vector<Touch>& all) {
    auto touch = std::partition_point(
        all.begin(), all.end(), [&](const Touch& each) { return order_.position(each.op) <= order_.clock(op, s); });
    for (; touch != all.end() && !order_.ordered(op, touch->op); ++touch)
      if (writes || touch->writes) watched_[touch->object] = 1;
  }

  const Trace& trace_;
  const ObjectTable& table_;
  const Step& step_;
  const StepAccesses& accesses_;
  const StepObjects& objects_;
  const HappensBefore order_;
  std::vector<std::unordered_map<std::uint32_t, std::vector<Touch>>> touches_;  // by stream and object of the trace
  std::vector<std::uint8_t> watched_;
};

}  // namespace

std::vector<std::uint8_t> watched_objects(const Trace& trace, const ObjectTable& table,
                                          std::span<const Step* const> kinds, const Step& step,
                                          const StepAccesses& accesses, const StepObjects& objects) {
  std::vector<std::uint8_t> of_step(step.ops.size(), 0);
  std::uint32_t first = static_cast<std::uint32_t>(of_step.size()), last = 0;
  for (const Step* const kind : kinds)
    for (const std::uint32_t begin : kind->begins) {
      std::fill_n(of_step.begin() + begin, kind->period, std::uint8_t{1});
      first = std::min(first, begin);
      last = std::max(last, begin + kind->period);
    }
  const auto call = [&](std::uint32_t op) -> const TraceCall& { return trace.calls[step.ops[op]]; };
  const std::uint32_t stream = trace.calls[step.calls().front()].stream;
  const bool one_stream =
      std::ranges::all_of(step.calls(), [&](std::uint32_t index) { return trace.calls[index].stream == stream; });
  std::vector<std::uint32_t> onlookers;
  for (std::uint32_t op = first; op < last; ++op)
    if (of_step[op] == 0 && does_work(call(op).kind) && !(one_stream && call(op).stream == stream))
      onlookers.push_back(op);
  if (onlookers.empty()) return {};
  return Finder(trace, table, step, accesses, objects).run(onlookers);
}

}  // namespace nimble::analyzer
