#include "analyzer/memory/objects.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nimble/internal/schedule.h"

namespace nimble::analyzer {
namespace {

// The objects that are alive at one point of the trace, by address.
class LiveObjects {
 public:
  explicit LiveObjects(std::vector<Object>& objects) : objects_(objects) {}

  // A variable exists from when its image was loaded; the trace mentions it later, and may do so again.
  std::uint32_t global(const Object& object) {
    const auto known = by_base_.find(object.base);
    const bool same = known != by_base_.end() && objects_[known->second].memory == MemoryKind::global &&
                      objects_[known->second].size == object.size;
    return same ? known->second : allocate(object);
  }

  std::uint32_t allocate(const Object& object) {
    // What is still alive in this range has lost its memory without a free that the trace saw.
    auto next = by_base_.lower_bound(object.base);
    if (next != by_base_.begin()) {
      auto previous = std::prev(next);
      if (objects_[previous->second].base + objects_[previous->second].size > object.base) end(previous, object.birth);
    }
    for (next = by_base_.lower_bound(object.base); next != by_base_.end() && next->first - object.base < object.size;
         next = by_base_.lower_bound(object.base))
      end(next, object.birth);
    end_at(object.base, object.birth);
    auto id = static_cast<std::uint32_t>(objects_.size());
    objects_.push_back(object);
    by_base_[object.base] = id;
    return id;
  }

  // Ends the object that begins at `base`; its id, or kNone if there is none.
  std::uint32_t end_at(std::uint64_t base, std::uint32_t call) {
    auto found = by_base_.find(base);
    if (found == by_base_.end()) return kNone;
    std::uint32_t id = found->second;
    end(found, call);
    return id;
  }

  void end_range(std::uint64_t base, std::uint64_t size, std::uint32_t call) {
    for (auto at = by_base_.lower_bound(base); at != by_base_.end() && at->first - base < size;
         at = by_base_.lower_bound(base))
      end(at, call);
  }

  // Ends what belongs to a context, and nothing of other contexts.
  void end_context(const TraceCall& call, std::uint32_t index) {
    for (auto at = by_base_.begin(); at != by_base_.end();) {
      auto next = std::next(at);
      const Object& object = objects_[at->second];
      bool stays = call.context &&
                   (outlives_contexts(object.memory) || (object.context != kNone && object.context != *call.context));
      if (!stays) end(at, index);
      at = next;
    }
  }

  std::optional<PointerWord> find(std::uint64_t address, std::uint64_t extent) const {
    auto above = by_base_.upper_bound(address);
    if (above == by_base_.begin()) return std::nullopt;
    std::uint32_t id = std::prev(above)->second;
    const Object& object = objects_[id];
    std::uint64_t offset = address - object.base;
    if (offset >= object.size || extent > object.size - offset) return std::nullopt;
    return PointerWord{0, id, offset};
  }

  // The object that ends at this address, or kNone.
  std::uint32_t find_end(std::uint64_t address) const {
    auto above = by_base_.lower_bound(address);
    if (above == by_base_.begin()) return kNone;
    const std::uint32_t id = std::prev(above)->second;
    return objects_[id].base + objects_[id].size == address ? id : kNone;
  }

  // The object that begins a little after this address, or kNone. The beginning of another object is only that.
  //
  // Such a word may stand for the object: a one-dimensional array that is counted from one begins an element before its
  // memory, and one with a halo as many as the halo has: 16 bytes at most, and few of them. kJustBefore is less than
  // what allocators align to (256 bytes and more), so a block's first bytes are not near the next one.
  std::uint32_t find_just_before(std::uint64_t address) const {
    const auto above = by_base_.upper_bound(address);
    if (above == by_base_.end() || above->first - address >= kJustBefore) return kNone;
    return above != by_base_.begin() && std::prev(above)->first == address ? kNone : above->second;
  }

 private:
  void end(std::map<std::uint64_t, std::uint32_t>::iterator at, std::uint32_t call) {
    objects_[at->second].death = call;
    by_base_.erase(at);
  }

