#include "analyzer/access/leaving.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "analyzer/access/kernel_params.h"
#include "analyzer/access/launch_of.h"

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
  access.by_chance = true;
  found.push_back(access);
}

// Addresses from `first` to before `last`.
struct Span {
  std::uint64_t first = 0, last = ~std::uint64_t{0};
};

// A number of the parameters, read with a sign, and without one where that differs.
void add_number(const OpQuestion& op, std::uint32_t at, std::uint32_t bytes, std::vector<std::int64_t>& numbers) {
  std::int64_t value = 0;
  if (bytes == 0 || bytes > 8 || at + bytes > op.call.params.size()) return;
  std::memcpy(&value, op.call.params.data() + at, bytes);
  const unsigned rest = 64 - 8 * bytes;
  numbers.push_back(static_cast<std::int64_t>(static_cast<std::uint64_t>(value) << rest) >> rest);
  if (bytes < 8 && numbers.back() < 0) numbers.push_back(value);
}

// Those that a 4-byte word of the parameters may be, or be a part of, by the sizes of the parameters.
void add_numbers_at(const OpQuestion& op, std::uint32_t word, std::vector<std::int64_t>& numbers) {
  for (const ParamLayout& param : *op.trace.functions[op.call.function].params) {
    if (param.offset >= word + 4 || param.offset + param.size <= word) continue;
    if (param.size <= 8) {
      add_number(op, param.offset, param.size, numbers);
      continue;
    }
    add_number(op, word, 4, numbers);  // of a class: whatever may be in it
    add_number(op, word & ~std::uint32_t{7}, 8, numbers);
  }
}

// What is added to a pointer, as numbers; other pointers as the distance to them.
std::vector<std::int64_t> numbers_of(const OpQuestion& op, KnownLaunch& launch, std::size_t of,
                                     const PointerWord& pointer) {
  const AddressGroup& group = launch.kernel().extents().groups[of];
  std::vector<std::int64_t> numbers;
  const auto address = [&](const PointerWord& word) { return op.objects.objects()[word.object].base + word.offset; };
  const auto add_pointer = [&](const PointerWord& other) {
    const bool is_alternative = std::ranges::find(group.at, other.at) != group.at.end();
    if (!is_alternative) numbers.push_back(static_cast<std::int64_t>(address(other) - address(pointer)));
  };
  if (!launch.kernel().is_told(of)) {
    for (const std::uint32_t word : group.numbers) {
      const PointerWord* const other = pointer_that_meets(op, word, 4);
      other != nullptr ? add_pointer(*other) : add_numbers_at(op, word, numbers);
    }
    return numbers;
  }
  for (const NumberAt& number : launch.numbers_added(of)) {
    const PointerWord* const other = pointer_that_meets(op, number.at, number.bytes);
    other != nullptr ? add_pointer(*other) : add_number(op, number.at, number.bytes, numbers);
  }
  return numbers;
}

// How well it is known where a group gets to.
enum class Bounds : std::uint8_t { tight, loose };

// The objects that one of the numbers leads to, in units of up to 16 bytes: into them with tight bounds, or to just
// before them; else to where they begin. Ascending.
std::vector<std::uint32_t> led_to(const OpQuestion& op, std::vector<std::int64_t> numbers, std::uint64_t address,
                                  Bounds bounds) {
  constexpr std::int64_t kMost = std::int64_t{1} << 48;  // addresses have so many bits
  constexpr std::uint64_t kBefore = 64;
  std::ranges::sort(numbers);
  numbers.erase(std::ranges::unique(numbers).begin(), numbers.end());
  std::vector<std::uint32_t> found;
  for (const std::int64_t number : numbers) {
    if (number == 0 || number > kMost || number < -kMost) continue;
    for (std::int64_t unit = 1; unit <= 16; unit *= 2) {
      for (const std::int64_t by : {number * unit, -number * unit}) {
        const std::uint64_t there = address + static_cast<std::uint64_t>(by);
        const std::size_t before = found.size();
        op.objects.find_meeting(there, there + std::min(kBefore, ~there), found);
        if (bounds == Bounds::tight) continue;
        const auto begins = [&](std::uint32_t i) { return op.objects.objects()[i].base >= there; };
        found.erase(std::partition(found.begin() + static_cast<std::ptrdiff_t>(before), found.end(), begins),
                    found.end());
      }
    }
  }
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

// Where the numbers lead with tight bounds; else not to what is just after the pointer's own: every size leads there.
void add_where_numbers_lead(const OpQuestion& op, std::vector<std::int64_t> numbers, std::span<const Span> reached,
                            Bounds bounds, const PointerWord& pointer, const AddressGroup& group,
                            std::vector<Access>& found) {
  constexpr std::uint64_t kNext = 512;
  const auto& objects = op.objects.objects();
  const Object& own = objects[pointer.object];
  for (const std::uint32_t i : led_to(op, std::move(numbers), own.base + pointer.offset, bounds)) {
    const Object& object = objects[i];
    const std::uint64_t end = object.base + object.size;
    const auto meets = [&](const Span& span) { return object.base < span.last && span.first < end; };
    // Adding leads from one kind of memory to another in no program.
    if (i == pointer.object || object.memory != own.memory) continue;
    if (!std::ranges::any_of(reached, meets) || !is_live(op, object)) continue;
    const bool is_next = object.base - (own.base + own.size) < kNext;
    if (bounds == Bounds::loose && is_next) continue;
    const auto is_known = [&](const Access& access) { return access.object == i && access.at == pointer.at; };
    if (std::ranges::none_of(found, is_known)) add(i, pointer.at, group, found);
  }
}

}  // namespace

