#include "analyzer/checker.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "analyzer/checker_order.h"
#include "analyzer/describe.h"
#include "analyzer/errors.h"

namespace nimble::analyzer {
namespace {

// Two ops that must be ordered, and the accesses for which: kNone where one of them is a barrier, a record, or may be
// talking to somebody else.
struct Pair {
  std::uint32_t first, second;
  std::uint32_t first_access = kNone, second_access = kNone;
};

// What one op does to a piece of memory.
struct Use {
  std::uint32_t op, access;
  Region region;
};

// Whether memory of this kind has but one name, so that two allocations of it never share a byte.
bool has_one_name(MemoryKind memory) {
  switch (memory) {
    case MemoryKind::device:
    case MemoryKind::stream_ordered:
    case MemoryKind::pinned:
    case MemoryKind::registered:
    case MemoryKind::managed:
    case MemoryKind::global:
      return true;
    default:
      return false;
  }
}

// Lists the pairs of one segment that must be ordered, as its ops go by in program order.
//
// Not every pair that conflicts: once a write has covered a piece of memory, what touched it before is ordered with
// what touches it later if both are ordered with that write, and these pairs are listed. So a missing pair is implied,
// and of a pair that the schedule misses one is always in the list.
class Requirements {
 public:
  Requirements(const StepAccesses& accesses, const ScheduleOrder& schedule, const ProgramOrder& order)
      : accesses_(accesses),
        schedule_(schedule),
        order_(order),
        on_(order.streams()),
        sign_(order.streams(), kNone),
        record_(order.streams(), kNone),
        heard_(order.streams(), kNone) {}

  void next(std::uint32_t op) {
    std::size_t first_new = pairs.size();
    const std::uint32_t stream = order_.stream(op);
    for (std::uint32_t s = 0; s < order_.streams(); ++s)
      if (heard_[s] != kNone && order_.ordered(heard_[s], op)) pairs.push_back({heard_[s], op});
    if (accesses_.ops[op].role == OpRole::record) {
      add_sign(op);
      record_[stream] = op;
    } else {
      if (accesses_.ops[op].tells) add_sign(op);
      if (last_barrier_ != kNone) pairs.push_back({last_barrier_, op});
      if (accesses_.ops[op].role == OpRole::barrier) {
        for (std::uint32_t before : since_barrier_) pairs.push_back({before, op});
        for (std::uint32_t before : record_)
          if (before != kNone && order_.ordered(before, op)) pairs.push_back({before, op});
        since_barrier_.clear();
        pieces_.clear();
        last_barrier_ = op;
      } else {
        since_barrier_.push_back(op);
        for (std::uint32_t i = 0; i < accesses_.ops[op].count; ++i) touch(op, accesses_.ops[op].first + i);
        hear(op);
      }
    }
    if (accesses_.ops[op].hears) heard_[stream] = op;
    on_[stream].push_back(op);
    auto begin = pairs.begin() + static_cast<std::ptrdiff_t>(first_new);
    auto same = [](const Pair& a, const Pair& b) { return a.first == b.first; };
    std::stable_sort(begin, pairs.end(), [](const Pair& a, const Pair& b) { return a.first > b.first; });
    pairs.erase(std::unique(begin, pairs.end(), same), pairs.end());
  }

  std::vector<Pair> pairs;  // by their second op ascending, then by their first op descending

 private:
  using Address = std::pair<std::uint32_t, std::uint64_t>;  // an address space, and a byte in it
  static constexpr std::uint32_t kArena = 0, kSeveralNames = 1, kFirstOwn = 2;
  struct Piece {
    std::uint64_t end;
    std::vector<Use> writes, reads;
  };

  // Behind all that the program has put before it: behind the last such op on its stream, and what that is not behind.
  void add_sign(std::uint32_t op) {
    std::uint32_t& last = sign_[order_.stream(op)];
    if (last != kNone) pairs.push_back({last, op});
    for (std::uint32_t s = 0; s < order_.streams(); ++s) {
      auto from = std::lower_bound(on_[s].begin(), on_[s].end(), last == kNone ? 0 : order_.seen(last, s));
      for (; from != on_[s].end() && *from < order_.seen(op, s); ++from) pairs.push_back({*from, op});
    }
    last = op;
  }

