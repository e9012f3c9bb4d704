#include "tests/oracle/order.h"

#include <algorithm>

#include "tests/oracle/random.h"

namespace nimble::oracle {
namespace {

// Whether whoever sees no more of the two than what they point to would order them.
bool may_conflict(const Op& a, const Op& b) {
  if (a.ranges.empty() || b.ranges.empty()) return false;
  if (a.opaque || b.opaque) return true;
  // Of pointers in structures nothing tells that they are only read; nor that two numbers side by side are no address.
  const auto is = [](const Op& op, Kernel kernel) { return op.kind == OpKind::launch && op.kernel == kernel; };
  if (is(a, Kernel::by_struct) || is(b, Kernel::by_struct)) return true;
  const bool any =
      is(a, Kernel::by_array) || is(b, Kernel::by_array) || a.kind == OpKind::graph || b.kind == OpKind::graph;
  for (const Range& x : a.ranges)
    for (const Range& y : b.ranges)
      if (x.buffer == y.buffer && (any || x.writes || y.writes)) return true;
  return false;
}

class Orderer {
 public:
  explicit Orderer(Program& program)
      : program_(program), random_(program.seed ^ 0x5eed), known_(program.streams, Clock(program.streams)) {}

  void run() {
    for (std::uint32_t i = 0; i < program_.ops.size(); ++i) {
      behind_conflicts(i);
      place(i);
    }
    std::vector<Op> all;
    for (std::uint32_t i = 0; i < program_.ops.size(); ++i) {
      for (Op& op : before_[i]) all.push_back(std::move(op));
      all.push_back(std::move(program_.ops[i]));
      for (Op& op : after_[i]) all.push_back(std::move(op));
    }
    // All streams meet at the end, and the next step begins behind that on each of them.
    for (std::uint32_t s = 1; s < program_.streams; ++s) hand_over(s, 0, all, all);
    const std::uint32_t event = program_.events++;
    all.push_back(record(0, event));
    for (std::uint32_t s = 1; s < program_.streams; ++s) all.push_back(wait(s, event));
    program_.ops = std::move(all);
  }

 private:
  using Clock = std::vector<std::uint32_t>;  // by stream: how many of its ops are known to come before

  static Op record(std::uint32_t stream, std::uint32_t event) {
    Op op;
    op.kind = OpKind::record;
    op.stream = stream;
    op.event = event;
    return op;
  }
  static Op wait(std::uint32_t stream, std::uint32_t event) {
    Op op = record(stream, event);
    op.kind = OpKind::wait;
    return op;
  }
  void hand_over(std::uint32_t from, std::uint32_t to, std::vector<Op>& records, std::vector<Op>& waits) {
    const std::uint32_t event = program_.events++;
    records.push_back(record(from, event));
    waits.push_back(wait(to, event));
  }

  static void join(Clock& into, const Clock& other) {
    for (std::size_t s = 0; s < into.size(); ++s) into[s] = std::max(into[s], other[s]);
  }

  void behind_conflicts(std::uint32_t i) {
    before_.emplace_back();
    after_.emplace_back();
    const Op& op = program_.ops[i];
    // The latest first: it may order the others as well.
    for (std::uint32_t j = i; j-- > 0;) {
      const Op& other = program_.ops[j];
      if (other.stream == op.stream || known_[op.stream][other.stream] >= position_[j]) continue;
      if (!conflict(other, op) && !(program_.ordered_widely && may_conflict(other, op))) continue;
      if (random_.percent(50)) {
        // An event right behind the other op.
        hand_over(other.stream, op.stream, after_[j], before_[i]);
        join(known_[op.stream], clock_[j]);
      } else {
        // An event behind all that its stream has to do so far.
        hand_over(other.stream, op.stream, before_[i], before_[i]);
        join(known_[op.stream], known_[other.stream]);
      }
    }
  }

  void place(std::uint32_t i) {
    const Op& op = program_.ops[i];
    if (op.kind == OpKind::synchronize) {
      // The host waits for everything, and submits nothing before.
      Clock all(program_.streams);
      for (std::uint32_t s = 0; s < program_.streams; ++s) all[s] = known_[s][s];
      for (Clock& known : known_) join(known, all);
    }
    position_.push_back(++known_[op.stream][op.stream]);
    clock_.push_back(known_[op.stream]);
  }

  Program& program_;
  Random random_;
  std::vector<Clock> known_;             // of the next op of each stream
  std::vector<Clock> clock_;             // per op, itself included
  std::vector<std::uint32_t> position_;  // per op: its place on its stream, from 1
  std::vector<std::vector<Op>> before_, after_;
};

}  // namespace

bool conflict(const Op& a, const Op& b) {
  for (const Range& x : a.ranges)
    for (const Range& y : b.ranges)
      if (x.buffer == y.buffer && (x.writes || y.writes) && x.begin < y.end && y.begin < x.end) return true;
  return false;
}

void order_streams(Program& program) {
  if (program.streams > 1) Orderer(program).run();
}

}  // namespace nimble::oracle