void add_left_objects(const OpQuestion& op, const AddressExtents& extents, std::vector<Access>& found) {
  if (extents.groups.empty()) return;
  const LaunchOf launch(op, extents);
  for (std::size_t of = 0; of < extents.groups.size(); ++of) {
    const AddressGroup& group = extents.groups[of];
    if (group.numbers.empty()) continue;
    for (const std::uint32_t at : group.at) {
      const PointerWord* const pointer = pointer_at(op, at);
      if (pointer == nullptr) continue;
      const Object& object = op.objects.objects()[pointer->object];
      const std::uint64_t address = object.base + pointer->offset;
      std::vector<Span> spans;
      // PTX tells which numbers are added, and no more.
      Bounds bounds = extents.expressions.empty() ? Bounds::tight : Bounds::loose;
      if (const auto& reached = launch->reach(of, at)) {
        bounds = Bounds::tight;
        constexpr std::uint64_t kTight = 16;  // times the object
        for (const Reach& each : *reached) {
          const Span span{address + static_cast<std::uint64_t>(each.first),
                          address + static_cast<std::uint64_t>(each.last)};
          if (static_cast<std::uint64_t>(each.last - each.first) > kTight * object.size) bounds = Bounds::loose;
          if (span.first < object.base || span.last > object.base + object.size) spans.push_back(span);
        }
      } else {
        spans.emplace_back();
      }
      if (spans.empty()) continue;
      add_where_numbers_lead(op, numbers_of(op, *launch, of, *pointer), spans, bounds, *pointer, group, found);
    }
  }
}

namespace {

// The groups that this access of the proof stands for: its own; of an access that PTX told, all that have one of its
// words. By their places.
std::vector<std::size_t> groups_of(const KernelProof& proof, const ProvenAccess& access) {
  const std::vector<AddressGroup>& groups = proof.extents.groups;
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const AddressGroup& group = groups[i];
    const auto is_of = [&](std::uint32_t word) { return std::ranges::find(group.at, word) != group.at.end(); };
    if (proof.extents.of_accesses ? group.at == access.at : std::ranges::any_of(access.at, is_of)) found.push_back(i);
  }
  return found;
}

}  // namespace

bool touches_nothing(const OpQuestion& op, const KernelProof& proof, const ProvenAccess& access) {
  constexpr std::int64_t kNoMemory =
      0x10000;  // below this there is none; the host's, which kernels may reach, lies low
  const LaunchOf launch(op, proof.extents);
  const std::vector<std::size_t> groups = groups_of(proof, access);
  for (const std::size_t group : groups) {
    const auto& reached = launch->reach_without_pointer(group);
    if (!reached) return false;
    const bool is_nowhere = std::ranges::all_of(
        *reached, [&](const Reach& each) { return !each.indexed && each.first >= 0 && each.last <= kNoMemory; });
    if (!is_nowhere) return false;
  }
  return !groups.empty();
}

