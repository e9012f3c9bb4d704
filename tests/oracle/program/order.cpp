#include "tests/oracle/program/order.h"

#include <algorithm>
#include <map>

#include "tests/oracle/program/random.h"

namespace nimble::oracle {
namespace {

// Whether an analysis that knows only what the two ops' parameters point to would order them.
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
    // All streams join at the end, and the next step begins after that on each of them.
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
        // An event right after the other op.
        hand_over(other.stream, op.stream, after_[j], before_[i]);
        join(known_[op.stream], clock_[j]);
      } else {
        // An event after all work on its stream so far.
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

// Goes through a step once, from the first op to the last, as the driver is given it.
class Mender {
 public:
  Mender(const Program& program, std::vector<Op>& ops)
      : program_(program),
        ops_(ops),
        streams_(program.streams + (program.spare_stream ? 1 : 0)),
        known_(streams_, Clock(streams_)),
        used_(streams_, false) {}

  std::uint32_t run() {
    std::vector<Op> given = std::move(ops_);
    ops_.clear();
    for (Op& op : given) add(std::move(op));
    for (std::uint32_t s = 1; s < streams_; ++s)
      if (known_[0][s] < known_[s][s] && !is_loose(s)) hand_over(s, 0);
    const Clock all = known_[0];
    for (std::uint32_t s = 1; s < program_.streams; ++s)
      if (known_[s] != join_of(known_[s], all)) hand_over(0, s);
    return new_events_;
  }

 private:
  using Clock = std::vector<std::uint32_t>;  // by stream: how many of its ops are known to come before
  struct Done {
    const Op op;
    std::uint32_t position;
  };

  static void join(Clock& into, const Clock& other) {
    for (std::size_t s = 0; s < into.size(); ++s) into[s] = std::max(into[s], other[s]);
  }
  static Clock join_of(Clock a, const Clock& b) {
    join(a, b);
    return a;
  }

  void hand_over(std::uint32_t from, std::uint32_t to) {
    Op op;
    op.kind = OpKind::record;
    op.stream = from;
    op.event = program_.events + new_events_++;
    place(op);
    op.kind = OpKind::wait;
    op.stream = to;
    place(op);
  }

  void add(Op op) {
    // The spare stream does not wait at the end of a step.
    if (op.stream >= program_.streams && !used_[op.stream]) hand_over(0, op.stream);
    used_[op.stream] = true;
    if (op.kind == OpKind::host_wait && !is_known(op)) {
      op.places.clear();
      op.ranges.clear();
    }
    for (std::size_t j = done_.size(); j-- > 0 && op.kind != OpKind::host_wait;) {
      const Done& other = done_[j];
      if (other.op.stream == op.stream || known_[op.stream][other.op.stream] >= other.position) continue;
      if (conflict(other.op, op)) hand_over(other.op.stream, op.stream);
    }
    place(std::move(op));
  }

  // Whether the host's read, after the event that it waits for, is ordered after all writes there.
  bool is_known(const Op& op) const {
    const auto recorded = recorded_.find(op.event);
    return recorded != recorded_.end() && std::none_of(done_.begin(), done_.end(), [&](const Done& done) {
             return recorded->second[done.op.stream] < done.position && conflict(done.op, op);
           });
  }

  void place(Op op) {
    Clock& mine = known_[op.stream];
    // What does nothing to memory need not be known.
    if (!op.ranges.empty() || op.kind == OpKind::host_function) ++mine[op.stream];
    if (op.kind == OpKind::record) recorded_[op.event] = mine;
    if (op.kind == OpKind::renew_event) recorded_.erase(op.event);
    if (op.kind == OpKind::wait) {
      if (const auto found = recorded_.find(op.event); found != recorded_.end()) join(mine, found->second);
    }
    if (op.kind == OpKind::synchronize || op.kind == OpKind::read_back || op.kind == OpKind::replace) host_waits();
    if (!op.ranges.empty()) done_.push_back({op, mine[op.stream]});
    ops_.push_back(std::move(op));
  }

  // Whether the spare stream only used memory that it has freed by then: no one has to wait for that.
  bool is_loose(std::uint32_t stream) const {
    if (stream < program_.streams) return false;
    const auto freed = [&](const Range& range) {
      return std::any_of(done_.begin(), done_.end(), [&](const Done& done) {
        return done.op.kind == OpKind::free && !done.op.blocking && done.op.stream == stream &&
               done.op.buffer == range.buffer;
      });
    };
    return std::all_of(done_.begin(), done_.end(), [&](const Done& done) {
      return done.op.stream != stream || std::all_of(done.op.ranges.begin(), done.op.ranges.end(), freed);
    });
  }

  // For all that there is; where there is one stream, for that one.
  void host_waits() {
    Clock all = known_[0];
    for (std::uint32_t s = 0; s < streams_ && program_.streams > 1; ++s) all[s] = known_[s][s];
    for (Clock& known : known_) join(known, all);
  }

  const Program& program_;
  std::vector<Op>& ops_;
  const std::uint32_t streams_;
  std::vector<Clock> known_;
  std::vector<bool> used_;
  std::map<std::uint32_t, Clock> recorded_;
  std::vector<Done> done_;
  std::uint32_t new_events_ = 0;
};

}  // namespace

std::uint32_t mend_order(const Program& program, std::vector<Op>& ops) { return Mender(program, ops).run(); }

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
