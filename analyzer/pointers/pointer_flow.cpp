#include "analyzer/pointers/pointer_flow.h"

#include <algorithm>
#include <utility>

namespace nimble::analyzer {

HeldPointers::HeldPointers(const Trace& trace, const ObjectTable& table, Step step, const Rules& rules,
                           const Observations* seen)
    : trace_(trace),
      table_(table),
      step_(std::move(step)),
      calls_(step_.calls),
      flows_(trace, rules, seen),
      seen_(seen),
      now_is_{std::vector<std::uint8_t>(calls_.size(), 0), std::vector<std::vector<Followed>>(calls_.size())},
      compared_(calls_.size(), 0),
      by_sight_(calls_.size(), 0) {}

bool HeldPointers::born_in_step(std::uint32_t object) const {
  const Object& known = table_.objects()[object];
  return known.birth != kNone && known.birth >= calls_.front() && known.memory != MemoryKind::mapped;
}

bool HeldPointers::host_fills(MemoryKind memory) {
  return memory == MemoryKind::pinned || memory == MemoryKind::registered || memory == MemoryKind::managed ||
         memory == MemoryKind::external;
}

std::vector<std::uint32_t> HeldPointers::Held::placed() const {
  std::set<std::uint32_t> objects;
  for (const auto& [at, place] : places) objects.insert(place.object);
  return {objects.begin(), objects.end()};
}

void HeldPointers::Held::become_unknown(std::string_view reason) {
  *this = {};
  unknown = true;
  why = reason;
}

bool HeldPointers::overflows(const Held& held) {
  return held.places.size() > kMostPlaces || held.somewhere.size() > kMostBundles || held.fillers.size() > kMostFillers;
}

std::uint32_t HeldPointers::bundle(std::vector<std::uint32_t> objects) {
  std::sort(objects.begin(), objects.end());
  objects.erase(std::unique(objects.begin(), objects.end()), objects.end());
  const auto [at, is_new] = bundle_of_.emplace(std::move(objects), static_cast<std::uint32_t>(bundles_.size()));
  if (is_new) bundles_.push_back(at->first);
  return at->second;
}

bool HeldPointers::Held::carried() const {
  return old || std::any_of(places.begin(), places.end(), [](const auto& place) { return place.second.old; });
}

std::uint32_t HeldPointers::slot(std::uint32_t object) const {
  return table_.objects()[object].memory == MemoryKind::mapped ? mapped_ : object;
}

const PointerWord* HeldPointers::pointer_at(std::uint32_t call, std::uint32_t at) const {
  for (const PointerWord& pointer : table_.pointers(call)) {
    if (pointer.at == at) return &pointer;
    if (pointer.at > at) break;
  }
  return nullptr;
}

// Its pointers, and what may be some.
std::vector<PointerWord> HeldPointers::all_words(std::uint32_t call) const {
  const auto pointers = table_.pointers(call);
  std::vector<PointerWord> all(pointers.begin(), pointers.end());
  const auto unsure = table_.unsure(call);
  all.insert(all.end(), unsure.begin(), unsure.end());
  return all;
}

bool HeldPointers::covers(std::uint32_t call, const PointerWord& pointer) const {
  const TraceCall& made = trace_.calls[call];
  return made.height == 1 && pointer.offset == 0 && made.width == table_.objects()[pointer.object].size &&
         table_.objects()[pointer.object].memory != MemoryKind::mapped;
}

bool HeldPointers::payload_is_known(std::uint32_t call) const {
  const TraceCall& copy = trace_.calls[call];
  if (!copy.words || copy.height != 1) return false;
  const PointerWord* source = pointer_at(call, kAtSrc);
  if (source == nullptr || copy.synchronous) return true;  // the driver takes the host's own memory at once
  return !host_functions_ && device_writes_[source->object] == 0;
}

// ---- before the step, and between ----

void HeldPointers::taint(std::uint32_t object, std::string_view why, std::uint32_t call) {
  tainted_[slot(object)] = why;
  if (call < calls_.front()) remember(tainted_by_[slot(object)], call);
}

void HeldPointers::taint_all(std::uint32_t call, std::string_view why) {
  all_tainted_ = call + 1;
  all_why_ = why;
  if (call < calls_.front()) remember(all_tainted_by_, call);
}

void HeldPointers::remember(std::vector<std::uint32_t>& calls, std::uint32_t call) const {
  std::erase_if(calls, [&](std::uint32_t other) { return trace_.calls[other].stream == trace_.calls[call].stream; });
  calls.push_back(call);
}

void HeldPointers::clear(std::uint32_t object, std::uint32_t call) {
  if (!may_clear_) return;
  tainted_[object] = {};
  tainted_by_[object].clear();
  cleared_[object] = call + 1;
}

std::string_view HeldPointers::doubt(std::uint32_t object) {
  const Object& known = table_.objects()[object];
  if (host_fills(known.memory)) return kByHost;
  const std::uint32_t own = slot(object);
  if (const auto found = held_.find(own); found != held_.end() && found->second.unknown) return found->second.why;
  if (all_tainted_ > cleared_[own] && all_tainted_ > known.birth + 1) return all_why_;
  return tainted_[own];
}

void HeldPointers::copy_outside(std::uint32_t call) {
  const PointerWord* to = pointer_at(call, kAtDst);
  const PointerWord* from = pointer_at(call, kAtSrc);
  if (to == nullptr) return;
  const bool from_host = from == nullptr || host_fills(table_.objects()[from->object].memory);
  std::string_view why;
  if (from_host) {
    const auto pointers = table_.pointers(call);
    if (!payload_is_known(call))
      why = kUnlooked;
    else if (!pointers.empty() && pointers.back().at >= kAtWords)
      why = kBefore;
  } else if (!doubt(from->object).empty() || (held_.contains(slot(from->object)) && !held(from->object).empty())) {
    why = kBefore;
  }
  if (!why.empty())
    taint(to->object, why, call);
  else if (covers(call, *to))
    clear(to->object, call);
}

void HeldPointers::kernel_outside(std::uint32_t call) {
  const TraceCall& launch = trace_.calls[call];
  const TraceFunction& function = trace_.functions[launch.function];
  const std::vector<PointerWord> pointers = all_words(call);
  if (!function.params || (launch.params.empty() && !function.params->empty())) return taint_all(call, kByKernel);
  bool moves = flows_.leaks(launch.function) && !pointers.empty();
  std::set<std::uint32_t> stored;
  for (const PointerWord& pointer : pointers) {
    const PointerFlow flow = flows_.of(call, pointer.at);
    if (flow.is_stored) stored.insert(slot(pointer.object));
    const bool holds =
        !doubt(pointer.object).empty() || (held_.contains(slot(pointer.object)) && !held(pointer.object).empty());
    moves |= flow.from && holds;
  }
  for (const PointerWord& pointer : pointers) {
    const PointerFlow flow = flows_.of(call, pointer.at);
    // What leads back to where it lies leads nowhere else.
    const bool keeps = flow.keeps && !(stored.empty() || (stored.size() == 1 && stored.contains(slot(pointer.object))));
    if (keeps || ((flow.to || flow.keeps) && moves)) taint(pointer.object, kByKernel, call);
  }
  look(call);
}

// Of the step's own launches it says nothing: in another repeat something else may lie there. Nor of what others were
// still to write when it was looked.
void HeldPointers::look(std::uint32_t call) {
  if (seen_ == nullptr || call >= calls_.front()) return;
  const auto over = [&](std::uint32_t other) { return is_over(other, call); };
  if (!std::ranges::all_of(all_tainted_by_, over)) return;
  for (const PointerWord& pointer : table_.pointers(call))
    if (table_.objects()[pointer.object].memory != MemoryKind::mapped && seen_->was_plain(call, pointer.object) &&
        std::ranges::all_of(tainted_by_[pointer.object], over))
      clear(pointer.object, call);
}

bool HeldPointers::is_over(std::uint32_t call, std::uint32_t before) const {
  if (trace_.calls[call].symbol == kNotRecorded) {
    const auto waited = waited_.find(trace_.streams[trace_.calls[before].stream].context);
    return waited != waited_.end() && waited->second <= trace_.calls[before].host_begin_us;
  }
  if (trace_.calls[call].stream == trace_.calls[before].stream) return true;
  return order_ && place_[call] != kNone && place_[before] != kNone && order_->ordered(place_[call], place_[before]);
}

void HeldPointers::order_what_was_before() {
  std::vector<std::uint32_t> ops;
  std::set<std::uint32_t> streams;
  place_.assign(calls_.front(), kNone);
  for (std::uint32_t index = 0; index < calls_.front(); ++index) {
    const TraceCall& call = trace_.calls[index];
    if (!is_op(call.kind) || call.stream == kNone || call.result != 0) continue;
    place_[index] = static_cast<std::uint32_t>(ops.size());
    ops.push_back(index);
    streams.insert(call.stream);
  }
  if (streams.size() > 1 && streams.size() <= kMostStreams) order_.emplace(trace_, ops);
}

void HeldPointers::kernel_not_compared(std::uint32_t call) {
  const PointerFlow flow = flows_.any(call);
  const bool moves = flows_.leaks(trace_.calls[call].function) || (flow.from && any_pointers());
  if ((flow.keeps && flow.is_stored) || ((flow.keeps || flow.to) && moves)) taint_all(call, kByKernel);
}

bool HeldPointers::any_pointers() const {
  return reads_host_ || all_tainted_ != 0 ||
         std::ranges::any_of(tainted_, [](std::string_view why) { return !why.empty(); }) ||
         std::ranges::any_of(held_, [](const auto& held) { return !held.second.empty(); });
}

void HeldPointers::outside(std::uint32_t index) {
  const TraceCall& call = trace_.calls[index];
  if (call.result != 0) return;
  switch (call.kind) {
    case CallKind::context_synchronize:
      if (call.context) waited_.emplace(*call.context, call.host_begin_us + call.host_duration_us);
      return;
    case CallKind::copy:
      return copy_outside(index);
    case CallKind::set:
      if (const PointerWord* to = pointer_at(index, kAtDst); to != nullptr && covers(index, *to))
        clear(to->object, index);
      return;
    case CallKind::launch:
      return kernel_outside(index);
    case CallKind::graph_launch:
      if (call.graph == kNone || !trace_.graphs[call.graph].known) return taint_all(index, kByOther);
      for (const PointerWord& pointer : all_words(index)) {
        const auto& list = trace_.graphs[call.graph].accesses;
        if (pointer.at >= list.size() || list[pointer.at].writes) taint(pointer.object, kByOther, index);
      }
      return;
    case CallKind::opaque:
      if (call.symbol == kNotRecorded) waited_.clear();
      if (!call.accesses) return taint_all(index, kByOther);
      for (const PointerWord& pointer : table_.pointers(index))
        if ((*call.accesses)[pointer.at].writes) taint(pointer.object, kByOther, index);
      return;
    default:
      return;
  }
}

void HeldPointers::before_the_step() {
  const auto& objects = table_.objects();
  for (std::uint32_t i = 0; i < objects.size() && mapped_ == kNone; ++i)
    if (objects[i].memory == MemoryKind::mapped) mapped_ = i;
  tainted_.resize(objects.size());
  tainted_by_.resize(objects.size());
  device_writes_.assign(objects.size(), 0);
  cleared_.assign(objects.size(), 0);
  for (std::uint32_t index = 0; index < trace_.calls.size(); ++index) {
    const TraceCall& call = trace_.calls[index];
    if (call.kind == CallKind::host_function) host_functions_ = true;
    if (!is_op(call.kind)) continue;
    const bool copies = call.kind == CallKind::copy || call.kind == CallKind::set;
    for (const PointerWord& pointer : all_words(index))
      if (!copies || pointer.at == kAtDst) device_writes_[pointer.object] = 1;
  }
  for (const std::uint32_t index : calls_)
    if (trace_.calls[index].kind == CallKind::launch)
      for (const PointerWord& pointer : all_words(index)) reads_host_ |= host_fills(objects[pointer.object].memory);
  if (seen_ != nullptr && seen_->any()) order_what_was_before();
  for (std::uint32_t index = 0; index < calls_.front(); ++index) {
    if (index < step_.repeats.size() && step_.repeats[index] != 0) continue;
    // A node of a graph has not run: what it would overwrite may still be there.
    may_clear_ = !is_node_of_a_graph(trace_.calls[index]);
    outside(index);
  }
  // Nor need a graph have run before, and who launches it may fill memory anew each time.
  may_clear_ = std::ranges::none_of(calls_, [&](std::uint32_t call) { return is_node_of_a_graph(trace_.calls[call]); });
  repeat_before();
  may_clear_ = true;
}

// Goes through the step as if it were the one before, until it leaves behind what it found.
void HeldPointers::repeat_before() {
  Outcome all_known{std::vector<std::uint8_t>(calls_.size(), 1), std::vector<std::vector<Followed>>(calls_.size())};
  outcome_ = step_.before.known.empty() ? &all_known : &step_.before;
  constexpr int kMostRounds = 4;
  for (int round = 0;; ++round) {
    const std::map<std::uint32_t, Held> found = held_;
    for (std::uint32_t op = 0; op < calls_.size(); ++op) inside(op);
    for (auto at = held_.begin(); at != held_.end();) {
      Held& left = at->second;
      left.filled.clear();
      std::erase_if(left.places, [&](const auto& place) { return born_in_step(place.second.object); });
      for (auto& [offset, place] : left.places) place.old = true;
      std::set<std::uint32_t> lasting;
      for (const std::uint32_t id : left.somewhere) {
        std::vector<std::uint32_t> objects = bundles_[id];
        std::erase_if(objects, [&](std::uint32_t object) { return born_in_step(object); });
        if (!objects.empty()) lasting.insert(bundle(std::move(objects)));
      }
      left.somewhere = std::move(lasting);
      left.old = !left.somewhere.empty();
      at = born_in_step(at->first) || (left.empty() && left.fillers.empty()) ? held_.erase(at) : std::next(at);
    }
    // From here on only what is there when the step begins counts, and not when it came there.
    const auto& objects = table_.objects();
    for (std::uint32_t i = 0; i < objects.size(); ++i) {
      if (all_tainted_ > cleared_[i] && all_tainted_ > objects[i].birth + 1) taint(i, all_why_);
      if (born_in_step(i)) tainted_[i] = {};
    }
    all_tainted_ = 0;
    std::fill(cleared_.begin(), cleared_.end(), 0);
    if (held_ == found) break;
    if (round < kMostRounds) continue;
    for (const auto& [object, held] : held_) taint(object, kByKernel);
    held_.clear();
    break;
  }
  outcome_ = &now_is_;
}

void HeldPointers::catch_up() {
  if (!started_) before_the_step();
  started_ = true;
  for (; done_ < now_; ++done_) inside(done_);
}

// ---- questions ----

bool HeldPointers::visit(std::uint32_t object, std::string& why) {
  catch_up();
  visited_.insert(slot(object));
  if (const std::string_view unclear = doubt(object); !unclear.empty()) {
    why = unclear;
    return false;
  }
  const auto found = held_.find(slot(object));
  if (found == held_.end()) return true;
  for (const std::uint32_t filler : found->second.fillers) compared_[filler] = 1;
  carries_ |= found->second.carried();
  return true;
}

bool HeldPointers::filled_by_step(std::uint32_t object, std::string& why) {
  const Object& known = table_.objects()[object];
  const auto& filled = held(object).filled;
  // What the step has allocated itself nobody has filled before.
  const bool all = filled.size() == 1 && filled.begin()->first == 0 && filled.begin()->second >= known.size;
  if (born_in_step(object) || (all && known.memory != MemoryKind::mapped && !held(object).carried())) return true;
  why = kNotFilled;
  return false;
}

bool HeldPointers::fresh(std::uint32_t object, std::string& why) {
  catch_up();
  if (doubt(object).empty() && !filled_by_step(object, why)) return false;
  return visit(object, why);
}

bool HeldPointers::plain(std::uint32_t object, std::string& why) {
  if (!fresh(object, why)) return false;
  const Held& there = held(object);
  if (there.places.empty() && there.somewhere.empty()) return true;
  why = kPointers;
  return false;
}

bool HeldPointers::table(std::uint32_t object, Pointee pointee, std::vector<std::uint32_t>& found, std::string& why) {
  if (!fresh(object, why)) return false;
  const Held& there = held(object);
  const std::vector<std::uint32_t> placed = there.placed();
  std::set<std::uint32_t> targets(placed.begin(), placed.end());
  for (const std::uint32_t id : there.somewhere) targets.insert(bundles_[id].begin(), bundles_[id].end());
  PointerFlow flow;
  flow.from = flow.to = pointee != Pointee::fractions;
  for (const std::uint32_t target : targets) {
    found.push_back(target);
    now_is_.followed[now_].push_back({target, flow});
  }
  return true;
}

bool HeldPointers::reachable(std::span<const std::uint32_t> from, std::vector<std::uint32_t>& found, std::string& why) {
  std::vector<std::uint32_t> open(from.begin(), from.end());
  std::set<std::uint32_t> seen(from.begin(), from.end()), unpacked;
  const std::size_t most = found.size() + kMostReached;
  const auto reach = [&](std::uint32_t target) {
    if (!seen.insert(target).second) return;
    open.push_back(target);
    found.push_back(target);
    now_is_.followed[now_].push_back({target, {true, true, true, true}});
  };
  while (!open.empty()) {
    const std::uint32_t next = open.back();
    open.pop_back();
    if (!visit(next, why)) return false;
    const auto known = held_.find(slot(next));
    if (known == held_.end()) continue;
    for (const auto& [at, place] : known->second.places) reach(place.object);
    for (const std::uint32_t id : known->second.somewhere)
      if (unpacked.insert(id).second)
        for (const std::uint32_t target : bundles_[id]) reach(target);
    if (found.size() <= most) continue;
    why = kTooMuch;
    return false;
  }
  return true;
}

}  // namespace nimble::analyzer
