#include "analyzer/output/schedule_variants.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace nimble::analyzer {
namespace {

// Compares two schedules op by op, as long as there is a one-to-one mapping between their objects.
class Alike {
 public:
  Alike(const Schedule& a, const Schedule& b)
      : a_(a), b_(b), there_(a.objects.size(), kNone), here_(b.objects.size(), kNone) {}

  bool next(const ScheduleOp& a, const ScheduleOp& b) {
    new_.clear();
    if (same(a, b)) return true;
    for (const std::uint32_t object : new_) here_[std::exchange(there_[object], kNone)] = kNone;
    return false;
  }
  const std::vector<std::uint32_t>& objects() const { return there_; }

 private:
  bool object(std::uint32_t a, std::uint32_t b) {
    if (a == kNone || b == kNone) return a == b;
    if (there_[a] == b) return true;
    if (there_[a] != kNone || here_[b] != kNone) return false;
    const ScheduleObject &mine = a_.objects[a], &other = b_.objects[b];
    if (mine.memory != other.memory || mine.size != other.size || mine.step_local != other.step_local) return false;
    there_[a] = b;
    here_[b] = a;
    new_.push_back(a);
    return true;
  }
  bool pointer(const SchedulePointer& a, const SchedulePointer& b) {
    return object(a.object, b.object) && a.offset == b.offset;
  }
  bool function(const ScheduleFunction& a, const ScheduleFunction& b) {
    const auto same_layout = [](const ParamLayout& x, const ParamLayout& y) {
      return x.offset == y.offset && x.size == y.size;
    };
    return a.name == b.name && a.self_contained == b.self_contained && a.proven == b.proven && a.stored == b.stored &&
           a.doubts == b.doubts && a.code == b.code &&
           std::equal(a.params.begin(), a.params.end(), b.params.begin(), b.params.end(), same_layout) &&
           std::equal(a.globals.begin(), a.globals.end(), b.globals.begin(), b.globals.end(),
                      [&](const ScheduleGlobal& x, const ScheduleGlobal& y) {
                        return x.name == y.name && x.reads == y.reads && x.writes == y.writes &&
                               object(x.object, y.object);
                      });
  }
  bool payload(const ScheduleOp& a, const ScheduleOp& b) {
    if (a.payload.has_value() != b.payload.has_value()) return false;
    return !a.payload || std::equal(a.payload->begin(), a.payload->end(), b.payload->begin(), b.payload->end(),
                                    [&](const SchedulePayload& x, const SchedulePayload& y) {
                                      return x.at == y.at && pointer(x.pointer, y.pointer);
                                    });
  }
  // All fields that replay compares, by kind of op.
  bool same(const ScheduleOp& a, const ScheduleOp& b) {
    if (a.kind != b.kind || a.stream != b.stream || a.record != b.record) return false;
    if ((a.submit == Submit::plan) != (b.submit == Submit::plan)) return false;
    // Replay compares nothing more of direct ops.
    if (a.submit == Submit::direct && b.submit == Submit::direct && !a.payload && !b.payload) return true;
    if (a.dst_pitch != b.dst_pitch || a.src_pitch != b.src_pitch || a.width != b.width || a.height != b.height ||
        a.element != b.element || a.size != b.size)
      return false;
    if (!pointer(a.dst, b.dst) || !pointer(a.src, b.src) || !object(a.object, b.object) || !payload(a, b)) return false;
    if (a.kind != CallKind::launch) return true;
    if (a.grid != b.grid || a.block != b.block || a.shared_bytes != b.shared_bytes || a.barrier != b.barrier)
      return false;
    if (a.numbers != b.numbers || !function(a_.functions[a.function], b_.functions[b.function])) return false;
    const auto same_bytes = [](const ScheduleBytes& x, const ScheduleBytes& y) {
      return x.at == y.at && x.bytes == y.bytes;
    };
    const auto same_pointer = [&](const ScheduleParam& x, const ScheduleParam& y) {
      return x.at == y.at && pointer(x.pointer, y.pointer);
    };
    return std::equal(a.equal.begin(), a.equal.end(), b.equal.begin(), b.equal.end(), same_bytes) &&
           std::equal(a.pointers.begin(), a.pointers.end(), b.pointers.begin(), b.pointers.end(), same_pointer);
  }

  const Schedule &a_, &b_;
  std::vector<std::uint32_t> there_, here_;  // objects of b by those of a, and back
  std::vector<std::uint32_t> new_;           // objects of a that this op has added
};

// Whether the segments of the first ops are the same, and none continues after them.
bool same_segments(const Schedule& a, const Schedule& b, std::uint32_t ops) {
  const auto inside = [&](const Schedule& schedule) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> result;
    for (const ScheduleSegment& segment : schedule.segments)
      if (segment.first < ops) result.emplace_back(segment.first, segment.last);
    return result;
  };
  const auto mine = inside(a);
  if (mine != inside(b) || (!mine.empty() && mine.back().second >= ops)) return false;
  for (std::uint32_t op = 0; op < ops; ++op)
    if (a.ops[op].submit != b.ops[op].submit) return false;
  return true;
}

