#include "tests/oracle/check/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "analyzer/stages/find_accesses.h"

namespace nimble::oracle {
namespace {

using analyzer::Access;
using analyzer::ObjectTable;
using analyzer::OpRole;
using analyzer::StepAccesses;
using analyzer::StepObjects;

using Ranges = std::vector<Bytes>;  // ascending, apart

Ranges merged(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Bytes& a, const Bytes& b) { return a.begin < b.begin; });
  Ranges all;
  for (const Bytes& range : ranges) {
    if (range.begin >= range.end) continue;
    if (!all.empty() && range.begin <= all.back().end) {
      all.back().end = std::max(all.back().end, range.end);
    } else {
      all.push_back(range);
    }
  }
  return all;
}

std::uint64_t bytes_of(const Ranges& ranges) {
  std::uint64_t sum = 0;
  for (const Bytes& range : ranges) sum += range.end - range.begin;
  return sum;
}

// The first part of `inner` that is not in `outer`; empty if there is none.
Bytes uncovered(const Ranges& inner, const Ranges& outer) {
  for (const Bytes& range : inner) {
    std::uint64_t at = range.begin;
    while (at < range.end) {
      auto after = std::upper_bound(outer.begin(), outer.end(), at,
                                    [](std::uint64_t address, const Bytes& other) { return address < other.begin; });
      if (after == outer.begin() || std::prev(after)->end <= at)
        return {at, after == outer.end() ? range.end : std::min(range.end, after->begin)};
      at = std::prev(after)->end;
    }
  }
  return {};
}

bool meet(const Ranges& a, const Ranges& b) {
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].begin < b[j].end && b[j].begin < a[i].end) return true;
    (a[i].end < b[j].end ? i : j)++;
  }
  return false;
}

// What one op touches, and of that what it writes.
struct Touched {
  Ranges all, written;
};

Touched touched(const std::vector<const ExactOp*>& ops) {
  Touched sum;
  for (const ExactOp* op : ops) {
    sum.all.insert(sum.all.end(), op->reads.begin(), op->reads.end());
    sum.all.insert(sum.all.end(), op->writes.begin(), op->writes.end());
    sum.written.insert(sum.written.end(), op->writes.begin(), op->writes.end());
  }
  return {merged(std::move(sum.all)), merged(std::move(sum.written))};
}

Touched inferred(const StepAccesses& accesses, std::uint32_t op, const StepObjects& objects, const ObjectTable& table) {
  Touched sum;
  for (const Access& access : accesses.of(op)) {
    const std::uint64_t base = table.objects()[objects.objects[access.object].id].base;
    for (std::uint64_t row = 0; row < access.rect.height; ++row) {
      const std::uint64_t begin = base + access.rect.begin + row * access.rect.pitch;
      sum.all.push_back({begin, begin + access.rect.width});
      if (access.writes) sum.written.push_back(sum.all.back());
    }
  }
  return {merged(std::move(sum.all)), merged(std::move(sum.written))};
}

std::string label(const Trace& trace, std::uint32_t call) {
  const TraceCall& op = trace.calls[call];
  return fmt::format("seq {} ({}{}{})", op.seq, op.symbol, op.kind == CallKind::launch ? " of " : "",
                     op.kind == CallKind::launch ? trace.functions[op.function].name : "");
}

// Whether an op of this kind always leaves a record.
bool must_run(const TraceCall& call) {
  switch (call.kind) {
    case CallKind::launch:
    case CallKind::host_function:
      return true;
    case CallKind::copy:
    case CallKind::set:
      return call.width != 0 && call.height != 0;
    default:
      return false;
  }
}

bool is_call(const Trace& trace, const TraceCall& call, const ExactOp& op) {
  if (op.symbol != call.symbol) return false;
  if (call.kind == CallKind::launch) return op.name == trace.functions[call.function].name;
  // Other copies of the same kind may come in between: the shim's own.
  if (call.kind == CallKind::copy || call.kind == CallKind::set)
    return op.writes.empty() || op.writes.front().begin == call.dst.address;
  return true;
}

// Compares the ops `calls` of the trace.
class Comparer {
 public:
  Comparer(const analyzer::StepReading& step, const std::vector<std::vector<const ExactOp*>>& matched,
           Comparison& result)
      : trace_(step.input.trace()), table_(*step.input.table), matched_(matched), result_(result) {}