namespace {

// The launch as if a word of it were a pointer: then it is seen where that gets to. As it is where no answer for the
// group rests on the word.
KnownLaunch& as_if_pointer(const OpQuestion& op, const LaunchOf& as_it_is, std::size_t group, std::uint32_t word) {
  if (!as_it_is->rests_on(group, word)) return *as_it_is;
  std::vector<std::uint32_t> pointers = pointer_words(op);
  const auto place = std::ranges::lower_bound(pointers, word);
  if (place == pointers.end() || *place != word) pointers.insert(place, word);
  return as_it_is.kernel().launch(values_of(op, pointers));
}

}  // namespace

bool takes_others(const OpQuestion& op, const KernelProof& proof, const ProvenAccess& access, std::uint32_t word) {
  if (word_at(op.call.params, word) == 0 || !proof.extents.of_accesses) return false;
  const LaunchOf as_it_is(op, proof.extents);
  const std::vector<std::size_t> groups = groups_of(proof, access);
  for (const std::size_t group : groups) {
    if (as_it_is->seems_to_take(group, word)) return false;
    KnownLaunch& launch = as_if_pointer(op, as_it_is, group, word);
    const auto& reached = launch.reach(group, word);
    if ((!reached || !reached->empty()) && launch.may_take(group, word)) return false;
  }
  return !groups.empty();
}

bool stays_inside(const OpQuestion& op, const KernelProof& proof, const ProvenAccess& access, std::uint32_t word) {
  const PointerWord* const pointer = pointer_at(op, word);
  if (pointer == nullptr) return false;
  const Object& object = op.objects.objects()[pointer->object];
  const LaunchOf launch(op, proof.extents);
  const auto before = static_cast<std::int64_t>(pointer->offset);
  const auto after = static_cast<std::int64_t>(object.size - pointer->offset);
  const std::vector<std::size_t> groups = groups_of(proof, access);
  for (const std::size_t group : groups) {
    const auto& reached = launch->reach(group, word);
    const auto is_inside = [&](const Reach& each) {
      return !each.indexed && each.first >= -before && each.last <= after;
    };
    if (!reached || !std::ranges::all_of(*reached, is_inside)) return false;
  }
  return proof.extents.of_accesses && !groups.empty();
}

void pin_others(const OpQuestion& op, const KernelProof& proof, const ProvenAccess& access, std::uint32_t word,
                Pinned& pinned) {
  const LaunchOf as_it_is(op, proof.extents);
  for (const std::size_t group : groups_of(proof, access)) {
    for (KnownLaunch* const launch : {&*as_it_is, &as_if_pointer(op, as_it_is, group, word)}) {
      launch->reach(group, word);
      launch->may_take(group, word);
      const Sources sources = launch->sources(group);
      pinned.shape |= sources.shape;
      for (const std::uint32_t at : sources.params)
        if (at + 4 <= word || at >= word + 8) pin_number(op, at, 4, pinned.params);
    }
  }
}

bool leaves_objects(const OpQuestion& op, const AddressExtents& extents) {
  std::vector<Access> found;
  add_left_objects(op, extents, found);
  return !found.empty();
}

void pin_nothing(const OpQuestion& op, const KernelProof& proof, const ProvenAccess& access, Pinned& pinned) {
  for (const std::uint32_t word : access.at) pin_number(op, word, 8, pinned.params);
  const LaunchOf launch(op, proof.extents);
  for (const std::size_t group : groups_of(proof, access)) {
    launch->reach_without_pointer(group);
    const Sources sources = launch->sources(group);
    pinned.shape |= sources.shape;
    for (const std::uint32_t at : sources.params) pin_number(op, at, 4, pinned.params);
  }
}

void pin_extents(const OpQuestion& op, const AddressExtents& extents, Pinned& pinned) {
  if (extents.groups.empty()) return;
  const LaunchOf launch(op, extents);
  for (std::size_t of = 0; of < extents.groups.size(); ++of) {
    const AddressGroup& group = extents.groups[of];
    if (group.numbers.empty()) continue;
    for (const std::uint32_t word : group.numbers)
      if (!launch.kernel().is_told(of)) pin_number(op, word, 4, pinned.usual_params);
    for (const std::uint32_t at : group.at)
      if (pointer_at(op, at) != nullptr) launch->reach(of, at);
    const Sources sources = launch->sources(of);
    pinned.usual_shape |= sources.shape;
    for (const std::uint32_t at : sources.params) pin_number(op, at, 4, pinned.usual_params);
  }
}

}  // namespace nimble::analyzer
