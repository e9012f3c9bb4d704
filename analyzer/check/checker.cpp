#include "analyzer/check/checker.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "analyzer/base/errors.h"
#include "analyzer/check/paths.h"
#include "analyzer/check/program_order.h"
#include "analyzer/check/requirements.h"
#include "analyzer/report/describe.h"

namespace nimble::analyzer {
namespace {

class Checker {
 public:
  Checker(const StepReading& step, const ScheduleOrder& schedule, const std::string& file)
      : step_(step),
        schedule_(schedule),
        file_(file),
        order_(step.input.trace(), step.step.calls(), ProgramOrder::By::everything) {}

  CheckResult run() {
    CheckResult result;
    if (order_.streams() > 1) {
      const ProgramOrder by_events(step_.input.trace(), step_.step.calls(), ProgramOrder::By::events);
      check_shared_memory(by_events, result);
      if (!result.unordered) check_lives(by_events, result);
    }
    std::vector<std::vector<std::uint32_t>> members = segments();
    for (std::size_t s = 0; s < members.size() && !result.unordered; ++s) {
      ++result.segments;
      check_segment(members[s], schedule_.edges[s], result);
    }
    return result;
  }

  // `alone`: the schedule has no other kinds of step.
  static void check_that_it_belongs(const StepReading& step, const ScheduleOrder& schedule, bool alone,
                                    const std::string& file) {
    const char* other = "the schedule was made from another trace, or with other rules";
    if (schedule.trace_digest != step.input.file->digest)
      throw InputError(file, 0, "trace_digest",
                       "is " + schedule.trace_digest + ", the trace's is " + step.input.file->digest +
                           ": the schedule was made from another trace");
    if (schedule.ops.size() != step.step.period) throw InputError(file, 0, "ops", other);
    // If there are several kinds, the objects of the others are there as well.
    if (alone && schedule.objects.size() != step.objects.objects.size()) throw InputError(file, 0, "objects", other);
    for (std::size_t i = 0; alone && i < schedule.objects.size(); ++i) {
      const StepObject& object = step.objects.objects[i];
      if (schedule.objects[i].memory != object.memory) fail(file, "objects", i, "memory", other);
      if (schedule.objects[i].size != object.size) fail(file, "objects", i, "size", other);
      if (schedule.objects[i].step_local && !object.step_local) fail(file, "objects", i, "step_local", other);
    }
    auto calls = step.step.calls();
    for (std::size_t op = 0; op < calls.size(); ++op) {
      if (schedule.ops[op].kind != step.input.trace().calls[calls[op]].kind) fail(file, "ops", op, "kind", other);
      if (schedule.ops[op].submit == Submit::plan && step.evidence.accesses.ops[op].role != OpRole::none)
        fail(file, "ops", op, "submit", "is plan, but the op does not allocate or free an object of the step's own");
      if (schedule.ops[op].submit != Submit::order) continue;
      const OwnRecord own = own_record(step.input.trace(), step.step, static_cast<std::uint32_t>(op));
      if (!own.by_step || own.op != schedule.ops[op].record)
        fail(file, "ops", op, "record", "is not what the program recorded the event by");
    }
  }

 private:
  [[noreturn]] static void fail(const std::string& file, const char* list, std::size_t i, const char* field,
                                const std::string& message) {
    throw InputError(file, 0, list + ("[" + std::to_string(i)) + "]." + field, message);
  }

  // The ops of each segment. All of a segment is submitted before what comes after it, and after what comes before it.
  std::vector<std::vector<std::uint32_t>> segments() const {
    std::vector<std::vector<std::uint32_t>> members(schedule_.edges.size());
    std::uint32_t next = 0, open = kNone;  // the segment that begins next; the one that may continue
    for (std::uint32_t op = 0; op < schedule_.ops.size(); ++op) {
      if (schedule_.ops[op].submit == Submit::plan || schedule_.ops[op].submit == Submit::order) continue;
      std::uint32_t segment = schedule_.ops[op].segment;
      if (segment != kNone && segment != open && segment != next)
        fail(file_, "ops", op, "segment", "has ended before, or comes before another that has not begun");
      if (segment != kNone && segment == next) ++next;
      open = segment;
      if (segment != kNone) members[segment].push_back(op);
    }
    return members;
  }