  void run(const StepAccesses& accesses, const StepObjects& objects, std::span<const std::uint32_t> calls,
           bool count_width) {
    std::uint64_t everything = 0;
    for (const auto& object : objects.objects) everything += object.size;
    for (std::uint32_t op = 0; op < calls.size(); ++op) {
      const auto& ran = matched_[calls[op]];
      if (ran.empty()) continue;
      const bool barrier = accesses.ops[op].role == OpRole::barrier;
      const bool known = std::all_of(ran.begin(), ran.end(), [](const ExactOp* one) { return one->exact; });
      if (!known && !barrier) {
        fail(calls[op], "its accesses are unknown, but it is not assumed to touch everything");
        continue;
      }
      const Touched exact = touched(ran), guess = inferred(accesses, op, objects, table_);
      if (!barrier) contained(calls[op], exact, guess, accesses.ops[op].evidence);
      if (!count_width || !known) continue;
      Width width{1, barrier ? everything : bytes_of(guess.all), bytes_of(exact.all),
                  barrier ? everything : bytes_of(guess.written), bytes_of(exact.written)};
      const Evidence evidence = barrier ? Evidence::assumed : accesses.ops[op].evidence;
      result_.width[static_cast<std::size_t>(evidence)].add(width);
      const double ratio =
          width.exact == 0 ? 1 : static_cast<double>(width.inferred) / static_cast<double>(width.exact);
      if (barrier || ratio <= result_.widest) continue;
      result_.widest = ratio;
      result_.widest_op = label(trace_, calls[op]);
    }
  }

 private:
  void fail(std::uint32_t call, const std::string& what) {
    if (result_.failures.size() < 20) result_.failures.push_back(label(trace_, call) + ": " + what);
  }

  void contained(std::uint32_t call, const Touched& exact, const Touched& guess, Evidence evidence) {
    const Bytes touched = uncovered(exact.all, guess.all), written = uncovered(exact.written, guess.written);
    for (const auto& [missed, verb] : {std::pair{touched, "touched"}, std::pair{written, "wrote"}}) {
      if (missed.begin == missed.end) continue;
      fail(call, fmt::format("{} [{:#x}, {:#x}), which is in none of its inferred accesses ({})", verb, missed.begin,
                             missed.end, name(evidence)));
      return;
    }
  }

  const Trace& trace_;
  const ObjectTable& table_;
  const std::vector<std::vector<const ExactOp*>>& matched_;
  Comparison& result_;
};

void count_pairs(const analyzer::StepReading& step, const std::vector<std::vector<const ExactOp*>>& matched,
                 Comparison& result) {
  const auto calls = step.step.calls();
  if (calls.size() > 1000) return;  // there is no haste, but a limit
  std::vector<Touched> exact, guess;
  std::vector<bool> barrier;
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    exact.push_back(touched(matched[calls[op]]));
    guess.push_back(inferred(step.evidence.accesses, op, step.objects, *step.input.table));
    barrier.push_back(step.evidence.accesses.ops[op].role == OpRole::barrier);
  }
  const auto conflict = [](const Touched& a, const Touched& b) {
    return meet(a.written, b.all) || meet(a.all, b.written);
  };
  for (std::uint32_t a = 0; a < calls.size(); ++a) {
    if (matched[calls[a]].empty()) continue;
    for (std::uint32_t b = a + 1; b < calls.size(); ++b) {
      if (matched[calls[b]].empty()) continue;
      result.pairs_exact += conflict(exact[a], exact[b]) ? 1 : 0;
      result.pairs_inferred += barrier[a] || barrier[b] || conflict(guess[a], guess[b]) ? 1 : 0;
    }
  }
}

}  // namespace

void Width::add(const Width& other) {
  ops += other.ops;
  inferred += other.inferred;
  exact += other.exact;
  inferred_written += other.inferred_written;
  exact_written += other.exact_written;
}

std::vector<std::vector<const ExactOp*>> match(const Trace& trace, const std::vector<ExactOp>& exact,
                                               std::vector<std::string>& failures) {
  // Threads are numbered by either side in the order in which it met them.
  std::map<std::uint64_t, std::vector<const ExactOp*>> by_thread;
  for (const ExactOp& op : exact) by_thread[op.thread].push_back(&op);
  std::map<std::uint32_t, std::vector<std::uint32_t>> calls;
  for (std::uint32_t i = 0; i < trace.calls.size(); ++i) {
    const TraceCall& call = trace.calls[i];
    const bool runs = must_run(call) || call.kind == CallKind::graph_launch || call.kind == CallKind::opaque;
    if (runs && call.result == 0) calls[call.thread].push_back(i);
  }
  std::vector<std::vector<const ExactOp*>> matched(trace.calls.size());
  auto thread = by_thread.begin();
  for (const auto& [id, list] : calls) {
    if (thread == by_thread.end()) {
      for (std::uint32_t call : list)
        if (must_run(trace.calls[call]))
          failures.push_back(label(trace, call) + ": the driver saw nothing of its thread");
      continue;
    }
    const auto& ran = (thread++)->second;
    std::size_t next = 0;
    for (std::uint32_t call : list) {
      std::size_t at = next;
      while (at < ran.size() && !is_call(trace, trace.calls[call], *ran[at])) ++at;
      if (at == ran.size()) {
        if (must_run(trace.calls[call]) && failures.size() < 20)
          failures.push_back(label(trace, call) + ": the driver ran no such op");
        continue;
      }
      for (next = at; next < ran.size() && ran[next]->call == ran[at]->call; ++next) matched[call].push_back(ran[next]);
    }
  }
  return matched;
}

