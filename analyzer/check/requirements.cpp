#include "analyzer/check/requirements.h"

#include <algorithm>
#include <iterator>

namespace nimble::analyzer {
namespace {

// Whether memory of this kind has only one name, so that two allocations of it never share a byte.
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

}  // namespace

Requirements::Requirements(const StepAccesses& accesses, const ScheduleOrder& schedule, const ProgramOrder& order)
    : accesses_(accesses),
      schedule_(schedule),
      order_(order),
      has_chance_(std::ranges::any_of(accesses.all, &Access::by_chance)),
      on_(order.streams()),
      waiting_(order.streams()),
      sign_(order.streams(), kNone),
      record_(order.streams(), kNone),
      heard_(order.streams(), kNone) {}

void Requirements::next(std::uint32_t op) {
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

void Requirements::add_sign(std::uint32_t op) {
  std::uint32_t& last = sign_[order_.stream(op)];
  if (last != kNone) pairs.push_back({last, op});
  for (std::uint32_t s = 0; s < order_.streams(); ++s) {
    auto from = std::lower_bound(on_[s].begin(), on_[s].end(), last == kNone ? 0 : order_.seen(last, s));
    for (; from != on_[s].end() && *from < order_.seen(op, s); ++from) pairs.push_back({*from, op});
  }
  last = op;
}

bool Requirements::touch_by_chance(std::uint32_t op, std::uint32_t index) {
  if (!has_chance_) return false;
  const Access& access = accesses_.all[index];
  std::vector<Use>& uses = uses_[access.object];
  for (const Use& use : uses) {
    const Access& other = accesses_.all[use.access];
    const bool is_by_chance = access.by_chance || other.by_chance;
    if (is_by_chance && (access.writes || other.writes) && overlap(use.rect, access.rect) && order_.ordered(use.op, op))
      pairs.push_back({use.op, op, use.access, index});
  }
  uses.push_back({op, index, access.rect});
  return access.by_chance;
}

void Requirements::touch(std::uint32_t op, std::uint32_t index) {
  if (touch_by_chance(op, index)) return;
  const Access& access = accesses_.all[index];
  const ScheduleObject& object = schedule_.objects[access.object];
  Use use{op, index, access.rect};
  std::uint32_t space = kFirstOwn + access.object;
  if (object.step_local) {
    space = kArena;
    use.rect.begin += object.plan_offset;
  } else if (!has_one_name(object.memory)) {
    space = kSeveralNames;
    use.rect = {0, ~std::uint64_t{0}, 0, 1};
  }
  if (use.rect.empty()) return;
  split({space, use.rect.begin});
  split({space, use.rect.end()});
  for (std::uint64_t at = use.rect.begin; at < use.rect.end();) {
    auto piece = pieces_.lower_bound({space, at});
    if (piece == pieces_.end() || piece->first != Address{space, at}) {
      // A hole up to the next piece.
      std::uint64_t end = use.rect.end();
      if (piece != pieces_.end() && piece->first.first == space) end = std::min(end, piece->first.second);
      piece = pieces_.emplace_hint(piece, Address{space, at}, Piece{end, {}, {}});
    }
    add(piece->second, use, access.writes);
    at = piece->second.end;
  }
}

void Requirements::make_room(std::uint32_t op) {
  const OpAccesses& known = accesses_.ops[op];
  if (!known.blocks_wait && known.communicates == Communicates::no) return;
  const std::uint32_t own = order_.stream(op);
  for (std::uint32_t s = 0; s < order_.streams(); ++s) {
    const auto& others = waiting_[s];
    const auto beyond = s == own ? others.end() : std::lower_bound(others.begin(), others.end(), order_.seen(op, s));
    if (beyond != others.begin()) pairs.push_back({*std::prev(beyond), op});
  }
  waiting_[own].push_back(op);
}

void Requirements::hear(std::uint32_t op) {
  make_room(op);
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

void Requirements::split(Address at) {
  auto next = pieces_.upper_bound(at);
  if (next == pieces_.begin()) return;
  auto piece = std::prev(next);
  if (piece->first.first != at.first || piece->first.second == at.second || piece->second.end <= at.second) return;
  Piece rest = piece->second;
  piece->second.end = at.second;
  pieces_.emplace_hint(next, at, std::move(rest));
}

void Requirements::add(Piece& piece, const Use& use, bool writes) {
  auto meet = [&](const std::vector<Use>& earlier) {
    for (const Use& other : earlier)
      if (other.op != use.op && overlap(other.rect, use.rect))
        pairs.push_back({other.op, use.op, other.access, use.access});
  };
  // Columns of a rectangle cover neither the piece nor each other; a range covers all of the piece.
  auto covered = [&](const Use& other) { return use.rect.is_range() || other.rect == use.rect; };
  meet(piece.writes);
  if (writes) {
    meet(piece.reads);
    piece.writes.erase(std::remove_if(piece.writes.begin(), piece.writes.end(), covered), piece.writes.end());
    piece.reads.erase(std::remove_if(piece.reads.begin(), piece.reads.end(), covered), piece.reads.end());
  }
  std::vector<Use>& list = writes ? piece.writes : piece.reads;
  if (list.empty() || list.back().op != use.op || list.back().rect != use.rect) list.push_back(use);
}

}  // namespace nimble::analyzer
