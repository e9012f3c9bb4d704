#include "tests/oracle/disorder/disorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/oracle/disorder/changes.h"
#include "tests/oracle/program/contents.h"
#include "tests/oracle/program/order.h"
#include "tests/oracle/program/random.h"
#include "tests/oracle/program/ranges.h"

namespace nimble::oracle {
namespace {

constexpr std::uint64_t kOfDisorder = 0xd150bde5, kOfKinds = 0x6b1d5;
// Those changes that do not affect later steps.
constexpr ChangeKind kOfStep[] = {ChangeKind::leave_out, ChangeKind::leave_out, ChangeKind::add,   ChangeKind::swap,
                                  ChangeKind::pointer,   ChangeKind::shape,     ChangeKind::kernel};

class Builder {
 public:
  Builder(std::uint64_t seed, std::uint32_t attempt, const Cuts& cuts)
      : cuts_(cuts),
        random_(seed ^ kOfDisorder),
        kinds_random_(seed ^ kOfKinds),
        base_(base_of(seed, attempt, cuts.limits)) {
    base_.spare_stream = true;
    script_.program = base_;
    // Only kinds on one stream are scheduled together.
    if (base_.streams != 1 || !kinds_random_.percent(50)) return;
    kinds_.resize(kinds_random_.between(1, 3));
    for (auto& changes : kinds_)
      for (std::uint32_t i = kinds_random_.between(1, 3); i > 0; --i)
        changes.emplace_back(kOfStep[kinds_random_.below(std::size(kOfStep))], kinds_random_.next());
    script_.kinds += static_cast<std::uint32_t>(kinds_.size());
  }

  // Runs of each kind, of several lengths.
  Script record() {
    const std::uint32_t calm = base_.calm != 0 ? base_.calm : base_.repeats;
    std::uint32_t step = 0;
    recording_ = true;
    for (; step < calm; ++step) build(step, 0, false);
    for (std::uint32_t round = 0; round < 3; ++round)
      for (std::uint32_t kind = 0; kind < script_.kinds; ++kind)
        for (std::uint32_t i = 2 + (kind + round) % 3; i > 0; --i) build(step++, kind, false);
    return std::move(script_);
  }

  Script run() {
    const std::uint32_t calm = base_.calm != 0 ? base_.calm : base_.repeats;
    std::uint32_t drawn = calm + (random_.percent(8) ? random_.between(45, 60) : random_.between(8, 26));
    std::uint32_t disturbed = random_.one_of<std::uint32_t>({10, 25, 40, 60});
    if (script_.kinds > 1) {  // each of them has to come whole before it is replayed
      drawn += kinds_random_.between(10, 30);
      disturbed /= 2;
    }
    const std::uint32_t steps = std::min(drawn, cuts_.steps);
    // Some programs have every kind of change, and some do the same thing over and over.
    only_ = random_.percent(40);
    for (ChangeKind& kind : few_) kind = any_kind();
    choose_threads();
    bool before = false;
    for (std::uint32_t step = 0; step < steps; ++step) {
      // A fault may recur at once; and each program begins with steps as recorded.
      const bool now = step >= calm - 1 && random_.percent(before ? disturbed + 15 : disturbed);
      before = now;
      const std::uint32_t kind = step < calm || kinds_random_.percent(40) ? 0 : kinds_random_.below(script_.kinds);
      build(step, kind, now);
    }
    if (!cuts_.no_fault && random_.percent(35)) choose_a_fault();
    return std::move(script_);
  }

 private:
  ChangeKind any_kind() {
    return static_cast<ChangeKind>(random_.below(static_cast<std::uint32_t>(ChangeKind::count)));
  }

  void choose_threads() {
    const Threads drawn =
        random_.one_of({Threads::one, Threads::one, Threads::in_turn, Threads::freely, Threads::freely});
    if (cuts_.one_thread) return;
    script_.threads = drawn == Threads::freely && base_.streams == 1 ? Threads::in_turn : drawn;
  }

  void choose_a_fault() {
    const Fault& fault = script_.fault = choose_fault(script_, random_);
    // Else it is not known which calls follow the failing one.
    const bool of_op =
        fault.kind == FaultKind::refused || fault.kind == FaultKind::fatal || fault.kind == FaultKind::runs;
    if (of_op && script_.threads == Threads::freely) script_.threads = Threads::in_turn;
  }