  std::vector<Object>& objects_;
  std::map<std::uint64_t, std::uint32_t> by_base_;
};

// Finds the pointers of one call after another.
class PointerFinder {
 public:
  PointerFinder(const Trace& trace, std::vector<Object>& objects, std::vector<PointerWord>& pointers,
                std::unordered_map<std::uint32_t, std::vector<PointerWord>>& unsure)
      : trace_(trace), live_(objects), pointers_(pointers), unsure_(unsure) {}

  void look_at(std::uint32_t index) {
    const TraceCall& call = trace_.calls[index];
    switch (call.kind) {
      case CallKind::alloc:
      case CallKind::alloc_async: {
        const Object object{call.address, call.size, call.memory, call.own_pool, call.context.value_or(kNone),
                            index,        kNone};
        return add(PointerWord{0, call.memory == MemoryKind::global ? live_.global(object) : live_.allocate(object), 0},
                   0);
      }
      case CallKind::free:
      case CallKind::free_async:
        if (std::uint32_t id = live_.end_at(call.address, index); id != kNone) add(PointerWord{0, id, 0}, 0);
        if (call.size > 0) live_.end_range(call.address, call.size, index);
        return;
      case CallKind::context_end:
        return live_.end_context(call, index);
      case CallKind::copy:
        add(live_.find(call.dst.address, extent_of(call.dst, call.width, call.height)), kAtDst);
        add(live_.find(call.src.address, extent_of(call.src, call.width, call.height)), kAtSrc);
        if (!call.words) return;
        for (std::uint32_t i = 0; i < call.words->size(); ++i) add(live_.find((*call.words)[i].value, 0), kAtWords + i);
        return;
      case CallKind::set:
        return add(live_.find(call.dst.address, extent_of(call.dst, call.width, call.height)), kAtDst);
      case CallKind::launch:
        add_parameters(call.function, call.params, index, 0);
        return add_globals(call.function, index);
      case CallKind::opaque:
        if (call.accesses) add_list(*call.accesses);
        return;
      case CallKind::graph_launch:
        return add_graph(call.graph, index);
      default:
        return;
    }
  }

 private:
  void add(std::optional<PointerWord> pointer, std::uint32_t at) {
    if (!pointer) return;
    pointer->at = at;
    pointers_.push_back(*pointer);
  }

  void add_list(const std::vector<TraceAccess>& list) {
    for (std::uint32_t i = 0; i < list.size(); ++i) add(live_.find(list[i].address, list[i].bytes), i);
  }

  void add_graph(std::uint32_t id, std::uint32_t index) {
    if (id == kNone) return;
    const TraceGraph& graph = trace_.graphs[id];
    add_list(graph.accesses);
    auto first = static_cast<std::uint32_t>(graph.accesses.size());
    for (const TraceGraph::Kernel& kernel : graph.kernels) {
      add_parameters(kernel.function, kernel.params, index, first);
      first += static_cast<std::uint32_t>(kernel.params.size());
    }
  }

  // `first`: the PointerWord::at of the parameters' first byte.
  void add_parameters(std::uint32_t function, const std::vector<std::uint8_t>& params, std::uint32_t index,
                      std::uint32_t first) {
    if (params.empty()) return;
    ends_.clear();
    maybe_.clear();
    const auto first_pointer = static_cast<std::ptrdiff_t>(pointers_.size());
    for (const ParamLayout& param : *trace_.functions[function].params)
      for (std::uint32_t at = param.offset; at + 8 <= param.offset + param.size; ++at)
        if (const std::uint64_t word = word_at(params, at); word != 0)
          at % 8 == 0 ? add_word(word, first + at) : add_unaligned(word, first + at);
    for (const PointerWord& end : ends_)
      if (std::none_of(pointers_.begin() + first_pointer, pointers_.end(),
                       [&](const PointerWord& pointer) { return pointer.object == end.object; }))
        maybe_.push_back(end);
    if (maybe_.empty()) return;
    std::stable_sort(maybe_.begin(), maybe_.end(),
                     [](const PointerWord& a, const PointerWord& b) { return a.at < b.at; });
    std::vector<PointerWord>& all = unsure_[index];
    all.insert(all.end(), maybe_.begin(), maybe_.end());
  }