Comparison compare(const analyzer::StepReading& step, const std::vector<ExactOp>& exact,
                   const analyzer::AnalysisOptions& options) {
  Comparison result;
  const Trace& trace = step.input.trace();
  const auto matched = match(trace, exact, result.failures);
  std::set<const ExactOp*> recorded;
  for (const auto& ops : matched) recorded.insert(ops.begin(), ops.end());
  for (const ExactOp& op : exact) {
    if (recorded.count(&op) != 0) continue;
    if (result.unrecorded++ == 0) result.first_unrecorded = op.symbol + " of " + op.name;
  }
  Comparer comparer(step, matched, result);
  const std::span<const std::uint32_t> all(step.step.ops);
  const StepObjects objects = analyzer::objects_of_step(trace, *step.input.table, all);
  comparer.run(analyzer::accesses_of(trace, *step.input.table, objects, all, options), objects, all,
               step.step.period == 0);
  if (step.step.period == 0) return result;
  // Each repeat separately, and for the representative exactly what the schedule is made from.
  for (std::uint32_t i = 0; i < step.step.begins.size(); ++i) {
    const auto calls = step.step.calls_of(i);
    if (i == step.step.representative) {
      comparer.run(step.evidence.accesses, step.objects, calls, true);
    } else {
      const StepObjects own = analyzer::objects_of_step(trace, *step.input.table, calls);
      comparer.run(analyzer::accesses_of(trace, *step.input.table, own, calls, options), own, calls, true);
    }
  }
  count_pairs(step, matched, result);
  return result;
}

StepAccesses exact_accesses(const analyzer::StepReading& step, const std::vector<ExactOp>& exact) {
  std::vector<std::string> failures;
  const auto matched = match(step.input.trace(), exact, failures);
  const auto calls = step.step.calls();
  StepAccesses result = step.evidence.accesses;
  result.all.clear();
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    auto& entry = result.ops[op];
    entry.first = static_cast<std::uint32_t>(result.all.size());
    const auto& ran = matched[calls[op]];
    const bool known =
        !ran.empty() && std::all_of(ran.begin(), ran.end(), [](const ExactOp* one) { return one->exact; });
    if (!known) {
      const auto kept = step.evidence.accesses.of(op);
      result.all.insert(result.all.end(), kept.begin(), kept.end());
    } else {
      const Touched touched_here = touched(ran);
      const auto add = [&](const Ranges& ranges, bool writes) {
        for (const Bytes& range : ranges)
          for (std::uint32_t i = 0; i < step.objects.objects.size(); ++i) {
            const auto& object = step.input.table->objects()[step.objects.objects[i].id];
            // An address may have been several objects'.
            if (object.birth != kNone && object.birth > calls[op]) continue;
            if (object.death != kNone && object.death < calls[op]) continue;
            const std::uint64_t begin = std::max(range.begin, object.base);
            const std::uint64_t end = std::min(range.end, object.base + object.size);
            if (begin >= end) continue;
            Access access;
            access.object = i;
            access.rect = {begin - object.base, end - begin, 0, 1};
            access.reads = !writes;
            access.writes = writes;
            access.evidence = Evidence::exact;
            result.all.push_back(access);
          }
      };
      add(touched_here.all, false);
      add(touched_here.written, true);
      entry.role = OpRole::accesses;
    }
    entry.count = static_cast<std::uint32_t>(result.all.size()) - entry.first;
  }
  return result;
}

std::string text_of(const Comparison& comparison) {
  std::string text = fmt::format("{:<10}{:>8}{:>14}{:>14}{:>8}{:>14}{:>14}{:>8}\n", "evidence", "ops", "touched",
                                 "inferred", "ratio", "written", "inferred", "ratio");
  const auto ratio = [](std::uint64_t wide, std::uint64_t narrow) {
    return narrow == 0 ? std::string("-")
                       : fmt::format("{:.2f}", static_cast<double>(wide) / static_cast<double>(narrow));
  };
  const auto line = [&](std::string_view what, const Width& w) {
    text += fmt::format("{:<10}{:>8}{:>14}{:>14}{:>8}{:>14}{:>14}{:>8}\n", what, w.ops, w.exact, w.inferred,
                        ratio(w.inferred, w.exact), w.exact_written, w.inferred_written,
                        ratio(w.inferred_written, w.exact_written));
  };
  Width all;
  for (int e = 0; e < kEvidences; ++e) {
    const Width& width = comparison.width[static_cast<std::size_t>(e)];
    if (width.ops == 0) continue;
    line(name(static_cast<Evidence>(e)), width);
    all.add(width);
  }
  line("all", all);
  text += fmt::format("pairs of ops that conflict: {} of {} that are taken to\n", comparison.pairs_exact,
                      comparison.pairs_inferred);
  if (comparison.unrecorded != 0)
    text += fmt::format("ops that the trace does not hold: {}, the first is {}\n", comparison.unrecorded,
                        comparison.first_unrecorded);
  if (!comparison.widest_op.empty())
    text += fmt::format("widest op: {:.2f} times what it touches: {}\n", comparison.widest, comparison.widest_op);
  return text;
}

}  // namespace nimble::oracle