  void touch(std::uint32_t op, std::uint32_t index) {
    const Access& access = accesses_.all[index];
    const ScheduleObject& object = schedule_.objects[access.object];
    Use use{op, index, access.region};
    std::uint32_t space = kFirstOwn + access.object;
    if (object.step_local) {
      space = kArena;
      use.region.begin += object.plan_offset;
    } else if (!has_one_name(object.memory)) {
      space = kSeveralNames;
      use.region = {0, ~std::uint64_t{0}, 0, 1};
    }
    if (use.region.empty()) return;
    split({space, use.region.begin});
    split({space, use.region.end()});
    for (std::uint64_t at = use.region.begin; at < use.region.end();) {
      auto piece = pieces_.lower_bound({space, at});
      if (piece == pieces_.end() || piece->first != Address{space, at}) {
        // A hole up to the next piece.
        std::uint64_t end = use.region.end();
        if (piece != pieces_.end() && piece->first.first == space) end = std::min(end, piece->first.second);
        piece = pieces_.emplace_hint(piece, Address{space, at}, Piece{end, {}, {}});
      }
      add(piece->second, use, access.writes);
      at = piece->second.end;
    }
  }

  // Who may be talking to somebody else, and who touches what such talk may be about.
  void hear(std::uint32_t op) {
    const bool talks = accesses_.ops[op].communicates != Communicates::no, shares = accesses_.ops[op].shares;
    if (talks && last_talk_ != kNone) pairs.push_back({last_talk_, op});
    if (shares && last_shared_talk_ != kNone) pairs.push_back({last_shared_talk_, op});
    if (talks) last_talk_ = op;
    if (!shares) return;
    if (!talks) {
      since_shared_talk_.push_back(op);
      return;
    }
    for (std::uint32_t before : since_shared_talk_) pairs.push_back({before, op});
    since_shared_talk_.clear();
    last_shared_talk_ = op;
  }

  // Cuts the piece that holds `at` in two there.
  void split(Address at) {
    auto behind = pieces_.upper_bound(at);
    if (behind == pieces_.begin()) return;
    auto piece = std::prev(behind);
    if (piece->first.first != at.first || piece->first.second == at.second || piece->second.end <= at.second) return;
    Piece rest = piece->second;
    piece->second.end = at.second;
    pieces_.emplace_hint(behind, at, std::move(rest));
  }

  void add(Piece& piece, const Use& use, bool writes) {
    auto meet = [&](const std::vector<Use>& earlier) {
      for (const Use& other : earlier)
        if (other.op != use.op && overlap(other.region, use.region))
          pairs.push_back({other.op, use.op, other.access, use.access});
    };
    // Columns of a rectangle cover neither the piece nor each other; of a range, all of the piece is covered.
    auto covered = [&](const Use& other) { return use.region.is_range() || other.region == use.region; };
    meet(piece.writes);
    if (writes) {
      meet(piece.reads);
      piece.writes.erase(std::remove_if(piece.writes.begin(), piece.writes.end(), covered), piece.writes.end());
      piece.reads.erase(std::remove_if(piece.reads.begin(), piece.reads.end(), covered), piece.reads.end());
    }
    std::vector<Use>& list = writes ? piece.writes : piece.reads;
    if (list.empty() || list.back().op != use.op || list.back().region != use.region) list.push_back(use);
  }

