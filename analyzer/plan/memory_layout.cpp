#include "analyzer/plan/memory_layout.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "nimble/internal/use_order.h"

namespace nimble::analyzer {
namespace {

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment; }

// Offsets for the step's objects, and how much they take together.
struct Packing {
  std::vector<std::uint64_t> offset;
  std::uint64_t bytes = 0;
};

// The parts of the arena that are free at the moment: as slots, each of which was given back in one piece or is what is
// left of that; and as runs of adjacent slots.
class Holes {
 public:
  void add(std::uint64_t begin, std::uint64_t end) {
    add_slot(begin, end);
    auto next = runs_.upper_bound(begin);
    if (next != runs_.begin()) {
      if (auto before = std::prev(next); before->second == begin) {
        begin = before->first;
        remove_run(before);
      }
    }
    if (next != runs_.end() && next->first == end) {
      end = next->second;
      remove_run(next);
    }
    add_run(begin, end);
  }

  // Also takes what is in no run because it is after the last one.
  void take(std::uint64_t begin, std::uint64_t end) {
    auto run = runs_.upper_bound(begin);
    if (run == runs_.begin() || std::prev(run)->second <= begin) return;
    run = std::prev(run);
    auto [run_begin, run_end] = *run;
    remove_run(run);
    if (run_begin < begin) add_run(run_begin, begin);
    if (end < run_end) add_run(end, run_end);
    for (auto slot = std::prev(slots_.upper_bound(begin)); slot != slots_.end() && slot->first < end;) {
      auto [slot_begin, it] = *slot;
      by_size_.erase({it.size, it.stamp, slot_begin});
      slot = slots_.erase(slot);
      if (slot_begin < begin) add_slot(slot_begin, begin);
      if (end < slot_begin + it.size) add_slot(end, slot_begin + it.size);
    }
  }

  // A place of so many bytes that `fits` accepts, in the smallest slot. Of each size the oldest are tried, because the
  // most has happened since, and the newest, which are in the path of what comes next. If no slot does, several
  // adjacent ones may.
  template <typename Fits>
  std::optional<std::uint64_t> find(std::uint64_t bytes, Fits fits) const {
    auto at = by_size_.lower_bound({bytes, 0, 0});
    for (int sizes = 0; sizes < kSizes && at != by_size_.end(); ++sizes) {
      auto next = by_size_.lower_bound({std::get<0>(*at) + 1, 0, 0});
      for (int tries = 0; tries < kTries && at != next; ++tries, ++at)
        if (fits(std::get<2>(*at))) return std::get<2>(*at);
      auto newest = next;
      for (int tries = 0; tries < kTries && at != newest; ++tries)
        if (fits(std::get<2>(*--newest))) return std::get<2>(*newest);
      at = next;
    }
    int tries = 0;
    for (auto run = runs_by_size_.lower_bound({bytes, 0}); run != runs_by_size_.end() && tries < kTries; ++run)
      for (auto slot = slots_.find(run->second); tries < kTries; ++tries, ++slot) {
        if (slot == slots_.end() || slot->first + bytes > run->second + run->first) break;
        if (slot->second.size < bytes && fits(slot->first)) return slot->first;
      }
    return std::nullopt;
  }

  // The begin of the slot that ends at `end`, or `end`.
  std::uint64_t last(std::uint64_t end) const {
    return !slots_.empty() && slots_.rbegin()->first + slots_.rbegin()->second.size == end ? slots_.rbegin()->first
                                                                                           : end;
  }

 private:
  static constexpr int kSizes = 4, kTries = 64;
  struct Slot {
    std::uint64_t size, stamp;  // the stamp tells which was freed last
  };

  void add_slot(std::uint64_t begin, std::uint64_t end) {
    slots_[begin] = {end - begin, ++stamp_};
    by_size_.insert({end - begin, stamp_, begin});
  }
  void add_run(std::uint64_t begin, std::uint64_t end) {
    runs_[begin] = end;
    runs_by_size_.insert({end - begin, begin});
  }
  void remove_run(std::map<std::uint64_t, std::uint64_t>::iterator at) {
    runs_by_size_.erase({at->second - at->first, at->first});
    runs_.erase(at);
  }