std::uint32_t mapped(std::uint32_t object, const std::vector<std::uint32_t>& objects) {
  return object == kNone ? kNone : objects[object];
}

// All objects that the op names, as numbers of the merged schedule.
void rename(ScheduleOp& op, const std::vector<std::uint32_t>& objects) {
  for (ScheduleParam& param : op.pointers) param.pointer.object = mapped(param.pointer.object, objects);
  for (SchedulePointer* pointer : {&op.dst, &op.src}) pointer->object = mapped(pointer->object, objects);
  if (op.payload)
    for (SchedulePayload& word : *op.payload) word.pointer.object = mapped(word.pointer.object, objects);
  if (op.writes)
    for (std::uint32_t& object : *op.writes) object = mapped(object, objects);
  for (std::uint32_t& object : op.believed_reads) object = mapped(object, objects);
  op.object = mapped(op.object, objects);
}

}  // namespace

SharedBeginning shared_beginning(const Schedule& a, const Schedule& b) {
  Alike alike(a, b);
  SharedBeginning result;
  const std::size_t most = std::min(a.ops.size(), b.ops.size());
  while (result.ops < most && alike.next(a.ops[result.ops], b.ops[result.ops])) ++result.ops;
  result.object = alike.objects();
  return result;
}

std::uint32_t KindMerger::function(const Schedule& schedule, std::uint32_t id,
                                   const std::vector<std::uint32_t>& object) {
  if (id == kNone) return kNone;
  ScheduleFunction wanted = schedule.functions[id];
  for (ScheduleGlobal& global : wanted.globals) global.object = mapped(global.object, object);
  const auto same_layout = [](const ParamLayout& x, const ParamLayout& y) {
    return x.offset == y.offset && x.size == y.size;
  };
  const auto same_global = [](const ScheduleGlobal& x, const ScheduleGlobal& y) {
    return x.name == y.name && x.object == y.object && x.reads == y.reads && x.writes == y.writes;
  };
  for (std::uint32_t i = 0; i < merged_.functions.size(); ++i) {
    const ScheduleFunction& known = merged_.functions[i];
    if (known.name == wanted.name && known.self_contained == wanted.self_contained && known.proven == wanted.proven &&
        known.stored == wanted.stored && known.doubts == wanted.doubts && known.code == wanted.code &&
        std::equal(known.params.begin(), known.params.end(), wanted.params.begin(), wanted.params.end(), same_layout) &&
        std::equal(known.globals.begin(), known.globals.end(), wanted.globals.begin(), wanted.globals.end(),
                   same_global))
      return i;
  }
  merged_.functions.push_back(std::move(wanted));
  return static_cast<std::uint32_t>(merged_.functions.size()) - 1;
}

// What the kind asks of an op that it shares.
void KindMerger::demand(const ScheduleOp& op, const std::vector<std::uint32_t>& object, ScheduleOp& of) {
  if (op.submit == Submit::direct && !op.payload) return;  // nothing else of it was compared
  ScheduleOp mine = op;
  rename(mine, object);
  of.fixed_launch = of.fixed_launch || mine.fixed_launch;
  for (std::size_t i = 0; i < of.pointers.size(); ++i)
    of.pointers[i].pointer.fixed = of.pointers[i].pointer.fixed || mine.pointers[i].pointer.fixed;
  of.dst.fixed = of.dst.fixed || mine.dst.fixed;
  of.src.fixed = of.src.fixed || mine.src.fixed;
  if (of.writes == mine.writes && of.believed_reads == mine.believed_reads) return;
  of.writes.reset();  // for an audit it may write anything
  of.believed_reads.clear();
}

void KindMerger::add_branch(const KindSchedule& kind, std::uint32_t from, std::uint32_t after, Known& known) {
  const auto count = static_cast<std::uint32_t>(kind.schedule.ops.size());
  merged_.branches.push_back({static_cast<std::uint32_t>(merged_.ops.size()), after});
  std::vector<std::uint32_t> segment_of(kind.schedule.segments.size(), kNone);
  auto next = static_cast<std::uint32_t>(merged_.segments.size());
  for (std::uint32_t s = 0; s < segment_of.size(); ++s)
    if (kind.schedule.segments[s].first >= from) segment_of[s] = next++;
  for (std::uint32_t op = from; op < count; ++op) {
    known.op[op] = static_cast<std::uint32_t>(merged_.ops.size());
    ScheduleOp mine = kind.schedule.ops[op];
    rename(mine, known.object);
    mine.function = function(kind.schedule, mine.function, known.object);
    mine.segment = mapped(mine.segment, segment_of);
    if (mine.record != kNone) mine.record = known.op[mine.record];
    merged_.ops.push_back(std::move(mine));
  }
  for (std::uint32_t s = 0; s < segment_of.size(); ++s) {
    if (segment_of[s] == kNone) continue;
    ScheduleSegment mine = kind.schedule.segments[s];
    mine.first = known.op[mine.first];
    mine.last = known.op[mine.last];
    for (auto& [one, other] : mine.edges) one = known.op[one], other = known.op[other];
    for (std::uint32_t& op : mine.order) op = known.op[op];
    merged_.segments.push_back(std::move(mine));
  }
}

