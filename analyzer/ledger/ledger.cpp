#include "analyzer/ledger/ledger.h"

#include <algorithm>
#include <map>
#include <utility>

#include "analyzer/base/text.h"
#include "analyzer/report/describe.h"

namespace nimble::analyzer {
namespace {

std::string op_text(const StepReading& step, std::uint32_t op, const char* none = "the next repeat") {
  return op == kNone ? none : describe_op(step, op, 48);
}

// The op of an order that nothing is known of.
std::uint32_t unknown_op(const StepReading& step, const Dependency& dependency) {
  return step.evidence.accesses.ops[dependency.from].role == OpRole::barrier ? dependency.from : dependency.to;
}

std::string what_of(const StepAnalysis& analysis, const Loss& loss, const DeviceModel& device, bool one_clock) {
  switch (loss.cause) {
    case LossCause::host_code:
      return "before " + op_text(analysis, loss.op);
    case LossCause::host_call:
    case LossCause::host_wait:
      return shortened(analysis.input.trace().calls[loss.call].symbol, 48);
    case LossCause::start:
      return "of ops that had been submitted";
    case LossCause::program_order:
      return op_text(analysis, loss.op) + " was ready while " + op_text(analysis, loss.held_by, "another repeat's op") +
             " ran";
    case LossCause::evidence: {
      const std::uint32_t op = unknown_op(analysis, *loss.dependency);
      const std::uint32_t why = analysis.evidence.accesses.ops[op].why;
      return op_text(analysis, op) +
             (why == kNone ? "" : ": " + shortened(analysis.evidence.accesses.reasons[why], 100));
    }
    case LossCause::communication:
      return op_text(analysis, loss.dependency->to) + " after " + op_text(analysis, loss.dependency->from);
    case LossCause::dependency:
      return op_text(analysis, loss.dependency->to) + " after " + op_text(analysis, loss.dependency->from) + ": " +
             std::string(name(loss.dependency->kind));
    case LossCause::few_blocks: {
      if (loss.held_by == kNone) return "ops of other repeats";
      const OpCost& cost = analysis.times.costs[loss.held_by];
      if (cost.engine != Engine::multiprocessors) return op_text(analysis, loss.held_by);
      return op_text(analysis, loss.held_by) + ", " + std::to_string(cost.multiprocessors) + " of " +
             plural(static_cast<std::uint64_t>(device.multiprocessors), "multiprocessor");
    }
    case LossCause::unknown:
      return one_clock ? "ops whose time is not known" : "the host has another clock, so its part is not known";
  }
  return "";
}

}  // namespace

double Ledger::of(LossCause cause) const {
  double us = 0;
  for (const LedgerEntry& entry : entries)
    if (entry.cause == cause) us += entry.us();
  return us;
}

Ledger idle_ledger(const StepAnalysis& analysis, const DeviceModel& device) {
  Ledger ledger;
  ledger.times = median_repeat(analysis.input.trace(), analysis.step);
  ledger.step_us = ledger.times.until_us - ledger.times.from_us;
  std::map<std::pair<LossCause, std::string>, LedgerEntry> entries;
  const LedgerEntry* before = nullptr;
  Loss place;  // the stretch that goes on
  for (const Loss& loss : find_losses(analysis, ledger.times, device)) {
    std::string what = what_of(analysis, loss, device, ledger.times.one_clock);
    LedgerEntry& entry = entries[{loss.cause, what}];
    entry.cause = loss.cause;
    entry.what = std::move(what);
    (loss.idle ? entry.idle_us : entry.narrow_us) += loss.us();
    (loss.idle ? ledger.idle_us : ledger.narrow_us) += loss.us();
    if (before == &entry && place.end_us == loss.begin_us) {
      place.end_us = loss.end_us;
    } else {
      place = loss;
      ++entry.places;
    }
    if (entry.largest.us() < place.us()) entry.largest = place;
    before = &entry;
  }
  for (auto& [key, entry] : entries) ledger.entries.push_back(std::move(entry));
  std::ranges::stable_sort(ledger.entries, std::greater<>(), &LedgerEntry::us);
  return ledger;
}

const char* remedy(LossCause cause) {
  switch (cause) {
    case LossCause::host_code:
    case LossCause::host_call:
      return "replayed, the host submits a graph at a time (nimble run --mode auto or replay); what is not in the step "
             "can be moved to another thread";
    case LossCause::host_wait:
      return "wait once, at the end, or read results a step later";
    case LossCause::start:
      return "ops of one graph start sooner after each other than those of a stream (--mode auto or replay)";
    case LossCause::program_order:
      return "the schedule puts them on several streams (--mode auto or replay)";
    case LossCause::evidence:
      return "of a kernel: nimble-analyze kernels says what is missing, and a rule can say it "
             "(docs/howto/write-rules.md); of a copy: pinned memory";
    case LossCause::communication:
      return "none: such ops keep the program's order";
    case LossCause::dependency:
      return "of a write after a read or a write: memory of its own; of a read after a write: larger or fused kernels";
    case LossCause::few_blocks:
      return "larger batches; kernels with more blocks";
    case LossCause::unknown:
      return "record on a GPU, with NIMBLE_TIMING=cupti";
  }
  return "";
}

}  // namespace nimble::analyzer