  std::map<std::uint64_t, Slot> slots_;
  std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> by_size_;  // slots: size, stamp, begin
  std::map<std::uint64_t, std::uint64_t> runs_;                                // begin and end
  std::set<std::pair<std::uint64_t, std::uint64_t>> runs_by_size_;             // size and begin
  std::uint64_t stamp_ = 0;
};

class Packer {
 public:
  Packer(const StepObjects& objects, const BothOrders& order, const PlacesOfObjects& places, std::uint64_t gap,
         std::vector<std::uint32_t> by_alloc)
      : objects_(objects.objects), order_(order), places_(places), gap_(gap), by_alloc_(std::move(by_alloc)) {}

  // As a pool would, following the program's allocations and releases.
  Packing walk() const {
    Packing result{std::vector<std::uint64_t>(objects_.size(), 0), 0};
    std::vector<std::uint32_t> by_free = by_alloc_;
    std::sort(by_free.begin(), by_free.end(),
              [&](std::uint32_t a, std::uint32_t b) { return objects_[a].free < objects_[b].free; });
    auto freed = by_free.begin();
    Holes holes;
    LastUsers last;
    for (std::uint32_t object : by_alloc_) {
      for (; objects_[*freed].free < objects_[object].alloc; ++freed)
        holes.add(result.offset[*freed], result.offset[*freed] + room(*freed));
      std::uint64_t bytes = room(object);
      std::uint64_t& at = result.offset[object];
      auto fits = [&](std::uint64_t begin) { return last.free_for(order_, object, begin, begin + bytes); };
      if (const auto place = places_.find(object); place != places_.end()) {
        at = place->second;
        if (at > result.bytes) holes.add(result.bytes, at);
      } else if (std::optional<std::uint64_t> found = holes.find(bytes, fits)) {
        at = *found;
      } else {
        at = holes.last(result.bytes);  // the arena grows after it
        if (!fits(at)) at = result.bytes;
      }
      holes.take(at, at + bytes);
      result.bytes = std::max(result.bytes, at + bytes);
      last.take(order_, object, at, at + bytes);
    }
    return result;
  }

  // For few objects: compares every pair.
  Packing greedy_by_size() const {
    std::vector<std::uint32_t> by_size = by_alloc_;
    std::stable_sort(by_size.begin(), by_size.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return objects_[a].size > objects_[b].size; });
    Packing result{std::vector<std::uint64_t>(objects_.size(), 0), 0};
    std::vector<std::pair<std::uint64_t, std::uint32_t>> placed;  // by offset
    placed.reserve(by_size.size());
    for (std::uint32_t object : by_size) {
      std::uint64_t bytes = room(object), taken = 0, best = 0, best_gap = ~std::uint64_t{0};
      for (const auto& [offset, other] : placed) {
        if (may_share(object, other)) continue;
        if (offset > taken && offset - taken >= bytes && offset - taken < best_gap) {
          best_gap = offset - taken;
          best = taken;
        }
        taken = std::max(taken, offset + room(other));
      }
      if (best_gap == ~std::uint64_t{0}) best = taken;
      result.offset[object] = best;
      result.bytes = std::max(result.bytes, best + bytes);
      std::pair entry{best, object};
      placed.insert(std::lower_bound(placed.begin(), placed.end(), entry), entry);
    }
    return result;
  }

 private:
  std::uint64_t room(std::uint32_t object) const {
    constexpr std::uint64_t kSmall = 16;  // gaps: what is smaller has none, so that gaps take little
    const std::uint64_t bytes = aligned(objects_[object].size);
    return bytes < kSmall * gap_ ? bytes : bytes + gap_;
  }

  bool may_share(std::uint32_t a, std::uint32_t b) const {
    if (objects_[a].alloc > objects_[b].alloc) std::swap(a, b);
    return objects_[a].free < objects_[b].alloc && order_.before(a, b);
  }

  const std::vector<StepObject>& objects_;
  const BothOrders& order_;
  const PlacesOfObjects& places_;
  const std::uint64_t gap_;
  std::vector<std::uint32_t> by_alloc_;  // the step-local ones
};