  const StepAccesses& accesses_;
  const ScheduleOrder& schedule_;
  const ProgramOrder& order_;
  std::map<Address, Piece> pieces_;  // without overlap
  std::vector<std::uint32_t> since_barrier_, since_shared_talk_;
  std::vector<std::vector<std::uint32_t>> on_;  // the ops so far, by stream
  // Of each stream the last that is behind all before it, the last record, and the last that others may have told
  // something.
  std::vector<std::uint32_t> sign_, record_, heard_;
  std::uint32_t last_barrier_ = kNone, last_talk_ = kNone, last_shared_talk_ = kNone;
};

// Which nodes of a graph come before which, by its edges.
//
// The nodes are put on chains, along edges; a node knows for each chain the furthest node there that comes before it.
// For some chains at a time, so that memory stays bounded.
class Paths {
 public:
  // Nodes are 0 to `nodes` - 1; every edge goes from a smaller to a larger one.
  Paths(std::uint32_t nodes, std::vector<std::array<std::uint32_t, 2>> edges)
      : edges_(std::move(edges)), into_(nodes + 1, 0), chain_(nodes) {
    std::sort(edges_.begin(), edges_.end(),
              [](const auto& a, const auto& b) { return std::tie(a[1], a[0]) < std::tie(b[1], b[0]); });
    for (const auto& edge : edges_) ++into_[edge[1] + 1];
    for (std::uint32_t node = 0; node < nodes; ++node) into_[node + 1] += into_[node];
    std::vector<bool> has_next(nodes, false);
    for (std::uint32_t node = 0; node < nodes; ++node) {
      chain_[node] = kNone;
      for (std::uint32_t e = into_[node]; e < into_[node + 1] && chain_[node] == kNone; ++e)
        if (std::uint32_t from = edges_[e][0]; !has_next[from]) {
          has_next[from] = true;
          chain_[node] = chain_[from];
        }
      if (chain_[node] == kNone) chain_[node] = chains_++;
    }
  }

  // The first of `pairs` whose first node does not come before its second; their number where there is none.
  std::size_t first_missing(const std::vector<std::array<std::uint32_t, 2>>& pairs) const {
    std::vector<std::vector<std::uint32_t>> asked((chains_ + kAtOnce - 1) / kAtOnce);
    for (std::uint32_t i = 0; i < pairs.size(); ++i)
      if (!has_edge(pairs[i])) asked[chain_[pairs[i][0]] / kAtOnce].push_back(i);
    std::size_t missing = pairs.size();
    for (std::uint32_t block = 0; block < asked.size(); ++block) {
      if (asked[block].empty()) continue;
      auto reached = reached_from(block * kAtOnce);
      for (std::uint32_t i : asked[block]) {
        auto [from, to] = pairs[i];
        if (reached[to][chain_[from] - block * kAtOnce] <= from) missing = std::min<std::size_t>(missing, i);
      }
    }
    return missing;
  }

 private:
  static constexpr std::uint32_t kAtOnce = 16;
  using Reached =
      std::array<std::uint32_t, kAtOnce>;  // per chain one more than the furthest node, 0 where there is none

  bool has_edge(const std::array<std::uint32_t, 2>& pair) const {
    auto at = [&](std::uint32_t node) { return edges_.begin() + into_[node]; };
    auto found = std::lower_bound(at(pair[1]), at(pair[1] + 1), pair[0],
                                  [](const auto& edge, std::uint32_t from) { return edge[0] < from; });
    return found != at(pair[1] + 1) && (*found)[0] == pair[0];
  }

  std::vector<Reached> reached_from(std::uint32_t first_chain) const {
    std::vector<Reached> reached(chain_.size(), Reached{});
    for (std::uint32_t node = 0; node < chain_.size(); ++node) {
      for (std::uint32_t e = into_[node]; e < into_[node + 1]; ++e) {
        const Reached& before = reached[edges_[e][0]];
        for (std::uint32_t c = 0; c < kAtOnce; ++c) reached[node][c] = std::max(reached[node][c], before[c]);
      }
      if (chain_[node] >= first_chain && chain_[node] < first_chain + kAtOnce)
        reached[node][chain_[node] - first_chain] = node + 1;
    }
    return reached;
  }