  void build(std::uint32_t step, std::uint32_t of_kind, bool disturbed) {
    const std::uint32_t phase = recording_ || step < base_.calm ? 0 : step - base_.calm;
    std::vector<Op> ops;
    for (const Op& op : base_.ops)
      if (in_step(op, phase)) ops.push_back(as_in(op, phase));
    StepChanges changes(script_.program, ops, kept_);
    if (of_kind != 0)
      for (const auto& [change, seed] : kinds_[of_kind - 1]) changes.apply(change, Random(seed));
    const std::uint32_t count = disturbed ? random_.between(1, 3) : 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const ChangeKind kind = only_ ? few_[random_.below(3)] : any_kind();
      const std::uint64_t seed = random_.next();
      const auto number = static_cast<std::uint32_t>(script_.changes.size());
      script_.changes.push_back(kind);
      if (std::find(cuts_.without.begin(), cuts_.without.end(), number) == cuts_.without.end())
        changes.apply(kind, Random(seed));
    }
    if (!kept_.empty() && random_.percent(30)) changes.free_kept(Random(random_.next()));
    changes.finish();
    const std::uint32_t events = mend_order(base_, ops);
    script_.program.events = std::max(script_.program.events, base_.events + events);
    script_.steps.push_back(std::move(ops));
    script_.disturbed.push_back(disturbed);
  }

  // With no more that depends on the step.
  static Op as_in(Op op, std::uint32_t phase) {
    for (Place& place : op.places) {
      const Place here = at_step(place, phase);
      place = {here.buffer, here.offset};
    }
    if (op.kind == OpKind::launch) op.count = count_at(op, phase);
    op.shrinks = false;
    op.skip = 0;
    return op;
  }

  const Cuts& cuts_;
  Random random_, kinds_random_;
  Program base_;
  std::vector<std::vector<std::pair<ChangeKind, std::uint64_t>>> kinds_;  // beside the first: what makes them
  Script script_;
  std::vector<std::uint32_t> kept_;
  bool only_ = false, recording_ = false;
  ChangeKind few_[3] = {};
};

}  // namespace

const char* name_of(ChangeKind kind) {
  static constexpr const char* kNames[] = {
#define X(id) #id,
      NIMBLE_ORACLE_CHANGES(X)
#undef X
  };
  return kNames[static_cast<int>(kind)];
}

const char* name_of(FaultKind kind) {
  static constexpr const char* kNames[] = {"none", "refused", "fatal", "runs", "memory", "own"};
  return kNames[static_cast<int>(kind)];
}

Program base_of(std::uint64_t seed, std::uint32_t attempt, const Limits& limits) {
  Limits mine = limits;
  mine.several_streams = Random(seed ^ 0x57aea5).percent(40);
  return make_program(seed + (std::uint64_t{attempt} << 40), mine);
}

Script make_script(std::uint64_t seed, std::uint32_t attempt, const Cuts& cuts) {
  return Builder(seed, attempt, cuts).run();
}

Script make_recording(std::uint64_t seed, std::uint32_t attempt, const Cuts& cuts) {
  return Builder(seed, attempt, cuts).record();
}

std::string words_of(std::uint64_t seed, std::uint32_t attempt, const Cuts& cuts) {
  std::string text = fmt::format("{} {} {} {} {} {} {}", seed, attempt, cuts.limits.ops, cuts.steps,
                                 cuts.no_fault ? 1 : 0, cuts.one_thread ? 1 : 0, cuts.without.size());
  for (const std::uint32_t change : cuts.without) text += fmt::format(" {}", change);
  for (const std::uint32_t op : cuts.limits.without) text += fmt::format(" {}", op);
  return text;
}

bool read(std::istream& words, std::uint64_t& seed, std::uint32_t& attempt, Cuts& cuts) {
  std::size_t without = 0;
  if (!(words >> seed >> attempt >> cuts.limits.ops >> cuts.steps >> cuts.no_fault >> cuts.one_thread >> without))
    return false;
  for (std::uint32_t number = 0; words >> number;)
    (cuts.without.size() < without ? cuts.without : cuts.limits.without).push_back(number);
  return words.eof();
}

std::string describe(const Script& script) {
  std::string text = describe(script.program);
  static constexpr const char* kThreads[] = {"one thread", "threads in turn", "a thread for each stream"};
  text += fmt::format("issued by {}\n", kThreads[static_cast<int>(script.threads)]);
  text += "changes:";
  for (std::size_t i = 0; i < script.changes.size(); ++i) text += fmt::format(" {} {},", i, name_of(script.changes[i]));
  text += "\n";
  for (std::uint32_t step = 0; step < script.steps.size(); ++step) {
    if (!script.disturbed[step] && step != script.fault.step) continue;
    text += fmt::format("step {}:\n", step);
    for (std::size_t i = 0; i < script.steps[step].size(); ++i)
      text += fmt::format("{:3}  {}\n", i, line_of(script.steps[step][i]));
  }
  const Fault& fault = script.fault;
  if (fault.kind != FaultKind::none)
    text += fmt::format("fault: {}, step {} op {}, {} {} error {}\n", name_of(fault.kind), fault.step, fault.op,
                        fault.symbol, fault.nth, fault.result);
  return text;
}

}  // namespace nimble::oracle
