#include "analyzer/access/leaving.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "analyzer/access/kernel_params.h"
#include "analyzer/addresses/evaluate.h"

namespace nimble::analyzer {
namespace {

// Whether it may be there when the op runs; of a graph's kernels it is not known when that is.
bool is_live(const OpQuestion& op, const Object& object) {
  if (op.in_graph()) return true;
  const bool is_born = object.birth == kNone || object.birth < op.index;
  return is_born && (object.death == kNone || object.death > op.index);
}

void add(std::uint32_t object, std::uint32_t at, const AddressGroup& group, std::vector<Access>& found) {
  Access access;
  access.object = object;
  access.whole = true;
  access.reads = true;  // what is written may be a part of it
  access.writes = group.writes;
  access.at = at;
  found.push_back(access);
}

// All objects but one with a byte from `first` to before `last`.
void add_between(const OpQuestion& op, std::uint64_t first, std::uint64_t last, const PointerWord& pointer,
                 const AddressGroup& group, std::vector<Access>& found) {
  const auto& objects = op.objects.objects();
  for (std::uint32_t i = 0; i < objects.size(); ++i) {
    const Object& object = objects[i];
    if (i == pointer.object || !is_live(op, object)) continue;
    if (object.base < last && first < object.base + object.size) add(i, pointer.at, group, found);
  }
}

// The numbers that an 8-byte word of the parameters may hold, by the sizes of the parameters in it.
std::vector<std::int64_t> numbers_in(const OpQuestion& op, std::uint32_t word) {
  std::vector<std::int64_t> numbers;
  const auto number = [&](std::uint32_t at, std::uint32_t bytes) {
    std::int64_t value = 0;
    if (at + bytes > op.call.params.size()) return;
    std::memcpy(&value, op.call.params.data() + at, bytes);
    const unsigned rest = 64 - 8 * bytes;
    numbers.push_back(static_cast<std::int64_t>(static_cast<std::uint64_t>(value) << rest) >> rest);
    if (bytes < 8 && numbers.back() < 0) numbers.push_back(value);  // without a sign
  };
  for (const ParamLayout& param : *op.trace.functions[op.call.function].params) {
    if (param.offset >= word + 8 || param.offset + param.size <= word) continue;
    if (param.size <= 8) {
      number(param.offset, param.size);
      continue;
    }
    number(word, 8);  // of a class: whatever may be in it
    number(word, 4);
    number(word + 4, 4);
  }
  return numbers;
}

// Where one of the numbers leads, in units of up to 16 bytes: to the object itself or to just before it.
void add_where_numbers_lead(const OpQuestion& op, std::uint64_t address, const PointerWord& pointer,
                            const AddressGroup& group, std::vector<Access>& found) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48;  // addresses have so many bits
  constexpr std::uint64_t kBefore = 64;
  for (const std::uint32_t word : group.numbers) {
    if (const PointerWord* const other = pointer_at(op, word)) {
      if (other->object != pointer.object) add(other->object, pointer.at, group, found);
      continue;
    }
    for (const std::int64_t number : numbers_in(op, word)) {
      if (number == 0 || number > kMost || number < -kMost) continue;
      for (std::int64_t unit = 1; unit <= 16; unit *= 2)
        for (const std::int64_t by : {number * unit, -number * unit}) {
          const std::uint64_t there = address + static_cast<std::uint64_t>(by);
          add_between(op, there, there + kBefore, pointer, group, found);
        }
    }
  }
}

}  // namespace

void add_left_objects(const OpQuestion& op, const AddressExtents& extents, std::vector<Access>& found) {
  std::vector<std::uint32_t> pointers;
  for (const PointerWord& pointer : op.pointers)
    if (pointer.at < kAtGlobals) pointers.push_back(pointer.at);
  const LaunchValues launch{op.call.params, pointers, op.call.grid, op.call.block};
  for (const AddressGroup& group : extents.groups) {
    for (const std::uint32_t at : group.at) {
      const PointerWord* const pointer = pointer_at(op, at);
      if (pointer == nullptr) continue;
      const Object& object = op.objects.objects()[pointer->object];
      const std::uint64_t address = object.base + pointer->offset;
      const auto reached = group.complete ? reach(extents, group, at, launch) : std::nullopt;
      if (!reached) {
        add_where_numbers_lead(op, address, *pointer, group, found);
        continue;
      }
      const auto before = static_cast<std::int64_t>(pointer->offset);
      const std::int64_t after = static_cast<std::int64_t>(object.size) - before;
      for (const Reach& each : *reached) {
        if (each.first < -before)
          add_between(op, address + static_cast<std::uint64_t>(each.first), object.base, *pointer, group, found);
        if (each.last > after)
          add_between(op, object.base + object.size, address + static_cast<std::uint64_t>(each.last), *pointer, group,
                      found);
      }
    }
  }
}

bool leaves_objects(const OpQuestion& op, const AddressExtents& extents) {
  std::vector<Access> found;
  add_left_objects(op, extents, found);
  return !found.empty();
}

void pin_extents(const OpQuestion& op, const AddressExtents& extents, Pinned& pinned) {
  const auto pin = [&](std::uint32_t at, std::uint32_t bytes) {
    const auto meets = [&](const PointerWord& word) { return word.at < at + bytes && at < word.at + 8; };
    if (at + bytes > op.call.params.size() || std::ranges::any_of(op.pointers, meets)) return;
    const std::pair<std::uint32_t, std::uint32_t> piece{at, bytes};
    if (std::ranges::find(pinned.usual_params, piece) == pinned.usual_params.end())
      pinned.usual_params.push_back(piece);
  };
  for (const AddressGroup& group : extents.groups) {
    if (group.complete && !group.uses.empty()) {
      pinned.usual_shape = true;
      for (const std::uint32_t at : params_of(extents, group)) pin(at, 4);
    } else {
      for (const std::uint32_t word : group.numbers) pin(word, 8);
    }
  }
}

}  // namespace nimble::analyzer
