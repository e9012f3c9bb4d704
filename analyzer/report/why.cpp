#include "analyzer/report/why.h"

#include <algorithm>
#include <utility>

#include "analyzer/base/text.h"
#include "analyzer/report/describe.h"

namespace nimble::analyzer {
namespace {

std::string op_text(const StepAnalysis& analysis, std::uint32_t op) {
  const TraceCall& call = analysis.input.trace().calls[analysis.step.calls()[op]];
  return "op " + std::to_string(op) + " (" + describe_op(analysis, op, 100) + "; " + shortened(call.symbol, 40) +
         ", seq " + std::to_string(call.seq) + ")";
}

std::string rect_text(const Access& access) {
  if (access.whole) return "all of it";
  const ByteRect& rect = access.rect;
  std::string text = "bytes " + std::to_string(rect.begin) + " to " + std::to_string(rect.end());
  if (!rect.is_range())
    text += ", " + std::to_string(rect.height) + " rows of " + std::to_string(rect.width) + ", " +
            std::to_string(rect.pitch) + " apart";
  return text;
}

std::string access_text(const Access& access) {
  const char* does = access.reads ? (access.writes ? "reads and writes " : "reads ") : "writes ";
  return does + rect_text(access) + " [" + std::string(name(access.evidence)) + "]";
}

// Whether one of the two ops may be communicating through memory that others can reach.
bool talks(const StepAnalysis& analysis, const Dependency& dependency) {
  for (std::uint32_t op : {dependency.from, dependency.to})
    if (analysis.evidence.accesses.ops[op].communicates != Communicates::no &&
        analysis.evidence.accesses.ops[op].shares)
      return true;
  return false;
}

void both_sides(const StepAnalysis& analysis, const Dependency& dependency, std::string& out) {
  for (std::uint32_t op : {dependency.from, dependency.to}) {
    const OpAccesses& accesses = analysis.evidence.accesses.ops[op];
    if (accesses.role == OpRole::barrier)
      out += "    op " + std::to_string(op) +
             " is assumed to read and write everything: " + analysis.evidence.accesses.reasons[accesses.why] + "\n";
    if (dependency.kind == DependencyKind::order && accesses.communicates != Communicates::no)
      out += "    op " + std::to_string(op) + " may be communicating with another process or the host: " +
             analysis.evidence.accesses.reasons[accesses.communicates_why] + "\n";
    else if (dependency.kind == DependencyKind::order && accesses.blocks_wait)
      out += "    op " + std::to_string(op) + " has blocks that wait for each other, by a rule\n";
    else if (dependency.kind == DependencyKind::order && accesses.tells && op == dependency.to)
      out += "    op " + std::to_string(op) +
             " writes memory that others can reach, which may be taken as a sign that all before it is done\n";
    else if (dependency.kind == DependencyKind::order && accesses.shares && talks(analysis, dependency))
      out += "    op " + std::to_string(op) + " touches memory that others can reach\n";
    for (const Access& access : analysis.evidence.accesses.of(op))
      if (access.object == dependency.object) out += "    op " + std::to_string(op) + " " + access_text(access) + "\n";
  }
}

auto dependencies_into(const StepAnalysis& analysis, std::uint32_t op) {
  const auto& all = analysis.order.dependencies.all;
  auto before = [](const Dependency& dependency, std::uint32_t to) { return dependency.to < to; };
  auto first = std::lower_bound(all.begin(), all.end(), op, before);
  auto last = std::lower_bound(first, all.end(), op + 1, before);
  return std::pair(first, last);
}

void dependency_text(const StepAnalysis& analysis, const Dependency& dependency, std::string& out) {
  out += "  " + std::to_string(dependency.from) + " -> " + std::to_string(dependency.to) + "  " +
         std::string(name(dependency.kind));
  if (dependency.object != kNone) out += " of " + describe_object(analysis, dependency.object);
  out += ", " + std::string(name(dependency.evidence)) + "\n";
  both_sides(analysis, dependency, out);
}

// A shortest path of needed dependencies from `first` to `second`; empty if there is none.
std::vector<std::uint32_t> path_between(const Dag& dag, std::uint32_t first, std::uint32_t second) {
  std::vector<std::uint32_t> next(dag.nodes(), kNone), queue{second};
  for (std::size_t head = 0; head < queue.size() && next[first] == kNone; ++head)
    for (std::uint32_t from : dag.predecessors(queue[head]))
      if (from >= first && next[from] == kNone) {
        next[from] = queue[head];
        queue.push_back(from);
      }
  std::vector<std::uint32_t> path;
  if (next[first] == kNone) return path;
  for (std::uint32_t op = first; op != kNone; op = op == second ? kNone : next[op]) path.push_back(op);
  return path;
}

// Why there is no dependency, from what both ops touch.
void why_independent(const StepAnalysis& analysis, std::uint32_t first, std::uint32_t second, std::string& out) {
  for (std::uint32_t op : {first, second}) {
    OpRole role = analysis.evidence.accesses.ops[op].role;
    if (role == OpRole::none) {
      out += "  op " + std::to_string(op) +
             " is answered from the memory plan, where every object has its own address: it orders nothing.\n";
      return;
    }
    if (role == OpRole::record || role == OpRole::wait) {
      out += "  op " + std::to_string(op) + " touches no memory: only a wait for its event comes after it.\n";
      return;
    }
  }
  bool shared = false;
  for (const Access& a : analysis.evidence.accesses.of(first))
    for (const Access& b : analysis.evidence.accesses.of(second)) {
      if (a.object != b.object) continue;
      shared = true;
      out += "  both touch " + describe_object(analysis, a.object) + ": op " + std::to_string(first) + " " +
             access_text(a) + ", op " + std::to_string(second) + " " + access_text(b) +
             (a.writes || b.writes ? "; the bytes do not overlap" : "; neither writes") +
             ", so they may run side by side.\n";
    }
  if (!shared) out += "  they have no object in common, so they may run side by side.\n";
}

// What the schedule does with the pair.
std::string schedule_text_of(const StepAnalysis& analysis, std::uint32_t first, std::uint32_t second) {
  std::uint32_t a = analysis.cut.segments.segment[first], b = analysis.cut.segments.segment[second];
  for (std::uint32_t op : {first, second})
    if (Submit submit = analysis.cut.segments.submit[op]; submit == Submit::plan || submit == Submit::order) return "";
  if (a == kNone || a != b)
    return "In the schedule they are not in one graph, so they are submitted one after the other.\n";
  const auto& ops = analysis.cut.segments.segments[a].ops;
  auto lane = [&](std::uint32_t op) {
    auto node = std::lower_bound(ops.begin(), ops.end(), op) - ops.begin();
    return std::to_string(analysis.plan.lanes[a].assignment.lane[static_cast<std::size_t>(node)]);
  };
  return "In the schedule they are in segment " + std::to_string(a) + ", on lanes " + lane(first) + " and " +
         lane(second) + " (policy " + analysis.plan.chosen + ").\n";
}

const Race* find_race(const StepAnalysis& analysis, std::uint32_t first, std::uint32_t second) {
  const auto& races = analysis.order.dependencies.races;
  const auto found = std::find_if(races.begin(), races.end(),
                                  [&](const Race& race) { return race.first == first && race.second == second; });
  return found == races.end() ? nullptr : &*found;
}

}  // namespace

std::string explain_order(const StepAnalysis& analysis, std::uint32_t first, std::uint32_t second) {
  if (first == second) return "op " + std::to_string(first) + " is the same op: it needs no order with itself.\n";
  if (first > second) std::swap(first, second);
  std::string out = op_text(analysis, first) + "\n" + op_text(analysis, second) + "\n\n";

  auto [begin, end] = dependencies_into(analysis, second);
  bool direct = std::any_of(begin, end, [&](const Dependency& dependency) { return dependency.from == first; });
  if (direct) {
    out += "Ordered: op " + std::to_string(second) + " depends on op " + std::to_string(first) + ".\n";
    for (auto dependency = begin; dependency != end; ++dependency)
      if (dependency->from == first) dependency_text(analysis, *dependency, out);
  } else if (auto path = path_between(analysis.order.reduced, first, second); !path.empty()) {
    out += "Ordered: through " + std::to_string(path.size() - 1) + " dependencies.\n";
    for (std::size_t i = 1; i < path.size(); ++i) {
      auto [from, to] = dependencies_into(analysis, path[i]);
      auto link = std::find_if(from, to, [&](const Dependency& d) { return d.from == path[i - 1]; });
      dependency_text(analysis, *link, out);
    }
  } else if (const Race* race = find_race(analysis, first, second)) {
    out += race->communicate
               ? "Not ordered by the program, though both may be communicating with another process or the host.\n"
               : "Not ordered by the program, though they touch the same memory: a possible race.\n";
  } else {
    out += "Not ordered:\n";
    why_independent(analysis, first, second, out);
  }
  return out + schedule_text_of(analysis, first, second);
}

}  // namespace nimble::analyzer