  std::vector<std::array<std::uint32_t, 2>> edges_;  // by target
  std::vector<std::uint32_t> into_;                  // per node: where its edges begin
  std::vector<std::uint32_t> chain_;
  std::uint32_t chains_ = 0;
};

class Checker {
 public:
  Checker(const Analysis& step, const ScheduleOrder& schedule, const std::string& file)
      : step_(step),
        schedule_(schedule),
        file_(file),
        order_(step.file->trace, step.step.calls(), ProgramOrder::By::everything) {}

  CheckResult run() {
    CheckResult result;
    if (order_.streams() > 1) {
      const ProgramOrder by_events(step_.file->trace, step_.step.calls(), ProgramOrder::By::events);
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
  static void check_that_it_belongs(const Analysis& step, const ScheduleOrder& schedule, bool alone,
                                    const std::string& file) {
    const char* other = "the schedule was made from another trace, or with other rules";
    if (schedule.trace_digest != step.file->digest)
      throw InputError(file, 0, "trace_digest",
                       "is " + schedule.trace_digest + ", the trace's is " + step.file->digest +
                           ": the schedule was made from another trace");
    if (schedule.ops.size() != step.step.period) throw InputError(file, 0, "ops", other);
    // Where there are several kinds, the objects of the others are there as well.
    if (alone && schedule.objects.size() != step.objects.objects.size()) throw InputError(file, 0, "objects", other);
    for (std::size_t i = 0; alone && i < schedule.objects.size(); ++i) {
      const StepObject& object = step.objects.objects[i];
      if (schedule.objects[i].memory != object.memory) fail(file, "objects", i, "memory", other);
      if (schedule.objects[i].size != object.size) fail(file, "objects", i, "size", other);
      if (schedule.objects[i].step_local && !object.step_local) fail(file, "objects", i, "step_local", other);
    }
    auto calls = step.step.calls();
    for (std::size_t op = 0; op < calls.size(); ++op) {
      if (schedule.ops[op].kind != step.file->trace.calls[calls[op]].kind) fail(file, "ops", op, "kind", other);
      if (schedule.ops[op].submit == Submit::plan && step.accesses.ops[op].role != OpRole::none)
        fail(file, "ops", op, "submit", "is plan, but the op allocates or frees nothing of the step's own");
      if (schedule.ops[op].submit != Submit::order) continue;
      const OwnRecord own = own_record(step.file->trace, step.step, static_cast<std::uint32_t>(op));
      if (!own.by_step || own.op != schedule.ops[op].record)
        fail(file, "ops", op, "record", "is not what the program recorded the event by");
    }
  }

 private:
  [[noreturn]] static void fail(const std::string& file, const char* list, std::size_t i, const char* field,
                                const std::string& message) {
    throw InputError(file, 0, list + ("[" + std::to_string(i)) + "]." + field, message);
  }

  // The ops of each segment. All of a segment is submitted before what is behind it, and after what is before it.
  std::vector<std::vector<std::uint32_t>> segments() const {
    std::vector<std::vector<std::uint32_t>> members(schedule_.edges.size());
    std::uint32_t next = 0, open = kNone;  // the segment that begins next; the one that may go on
    for (std::uint32_t op = 0; op < schedule_.ops.size(); ++op) {
      if (schedule_.ops[op].submit == Submit::plan || schedule_.ops[op].submit == Submit::order) continue;
      std::uint32_t segment = schedule_.ops[op].segment;
      if (segment != kNone && segment != open && segment != next)
        fail(file_, "ops", op, "segment", "has ended before, or stands before another that has not begun");
      if (segment != kNone && segment == next) ++next;
      open = segment;
      if (segment != kNone) members[segment].push_back(op);
    }
    return members;
  }

  // A step may go to the driver call by call. Then the program's own order must keep objects apart that the memory plan
  // gives the same bytes.
  void check_shared_memory(const ProgramOrder& by_events, CheckResult& result) const {
    Requirements requirements(step_.accesses, schedule_, order_);
    for (std::uint32_t op = 0; op < schedule_.ops.size(); ++op)
      if (schedule_.ops[op].submit == Submit::graph || schedule_.ops[op].submit == Submit::direct)
        if (step_.accesses.ops[op].role != OpRole::wait) requirements.next(op);
    for (const Pair& pair : requirements.pairs) {
      if (pair.first_access == kNone) continue;
      const Access &a = step_.accesses.all[pair.first_access], &b = step_.accesses.all[pair.second_access];
      if (a.object == b.object || !schedule_.objects[a.object].step_local || by_events.ordered(pair.first, pair.second))
        continue;
      result.unordered =
          Unordered{pair.first, pair.second, why(pair) + "; the program's own streams leave them unordered"};
      return;
    }
  }

  // Such a step may hold ops that no schedule knows, for any object that the program has at the time. So the program
  // must allocate what is given some bytes behind the release of what had them.
  void check_lives(const ProgramOrder& by_events, CheckResult& result) const {
    struct Holder {
      std::uint64_t end;
      std::uint32_t object;
    };
    std::map<std::uint64_t, Holder> holders;          // by begin; without overlap
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
                      describe_object(step_, object) + "; the program's own streams leave their lives unordered"};
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
    Requirements requirements(step_.accesses, schedule_, order_);
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
      if (step_.accesses.ops[pair.second].role == OpRole::record)
        return second + " records an event, which must not come true before " + first + " is done";
      for (std::uint32_t op : {pair.first, pair.second})
        if (step_.accesses.ops[op].role == OpRole::barrier) return "op " + std::to_string(op) + " may touch anything";
      const bool first_talks = step_.accesses.ops[pair.first].communicates != Communicates::no;
      if (first_talks && step_.accesses.ops[pair.second].communicates != Communicates::no)
        return first + " and " + second + " may both be talking to another process or the host";
      if (step_.accesses.ops[pair.second].tells)
        return second + " writes memory that others reach, too, who may take it for a sign that " + first + " is done";
      if (step_.accesses.ops[pair.first].hears)
        return first + " may be waiting for another process or the host, and " + second + " is behind it";
      return (first_talks ? first : second) + " may be talking to another process or the host, about memory that " +
             (first_talks ? second : first) + " touches";
    }
    const Access& a = step_.accesses.all[pair.first_access];
    const Access& b = step_.accesses.all[pair.second_access];
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

  const Analysis& step_;
  const ScheduleOrder& schedule_;
  const std::string& file_;
  const ProgramOrder order_;
};

}  // namespace

CheckResult check_schedule(const Analysis& step, const std::string& text, const std::string& file) {
  return check_schedule(step, read_schedule_order(text, file), file);
}

namespace {

// The objects as the analysis numbers them: its own where the plan puts them.
void number_objects(const Analysis& step, const std::string& file, ScheduleOrder& schedule) {
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
bool looks_like(const ScheduleOrder& schedule, const Analysis& step) {
  const auto calls = step.step.calls();
  return std::equal(
      schedule.ops.begin(), schedule.ops.end(), calls.begin(), calls.end(),
      [&](const ScheduleOrder::Op& op, std::uint32_t call) { return op.kind == step.file->trace.calls[call].kind; });
}

}  // namespace

CheckResult check_schedule(const Analysis& step, const ScheduleOrder& schedule, const std::string& file) {
  CheckResult result;
  std::uint32_t next = 0;  // the first kind of the trace that may be the next one of the schedule: some may be left out
  for (std::size_t kind = 0; kind < schedule.kinds.size(); ++kind) {
    ScheduleOrder mine = order_of_kind(schedule, kind);
    const auto analysis = [&](std::uint32_t i) -> const Analysis& { return i == 0 ? step : step.others[i - 1]; };
    std::uint32_t found = next;
    while (found < step.others.size() && !looks_like(mine, analysis(found))) ++found;
    if (found > step.others.size()) throw InputError(file, 0, "ends", "the trace has fewer kinds of step");
    Checker::check_that_it_belongs(analysis(found), mine, schedule.kinds.size() == 1, file);
    number_objects(analysis(found), file, mine);
    CheckResult of_kind = Checker(analysis(found), mine, file).run();
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

}  // namespace nimble::analyzer