  // A step may be submitted call by call. Then the program's own order must keep objects apart that the memory plan
  // gives the same bytes.
  void check_shared_memory(const ProgramOrder& by_events, CheckResult& result) const {
    Requirements requirements(step_.evidence.accesses, schedule_, order_);
    for (std::uint32_t op = 0; op < schedule_.ops.size(); ++op)
      if (schedule_.ops[op].submit == Submit::graph || schedule_.ops[op].submit == Submit::direct)
        if (step_.evidence.accesses.ops[op].role != OpRole::wait) requirements.next(op);
    for (const Pair& pair : requirements.pairs) {
      if (pair.first_access == kNone) continue;
      const Access &a = step_.evidence.accesses.all[pair.first_access],
                   &b = step_.evidence.accesses.all[pair.second_access];
      if (a.object == b.object || !schedule_.objects[a.object].step_local || by_events.ordered(pair.first, pair.second))
        continue;
      result.unordered =
          Unordered{pair.first, pair.second, why(pair) + "; the program's own streams leave them unordered"};
      return;
    }
  }

  // Such a step may include ops that the schedule does not know, on any object that the program has at the time. So the
  // program must allocate an object after it has released the one that had the same bytes.
  void check_lives(const ProgramOrder& by_events, CheckResult& result) const {
    struct Holder {
      std::uint64_t end;
      std::uint32_t object;
    };
    std::map<std::uint64_t, Holder> holders;          // by begin; disjoint
    std::map<std::uint32_t, std::uint32_t> by_alloc;  // objects, by the op that allocates them
    for (std::uint32_t i = 0; i < schedule_.objects.size(); ++i)
      if (schedule_.objects[i].step_local) by_alloc[step_.objects.objects[i].alloc] = i;
    for (const auto& [alloc, object] : by_alloc) {
      const StepObject& mine = step_.objects.objects[object];
      const std::uint64_t begin = schedule_.objects[object].plan_offset, end = begin + mine.size;
      auto at = holders.upper_bound(begin);
      if (at != holders.begin()) --at;
      while (at != holders.end() && at->first < end) {
        const auto [its_begin, holder] = *at;
        if (holder.end <= begin) {
          ++at;
          continue;
        }
        const StepObject& its = step_.objects.objects[holder.object];
        for (std::uint32_t first : {its.alloc, its.free})
          for (std::uint32_t second : {mine.alloc, mine.free})
            if (!by_events.ordered(first, second)) {
              result.unordered = Unordered{
                  first, second,
                  "the memory plan gives the same bytes to " + describe_object(step_, holder.object) + " and " +
                      describe_object(step_, object) + "; the program's own streams do not order their lifetimes"};
              return;
            }
        at = holders.erase(at);
        if (its_begin < begin) holders[its_begin] = {begin, holder.object};
        if (holder.end > end) holders[end] = holder;
      }
      holders[begin] = {end, object};
    }
  }

  void check_segment(const std::vector<std::uint32_t>& ops, const std::vector<std::array<std::uint32_t, 2>>& edges,
                     CheckResult& result) const {
    Requirements requirements(step_.evidence.accesses, schedule_, order_);
    for (std::uint32_t op : ops) requirements.next(op);
    auto node = [&](std::uint32_t op) {
      return static_cast<std::uint32_t>(std::lower_bound(ops.begin(), ops.end(), op) - ops.begin());
    };
    auto nodes = [&](std::uint32_t from, std::uint32_t to) { return std::array{node(from), node(to)}; };
    std::vector<std::array<std::uint32_t, 2>> local, asked;
    for (const auto& [from, to] : edges) local.push_back(nodes(from, to));
    for (const Pair& pair : requirements.pairs) asked.push_back(nodes(pair.first, pair.second));
    std::size_t missing = Paths(static_cast<std::uint32_t>(ops.size()), std::move(local)).first_missing(asked);
    result.pairs += asked.size();
    if (missing == asked.size()) return;
    const Pair& pair = requirements.pairs[missing];
    result.unordered = Unordered{pair.first, pair.second, why(pair)};
  }

