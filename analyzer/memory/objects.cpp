#include "analyzer/memory/objects.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "nimble/internal/schedule.h"

namespace nimble::analyzer {
namespace {

// How far before an object a word may be that stands for it. An array in one dimension that is counted from one begins
// an element before its memory, and one with a halo as many as that has: 16 bytes at most, and few of them. It is less
// than what allocators align to (256 bytes and more): what begins in a block of theirs is not near the next one.

// The objects that are alive at one point of the trace, by address.
class LiveObjects {
 public:
  explicit LiveObjects(std::vector<Object>& objects) : objects_(objects) {}

  // A variable is there from when its image was loaded; the trace tells of it later, and may do so again.
  std::uint32_t global(const Object& object) {
    const auto known = by_base_.find(object.base);
    const bool same = known != by_base_.end() && objects_[known->second].memory == MemoryKind::global &&
                      objects_[known->second].size == object.size;
    return same ? known->second : allocate(object);
  }

  std::uint32_t allocate(const Object& object) {
    // What still lives in this range has lost its memory without a free that the trace saw.
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

  // Ends the object that begins at `base`; its id, or kNone where none does.
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

  // What goes with a context. What is another's does not.
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

  // The object that begins a little behind this address, or kNone. What is the begin of another one is no more than
  // that.
  std::uint32_t find_just_behind(std::uint64_t address) const {
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

}  // namespace

std::uint64_t word_at(const std::vector<std::uint8_t>& params, std::uint32_t at) {
  std::uint64_t word = 0;
  if (at < params.size()) std::memcpy(&word, params.data() + at, std::min(sizeof word, params.size() - at));
  return word;
}

ObjectTable::ObjectTable(const Trace& trace) {
  LiveObjects live(objects_);
  first_.reserve(trace.calls.size() + 1);
  auto add = [&](std::optional<PointerWord> pointer, std::uint32_t at) {
    if (!pointer) return;
    pointer->at = at;
    pointers_.push_back(*pointer);
  };
  std::vector<PointerWord> ends, unsure;  // of one kernel
  auto add_parameters = [&](std::uint32_t function, const std::vector<std::uint8_t>& params, std::uint32_t index,
                            std::uint32_t first) {
    if (params.empty()) return;
    ends.clear();
    unsure.clear();
    const std::size_t first_pointer = pointers_.size();
    for (const ParamLayout& param : *trace.functions[function].params)
      for (std::uint32_t at = param.offset; at + 8 <= param.offset + param.size; ++at) {
        const std::uint64_t word = word_at(params, at);
        if (word == 0) continue;
        if (at % 8 != 0) {
          // A class may be packed to any byte: the compiler puts its members together from smaller loads.
          if (const auto pointer = could_be_address(word) ? live.find(word, 0) : std::nullopt)
            unsure.push_back({first + at, pointer->object, 0});
          continue;
        }
        const auto pointer = live.find(word, 0);
        add(pointer, first + at);
        if (const std::uint32_t object = pointer ? kNone : live.find_end(word); object != kNone)
          ends.push_back({first + at, object, 0});
        if (const std::uint32_t object = could_be_address(word) ? live.find_just_behind(word) : kNone; object != kNone)
          unsure.push_back({first + at, object, 0});
        // A tag in the 16 bits that addresses have no use for.
        if (const std::uint64_t bare = word & kAddressBits; !pointer && bare != word && could_be_address(bare))
          if (const auto tagged = live.find(bare, 0)) unsure.push_back({first + at, tagged->object, 0});
      }
    for (const PointerWord& end : ends)
      if (std::none_of(pointers_.begin() + static_cast<std::ptrdiff_t>(first_pointer), pointers_.end(),
                       [&](const PointerWord& pointer) { return pointer.object == end.object; }))
        unsure.push_back(end);
    if (unsure.empty()) return;
    std::stable_sort(unsure.begin(), unsure.end(),
                     [](const PointerWord& a, const PointerWord& b) { return a.at < b.at; });
    std::vector<PointerWord>& all = unsure_[index];
    all.insert(all.end(), unsure.begin(), unsure.end());
  };
  auto add_globals = [&](std::uint32_t function, std::uint32_t index) {
    const auto& proof = trace.functions[function].proof;
    if (!proof) return;
    for (std::uint32_t i = 0; i < proof->globals.size(); ++i) {
      const ProvenGlobal& global = proof->globals[i];
      auto pointer = live.find(global.address, global.bytes);
      if (!pointer)
        pointer = PointerWord{
            0, live.global({global.address, global.bytes, MemoryKind::global, false, kNone, index, kNone}), 0};
      add(pointer, kAtGlobals + i);
    }
  };
  auto add_list = [&](const std::vector<TraceAccess>& list) {
    for (std::uint32_t i = 0; i < list.size(); ++i) add(live.find(list[i].address, list[i].bytes), i);
  };
  for (std::uint32_t index = 0; index < trace.calls.size(); ++index) {
    const TraceCall& call = trace.calls[index];
    first_.push_back(pointers_.size());
    if (call.result != 0) continue;
    switch (call.kind) {
      case CallKind::alloc:
      case CallKind::alloc_async: {
        const Object object{call.address, call.size, call.memory, call.own_pool, call.context.value_or(kNone),
                            index,        kNone};
        add(PointerWord{0, call.memory == MemoryKind::global ? live.global(object) : live.allocate(object), 0}, 0);
        break;
      }
      case CallKind::free:
      case CallKind::free_async:
        if (std::uint32_t id = live.end_at(call.address, index); id != kNone) add(PointerWord{0, id, 0}, 0);
        if (call.size > 0) live.end_range(call.address, call.size, index);
        break;
      case CallKind::context_end:
        live.end_context(call, index);
        break;
      case CallKind::copy:
        add(live.find(call.dst.address, extent_of(call.dst, call.width, call.height)), kAtDst);
        add(live.find(call.src.address, extent_of(call.src, call.width, call.height)), kAtSrc);
        if (!call.words) break;
        for (std::uint32_t i = 0; i < call.words->size(); ++i) add(live.find((*call.words)[i].value, 0), kAtWords + i);
        break;
      case CallKind::set:
        add(live.find(call.dst.address, extent_of(call.dst, call.width, call.height)), kAtDst);
        break;
      case CallKind::launch:
        add_parameters(call.function, call.params, index, 0);
        add_globals(call.function, index);
        break;
      case CallKind::opaque:
        if (call.accesses) add_list(*call.accesses);
        break;
      case CallKind::graph_launch: {
        if (call.graph == kNone) break;
        const TraceGraph& graph = trace.graphs[call.graph];
        add_list(graph.accesses);
        auto first = static_cast<std::uint32_t>(graph.accesses.size());
        for (const TraceGraph::Kernel& kernel : graph.kernels) {
          add_parameters(kernel.function, kernel.params, index, first);
          first += static_cast<std::uint32_t>(kernel.params.size());
        }
        break;
      }
      default:
        break;
    }
  }
  first_.push_back(pointers_.size());
}

}  // namespace nimble::analyzer