std::string KindMerger::add(KindSchedule kind) {
  const Schedule& mine = kind.schedule;
  const auto count = static_cast<std::uint32_t>(mine.ops.size());
  const std::size_t objects = mine.objects.size();
  if (known_.empty()) begin(mine);
  // The one that it has the most in common with.
  SharedBeginning most;
  const Known* with = nullptr;
  for (const Known& other : known_) {
    SharedBeginning shared = shared_beginning(mine, other.kind.schedule);
    if (shared.ops <= most.ops) continue;
    most = std::move(shared);
    with = &other;
  }
  if (with && !same_segments(mine, with->kind.schedule, most.ops))
    return "what it shares with another kind of step cannot be submitted in the same way";
  // Of those that it shares everything with, it need not be the one that ends there.
  if (with && most.ops == count && std::count(merged_.ends.begin(), merged_.ends.end(), with->op[count - 1]) != 0)
    return "it is like another kind of step";

  Known known{std::move(kind), std::vector<std::uint32_t>(count, kNone), std::vector<std::uint32_t>(objects, kNone)};
  if (!add_objects(most, with, known)) return "memory that it shares with another kind of step is in another place";
  for (std::uint32_t op = 0; op < most.ops; ++op) {
    known.op[op] = with->op[op];
    demand(known.kind.schedule.ops[op], known.object, merged_.ops[known.op[op]]);
  }
  share_segments(known, most.ops);
  if (most.ops < count) add_branch(known.kind, most.ops, most.ops == 0 ? kNone : known.op[most.ops - 1], known);
  add_totals(known);
  known_.push_back(std::move(known));
  return {};
}

void KindMerger::begin(const Schedule& first) {
  merged_ = first;
  merged_.branches.clear();
  merged_.ops.clear();
  merged_.segments.clear();
  merged_.functions.clear();
  merged_.objects.clear();
  merged_.ends.clear();
}

bool KindMerger::add_objects(const SharedBeginning& most, const Known* with, Known& known) {
  const Schedule& schedule = known.kind.schedule;
  std::vector<bool> taken(merged_.objects.size(), false);
  for (std::size_t i = 0; with && i < most.object.size(); ++i) {
    if (most.object[i] == kNone) continue;
    known.object[i] = with->object[most.object[i]];
    taken[known.object[i]] = true;
    if (schedule.objects[i].plan_offset != merged_.objects[known.object[i]].plan_offset) return false;
  }
  std::multimap<std::uint32_t, std::uint32_t> free;  // by allocation: objects that nothing of this kind stands for yet
  for (std::uint32_t o = 0; o < taken.size(); ++o)
    if (!taken[o] && !merged_.objects[o].step_local) free.emplace(ids_[o], o);
  for (std::uint32_t i = 0; i < known.object.size(); ++i) {
    if (known.object[i] != kNone) continue;
    const ScheduleObject& object = schedule.objects[i];
    if (const auto found = free.find(known.kind.ids[i]); !object.step_local && found != free.end()) {
      known.object[i] = found->second;
      free.erase(found);
      continue;
    }
    known.object[i] = static_cast<std::uint32_t>(merged_.objects.size());
    merged_.objects.push_back(object);
    ids_.push_back(known.kind.ids[i]);
  }
  return true;
}

void KindMerger::share_segments(const Known& known, std::uint32_t ops) {
  for (const ScheduleSegment& segment : known.kind.schedule.segments) {
    if (segment.first >= ops) break;
    ScheduleSegment& shared = merged_.segments[merged_.ops[known.op[segment.order.front()]].segment];
    std::vector<std::array<std::uint32_t, 2>> before = shared.edges, more;
    std::sort(before.begin(), before.end());
    for (const auto& [one, other] : segment.edges)
      if (const std::array edge{known.op[one], known.op[other]};
          !std::binary_search(before.begin(), before.end(), edge))
        more.push_back(edge);
    shared.edges.insert(shared.edges.end(), more.begin(), more.end());
    // The program's order satisfies all edges.
    if (!more.empty()) std::sort(shared.order.begin(), shared.order.end());
  }
}

void KindMerger::add_totals(const Known& known) {
  const Schedule& schedule = known.kind.schedule;
  merged_.ends.push_back(known.op.back());
  merged_.arena_bytes = std::max(merged_.arena_bytes, schedule.arena_bytes);
  merged_.textures = merged_.textures || schedule.textures;
  if (known_.empty()) return;  // the first kind's are there already
  const ScheduleFreedom& freedom = schedule.freedom;
  merged_.freedom.exact += freedom.exact;
  merged_.freedom.proven += freedom.proven;
  merged_.freedom.declared += freedom.declared;
  merged_.freedom.observed += freedom.observed;
  merged_.freedom.estimated = merged_.freedom.estimated || freedom.estimated;
}

}  // namespace nimble::analyzer