  std::string why(const Pair& pair) const {
    std::string first = "op " + std::to_string(pair.first), second = "op " + std::to_string(pair.second);
    if (pair.first_access == kNone) {
      if (step_.evidence.accesses.ops[pair.second].role == OpRole::record)
        return second + " records an event, which must not be complete before " + first + " is done";
      for (std::uint32_t op : {pair.first, pair.second})
        if (step_.evidence.accesses.ops[op].role == OpRole::barrier)
          return "op " + std::to_string(op) + " may touch anything";
      for (const auto& [one, other] : {std::pair(pair.first, second), std::pair(pair.second, first)})
        if (const OpAccesses& known = step_.evidence.accesses.ops[one];
            known.blocks_wait && known.communicates == Communicates::no)
          return "the blocks of op " + std::to_string(one) + " wait for each other, and " + other +
                 " may hold the room that they need";
      const bool first_talks = step_.evidence.accesses.ops[pair.first].communicates != Communicates::no;
      if (first_talks && step_.evidence.accesses.ops[pair.second].communicates != Communicates::no)
        return first + " and " + second + " may both be communicating with another process or the host";
      if (step_.evidence.accesses.ops[pair.second].tells)
        return second + " writes memory that others can reach, which may be taken as a sign that " + first + " is done";
      if (step_.evidence.accesses.ops[pair.first].hears)
        return first + " may be waiting for another process or the host, and " + second + " comes after it";
      return (first_talks ? first : second) +
             " may be communicating with another process or the host, about memory that " +
             (first_talks ? second : first) + " touches";
    }
    const Access& a = step_.evidence.accesses.all[pair.first_access];
    const Access& b = step_.evidence.accesses.all[pair.second_access];
    std::string text = first;
    text.append(a.writes ? " writes" : " reads")
        .append(", and ")
        .append(second)
        .append(b.writes ? " writes" : " reads");
    if (a.object == b.object) return text + ", the same bytes of " + describe_object(step_, a.object);
    text.append(", ").append(describe_object(step_, a.object)).append(" and ").append(describe_object(step_, b.object));
    return text + (schedule_.objects[a.object].step_local ? ", to which the memory plan gives the same bytes"
                                                          : ", which may be the same memory");
  }

  const StepReading& step_;
  const ScheduleOrder& schedule_;
  const std::string& file_;
  const ProgramOrder order_;
};

}  // namespace

namespace {

// The objects as the analysis numbers them; the step's own are where the plan puts them.
void number_objects(const StepReading& step, const std::string& file, ScheduleOrder& schedule) {
  const auto fail = [&](std::size_t op) {
    throw InputError(file, 0, "objects",
                     "the schedule was made from another trace, or with other rules: op " + std::to_string(op) +
                         " has another object");
  };
  std::vector<ScheduleObject> objects;
  for (const StepObject& object : step.objects.objects) {
    ScheduleObject& mine = objects.emplace_back();
    mine.memory = object.memory;
    mine.size = object.size;
    if (!object.step_local || schedule.ops[object.alloc].submit != Submit::plan) continue;
    const std::uint32_t planned = schedule.ops[object.alloc].object;
    mine = schedule.objects[planned];
    if (!mine.step_local || mine.size != object.size || mine.memory != object.memory) fail(object.alloc);
    if (schedule.ops[object.free].submit != Submit::plan || schedule.ops[object.free].object != planned)
      fail(object.free);
  }
  schedule.objects = std::move(objects);
}

// Whether the schedule's step may be of this kind.
bool looks_like(const ScheduleOrder& schedule, const StepReading& step) {
  const auto calls = step.step.calls();
  return std::equal(
      schedule.ops.begin(), schedule.ops.end(), calls.begin(), calls.end(),
      [&](const ScheduleOrder::Op& op, std::uint32_t call) { return op.kind == step.input.trace().calls[call].kind; });
}

}  // namespace

CheckResult check_schedule(std::span<const StepReading* const> kinds, const ScheduleOrder& schedule,
                           const std::string& file) {
  CheckResult result;
  std::uint32_t next = 0;  // the first kind of the trace that may be the schedule's next one: some may be left out
  for (std::size_t kind = 0; kind < schedule.kinds.size(); ++kind) {
    ScheduleOrder mine = order_of_kind(schedule, kind);
    std::uint32_t found = next;
    while (found + 1 < kinds.size() && !looks_like(mine, *kinds[found])) ++found;
    if (found >= kinds.size()) throw InputError(file, 0, "ends", "the trace has fewer kinds of step");
    Checker::check_that_it_belongs(*kinds[found], mine, schedule.kinds.size() == 1, file);
    number_objects(*kinds[found], file, mine);
    CheckResult of_kind = Checker(*kinds[found], mine, file).run();
    result.segments += of_kind.segments;
    result.pairs += of_kind.pairs;
    if (of_kind.unordered && !result.unordered) {
      result.unordered = std::move(of_kind.unordered);
      result.unordered->kind = found;
    }
    next = found + 1;
  }
  return result;
}

CheckResult check_schedule(const Analysis& analysis, const std::string& text, const std::string& file) {
  std::vector<const StepReading*> kinds{&analysis};
  for (const StepAnalysis& other : analysis.others) kinds.push_back(&other);
  return check_schedule(kinds, read_schedule_order(text, file), file);
}

}  // namespace nimble::analyzer