// The most that is live at one time; and the sum of all.
void add_sums(const StepObjects& objects, const std::vector<std::uint32_t>& by_alloc, MemoryPlan& plan) {
  std::vector<std::uint32_t> by_free = by_alloc;
  std::sort(by_free.begin(), by_free.end(),
            [&](std::uint32_t a, std::uint32_t b) { return objects.objects[a].free < objects.objects[b].free; });
  auto freed = by_free.begin();
  std::uint64_t live = 0;
  for (std::uint32_t object : by_alloc) {
    std::uint64_t size = objects.objects[object].size;
    if (size > kMaxArenaBytes - plan.unpacked_bytes) {
      plan.possible = false;
      return;
    }
    plan.unpacked_bytes += aligned(size);
    plan.possible = plan.unpacked_bytes <= kMaxArenaBytes;
    if (!plan.possible) return;
    for (; objects.objects[*freed].free < objects.objects[object].alloc; ++freed) live -= objects.objects[*freed].size;
    plan.program_peak_bytes = std::max(plan.program_peak_bytes, live += size);
  }
}

}  // namespace

StepUses uses_of_step(const ObjectTable& table, std::span<const std::uint32_t> calls, const StepObjects& objects,
                      const StepAccesses& accesses) {
  StepUses uses;
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    uses.first.push_back(static_cast<std::uint32_t>(uses.objects.size()));
    if (accesses.ops[op].role == OpRole::none) continue;
    auto begin = static_cast<std::ptrdiff_t>(uses.objects.size());
    for (const Access& access : accesses.of(op)) uses.objects.push_back(access.object);
    const auto& skipped = accesses.no_pointers[op];
    for (const PointerWord& pointer : table.pointers(calls[op]))
      if (!std::binary_search(skipped.begin(), skipped.end(), pointer.at))
        uses.objects.push_back(objects.find(pointer.object));
    for (const PointerWord& word : table.unsure(calls[op]))
      if (const std::uint32_t object = objects.find(word.object); object != kNone) uses.objects.push_back(object);
    std::sort(uses.objects.begin() + begin, uses.objects.end());
    uses.objects.erase(std::unique(uses.objects.begin() + begin, uses.objects.end()), uses.objects.end());
  }
  uses.first.push_back(static_cast<std::uint32_t>(uses.objects.size()));
  return uses;
}

MemoryPlan plan_memory(const StepObjects& objects, const StepUses& uses, const Segmentation& segments,
                       std::span<const SegmentPlan> plans, const StreamPaths& streams, const PlacesOfObjects& places,
                       std::uint64_t gap, std::size_t pairwise) {
  MemoryPlan plan;
  plan.offset.assign(objects.objects.size(), 0);
  std::vector<std::uint32_t> by_alloc;
  for (std::uint32_t i = 0; i < objects.objects.size(); ++i)
    if (objects.objects[i].step_local) by_alloc.push_back(i);
  std::sort(by_alloc.begin(), by_alloc.end(),
            [&](std::uint32_t a, std::uint32_t b) { return objects.objects[a].alloc < objects.objects[b].alloc; });
  if (by_alloc.empty()) return plan;
  add_sums(objects, by_alloc, plan);
  if (!plan.possible) return plan;

  std::vector<std::vector<SegmentPaths::Edge>> edges(plans.size());
  for (std::size_t s = 0; s < plans.size(); ++s)
    for (const auto& [from, to] : plans[s].enforced.edges())
      edges[s].push_back({segments.segments[s].ops[from], segments.segments[s].ops[to]});
  SegmentPaths graphs(segments.segment, std::move(edges));
  BothOrders order(graphs, streams, objects.objects.size());
  std::vector<std::uint32_t> bounded(uses.first.size() - 1, kNone);  // per op: what it allocates or releases
  for (std::uint32_t object : by_alloc)
    bounded[objects.objects[object].alloc] = bounded[objects.objects[object].free] = object;
  for (std::uint32_t op = 0; op + 1 < uses.first.size(); ++op) {
    if (bounded[op] != kNone) order.bounds(bounded[op], op);
    for (std::uint32_t i = uses.first[op]; i < uses.first[op + 1]; ++i)
      if (objects.objects[uses.objects[i]].step_local) order.use(uses.objects[i], op);
  }

  std::size_t count = by_alloc.size();
  Packer packer(objects, order, places, gap, std::move(by_alloc));
  Packing best = packer.walk();
  if (places.empty() && count <= pairwise)
    if (Packing other = packer.greedy_by_size(); other.bytes < best.bytes) best = std::move(other);
  plan.offset = std::move(best.offset);
  plan.arena_bytes = best.bytes;
  return plan;
}

}  // namespace nimble::analyzer