  void add_word(std::uint64_t word, std::uint32_t at) {
    const auto pointer = live_.find(word, 0);
    add(pointer, at);
    if (const std::uint32_t object = pointer ? kNone : live_.find_end(word); object != kNone)
      ends_.push_back({at, object, 0});
    if (const std::uint32_t object = could_be_address(word) ? live_.find_just_before(word) : kNone; object != kNone)
      maybe_.push_back({at, object, 0});
    // A tag in the 16 bits that addresses do not use.
    if (const std::uint64_t bare = word & kAddressBits; !pointer && bare != word && could_be_address(bare))
      if (const auto tagged = live_.find(bare, 0)) maybe_.push_back({at, tagged->object, 0});
  }

  // A class may be packed to any byte: the compiler puts its members together from smaller loads.
  void add_unaligned(std::uint64_t word, std::uint32_t at) {
    if (const auto pointer = could_be_address(word) ? live_.find(word, 0) : std::nullopt)
      maybe_.push_back({at, pointer->object, 0});
  }

  void add_globals(std::uint32_t function, std::uint32_t index) {
    const auto& proof = trace_.functions[function].proof;
    if (!proof) return;
    for (std::uint32_t i = 0; i < proof->globals.size(); ++i) {
      const ProvenGlobal& global = proof->globals[i];
      auto pointer = live_.find(global.address, global.bytes);
      if (!pointer)
        pointer = PointerWord{
            0, live_.global({global.address, global.bytes, MemoryKind::global, false, kNone, index, kNone}), 0};
      add(pointer, kAtGlobals + i);
    }
  }

  const Trace& trace_;
  LiveObjects live_;
  std::vector<PointerWord>& pointers_;
  std::unordered_map<std::uint32_t, std::vector<PointerWord>>& unsure_;
  std::vector<PointerWord> ends_, maybe_;  // of one kernel
};

}  // namespace

std::uint64_t word_at(const std::vector<std::uint8_t>& params, std::uint32_t at) {
  std::uint64_t word = 0;
  if (at < params.size()) std::memcpy(&word, params.data() + at, std::min(sizeof word, params.size() - at));
  return word;
}

ObjectTable::ObjectTable(const Trace& trace) {
  PointerFinder finder(trace, objects_, pointers_, unsure_);
  first_.reserve(trace.calls.size() + 1);
  for (std::uint32_t index = 0; index < trace.calls.size(); ++index) {
    first_.push_back(pointers_.size());
    if (trace.calls[index].result == 0) finder.look_at(index);
  }
  first_.push_back(pointers_.size());
  sort_by_base();
}

void ObjectTable::sort_by_base() {
  for (std::uint32_t i = 0; i < objects_.size(); ++i) places_.push_back({objects_[i].base, 0, i});
  std::ranges::sort(places_, {}, [](const Place& each) { return std::pair(each.base, each.object); });
  set_farthest_ends(0, places_.size());
}

std::uint64_t ObjectTable::set_farthest_ends(std::size_t begin, std::size_t end) {
  if (begin == end) return 0;
  const std::size_t middle = begin + (end - begin) / 2;
  Place& place = places_[middle];
  place.farthest_end = std::max(
      {place.base + objects_[place.object].size, set_farthest_ends(begin, middle), set_farthest_ends(middle + 1, end)});
  return place.farthest_end;
}

void ObjectTable::find_meeting(std::uint64_t first, std::uint64_t last, std::vector<std::uint32_t>& found) const {
  find_meeting_in(0, places_.size(), first, last, found);
}

void ObjectTable::find_meeting_in(std::size_t begin, std::size_t end, std::uint64_t first, std::uint64_t last,
                                  std::vector<std::uint32_t>& found) const {
  while (begin != end) {
    const std::size_t middle = begin + (end - begin) / 2;
    const Place& place = places_[middle];
    if (place.farthest_end <= first) return;
    if (place.base < last) {
      if (place.base + objects_[place.object].size > first) found.push_back(place.object);
      find_meeting_in(middle + 1, end, first, last, found);
    }
    end = middle;
  }
}

}  // namespace nimble::analyzer
