#include "tests/sass/check/claims.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include "analyzer/addresses/evaluate.h"
#include "analyzer/kernel_code/ptx/compiler_names.h"

namespace nimble::code::oracle {
namespace {

using emulator::mixed;

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mixed(seed)) {}
  std::uint64_t next() { return state_ = mixed(state_); }
  std::uint32_t below(std::uint32_t most) { return static_cast<std::uint32_t>(next() >> 33) % most; }

 private:
  std::uint64_t state_;
};

std::uint32_t some_number(Random& random, bool small) {
  switch (small ? 7 : random.below(8)) {
    case 0:
      return 0;
    case 1:
      return 0u - random.below(4);
    case 2:
      return random.below(1000);
    case 3:
      return static_cast<std::uint32_t>(random.next() >> 32);
    default:
      return random.below(12);
  }
}

// Near where the sign or the carry changes.
std::uint32_t extreme_number(Random& random) {
  const std::uint32_t near = random.below(3) == 0 ? random.below(64) : 0;
  switch (random.below(6)) {
    case 0:
      return 0x7fffffffu - near;
    case 1:
      return 0x80000000u + near;
    case 2:
      return 0u - near;
    case 3:
      return (1u << random.below(32)) - 1;
    case 4:
      return 0u - (1u << random.below(32));
    default:
      return 1u << random.below(32);
  }
}

struct Object {
  bool is_variable = false, is_hidden = false;  // hidden: no parameter shows that it is there
  std::uint32_t word = 0;
  std::string_view variable;
};

class Run {
 public:
  Run(const emulator::Program& program, const Layout& layout, const Claims& claims, std::uint64_t seed,
      const Measure& measure, Tally& tally)
      : program_(program), claims_(claims), random_(seed), objects_(seed), measure_(measure), tally_(tally) {
    launch_.threads = random_.below(4) == 0 ? 1 : random_.below(3) == 0 ? 40 : 4 + random_.below(29);
    launch_.blocks = random_.below(3) == 0 ? 2 : 1;
    launch_.params.assign(program.param_bytes, 0);
    const bool is_extreme = layout.extreme && random_.below(2) == 0;
    for (std::uint32_t at = 0; at + 4 <= program.param_bytes; at += 4)
      put(at, is_extreme && random_.below(3) == 0 ? extreme_number(random_) : some_number(random_, measure.small), 4);
    for (std::uint32_t at = 0; at + 8 <= program.param_bytes; at += 8) {
      bool is_pointer = layout.known ? std::ranges::count(layout.pointers, at) != 0 : random_.below(4) != 0;
      if (is_pointer && layout.choices && random_.below(std::ranges::count(layout.arrays, at) != 0 ? 2 : 12) == 0) {
        is_pointer = false;
        put(at, 0, 8);
        continue;
      }
      // Numbers of 64 bits are small.
      // As strides, numbers that may be anything lead to other objects by chance.
      constexpr std::uint32_t kUpper[] = {0, 0, 0, 0xffffffffu, 0x7fffffffu, 0x80000000u, 5};
      if (!is_pointer && layout.extreme)
        put(at + 4, kUpper[random_.below(is_extreme ? 7 : 4)], 4);
      else if (!is_pointer && (!layout.known || random_.below(4) != 0))
        put(at + 4, 0, 4);
      if (is_pointer) put(at, add({false, false, at, {}}), 8);
    }
    if (layout.choices) hide(layout);
    for (const emulator::Variable& variable : program.variables)
      launch_.variables.push_back(add({true, false, 0, variable.name}));
    find_extents();
  }

  std::string run() {
    launch_.most_steps = measure_.most_steps;
    emulator::Memory memory(random_.next(), random_.below(3) != 0 || measure_.small);
    for (const auto& [word, value] : first_) memory.store(word, value);
    emulator::Machine machine(program_, launch_, memory, [&](const emulator::Access& access) { judge(access); });
    const std::string why = machine.run();
    ++tally_.runs;
    tally_.forced += machine.forced();
    if (!claims_.extents.doubts.empty()) ++(is_claimed_ ? tally_.excluded : tally_.doubtful);
    why.empty() ? ++tally_.ended : ++tally_.given_up[why];
    for (const auto& [word, is_taken] : taken_) tally_.left_alone += !is_taken;
    return wrong_;
  }

 private:
  void put(std::uint32_t at, std::uint64_t value, unsigned bytes) { std::memcpy(&launch_.params[at], &value, bytes); }

  // Numbers that choose are small; what arrays and halves of addresses lead to no other parameter shows.
  void hide(const Layout& layout) {
    for (std::uint32_t at = 0; at + 4 <= launch_.params.size(); at += 4) {
      const bool is_pointer = std::ranges::count(layout.pointers, at & ~7u) != 0;
      const bool is_half = std::ranges::count(layout.halves, at & ~7u) != 0;
      constexpr std::uint32_t kPieces = 0x01010101;
      if (!is_pointer && !is_half && random_.below(4) != 0)
        put(at, random_.below(3) == 0 ? kPieces * random_.below(4) : random_.below(4), 4);
    }
    for (const std::uint32_t at : layout.halves) put(at, add({false, true, 0, {}}) / 2, 8);
    constexpr std::uint64_t kEntries = 64;
    for (const std::uint32_t at : layout.arrays) {
      std::uint64_t array = 0;
      std::memcpy(&array, &launch_.params[at], sizeof array);
      const std::uint64_t to = add({false, true, 0, {}});
      for (std::uint64_t entry = 0; array != 0 && entry < kEntries; ++entry) {
        first_[array + 8 * entry] = static_cast<std::uint32_t>(to + 64 * entry);
        first_[array + 8 * entry + 4] = static_cast<std::uint32_t>((to + 64 * entry) >> 32);
      }
    }
  }

  std::uint64_t add(Object object) {
    what_.push_back(object);
    return objects_.add();
  }

  // How far accesses through each word may get in this launch, and whether there may be any.
  void find_extents() {
    std::vector<std::uint32_t> pointers;
    for (const Object& object : what_)
      if (!object.is_variable && !object.is_hidden) pointers.push_back(object.word);
    const analyzer::LaunchValues values{launch_.params, pointers, {launch_.blocks, 1, 1}, {launch_.threads, 1, 1}};
    is_claimed_ = std::ranges::none_of(claims_.extents.doubts, [&](const AddressDoubt& doubt) {
      return analyzer::may_happen(claims_.extents, doubt.happens, values);
    });
    for (const AddressGroup& group : claims_.extents.groups) {
      for (const std::uint32_t word : group.at) {
        if (!std::ranges::binary_search(pointers, word)) continue;
        const analyzer::WordsTaken taken = analyzer::words_taken(claims_.extents, group, word, values);
        taken_[word] |= taken.anything || taken.names(word);
        const auto reached = analyzer::reach(claims_.extents, group, word, values);
        Extent& extent = extents_[word];
        extent.is_known &= reached.has_value();
        if (!reached) continue;
        for (const analyzer::Reach& each : *reached) {
          extent.is_known &= !each.indexed;
          extent.all.push_back(each);
        }
      }
    }
  }

  void judge_extent(const emulator::Access& access, std::uint32_t word, std::uint64_t base) {
    if (const auto taken = taken_.find(word); taken != taken_.end() && !taken->second)
      complain(access, "goes by", "word " + std::to_string(word) + ", which this launch leaves alone");
    const auto found = extents_.find(word);
    if (found == extents_.end() || !found->second.is_known) return;
    ++tally_.extents;
    const auto first = static_cast<std::int64_t>(access.address - base);
    const auto last = first + static_cast<std::int64_t>(access.bytes);
    const bool is_inside = std::ranges::any_of(
        found->second.all, [&](const analyzer::Reach& each) { return each.first <= first && last <= each.last; });
    if (is_inside) return;
    complain(access, "gets",
             "to byte " + std::to_string(first) + " of what word " + std::to_string(word) +
                 " points to, which is out of bounds, " + spoken(found->second.all) + ',');
  }

  // The bounds, and what they follow from.
  std::string spoken(const std::vector<analyzer::Reach>& bounds) const {
    std::string text = "those of " + std::to_string(launch_.threads) + " threads in " + std::to_string(launch_.blocks) +
                       " blocks with parameters";
    for (std::size_t at = 0; at + 4 <= launch_.params.size(); at += 4) {
      std::int32_t number = 0;
      std::memcpy(&number, &launch_.params[at], sizeof number);
      text += ' ' + std::to_string(number);
    }
    text += " being";
    for (const analyzer::Reach& each : bounds)
      text += " [" + std::to_string(each.first) + ", " + std::to_string(each.last) + ")";
    return text;
  }

  void judge(const emulator::Access& access) {
    if (!is_claimed_) return;
    ++tally_.accesses;
    if (access.writes) judge_stored(access);
    const auto found = objects_.of(access.address, measure_.reach);
    if (!found) {
      ++tally_.astray;
      return;
    }
    ++tally_.judged;
    const Object& object = what_[*found];
    if (object.is_hidden) return complain(access, "reaches", "what no parameter points to");
    if (!object.is_variable) judge_extent(access, object.word, objects_.base(*found));
    for (const bool writes : {false, true}) {
      if (writes ? !access.writes : !access.reads) continue;
      if (object.is_variable) {
        ++tally_.variables;
        if (names_constant(object.variable) && !writes) continue;
        if (!claims_.variables.contains({std::string(object.variable), writes}))
          complain(access, writes ? "writes" : "reads", "the variable " + std::string(object.variable));
        continue;
      }
      tally_.seen.emplace(object.word, writes);
      if (!claims_.words.contains({object.word, writes}))
        complain(access, writes ? "writes" : "reads", "through word " + std::to_string(object.word));
    }
  }

  // Pointers among what is written, whole or in halves that come to stand next to each other.
  void judge_stored(const emulator::Access& access) {
    if (access.bytes < 4) return;
    for (std::uint32_t i = 0; i * 4 < access.bytes; i += 2) {
      std::uint64_t low = access.stored[i], high = 0;
      if (access.bytes >= 8) {
        high = access.stored[i + 1];
      } else {
        const bool is_high = (access.address & 4) != 0;
        const auto other = halves_.find(access.address ^ 4);
        halves_[access.address] = access.stored[0];
        if (other == halves_.end()) return;
        low = is_high ? other->second : access.stored[0];
        high = is_high ? access.stored[0] : other->second;
      }
      const auto found = objects_.of(low | high << 32, emulator::Objects::kNear);
      if (!found) continue;
      ++tally_.stored;
      const Object& object = what_[*found];
      if (object.is_hidden) continue;
      if (object.is_variable)
        complain(access, "stores", "the address of the variable " + std::string(object.variable));
      else if (!claims_.stored.contains(object.word))
        complain(access, "stores", "the pointer in word " + std::to_string(object.word));
    }
  }

  void complain(const emulator::Access& access, const char* does, const std::string& what) {
    if (!wrong_.empty()) return;
    char place[64];
    std::snprintf(place, sizeof place, " at byte 0x%x", access.at * 16);
    wrong_ = std::string(does) + " " + what + place;
  }

  const emulator::Program& program_;
  const Claims& claims_;
  Random random_;
  emulator::Objects objects_;
  const Measure& measure_;
  Tally& tally_;
  emulator::Launch launch_;
  std::vector<Object> what_;
  std::map<std::uint64_t, std::uint32_t> halves_, first_;  // words of memory: what is there at first
  bool is_claimed_ = true;                                 // its numbers exclude all doubts
  struct Extent {
    bool is_known = true;
    std::vector<analyzer::Reach> all;
  };
  std::map<std::uint32_t, Extent> extents_;  // by word
  std::map<std::uint32_t, bool> taken_;      // whether an address may be made of the word in this launch
  std::string wrong_;
};

}  // namespace

Claims::Claims(const PtxProof& proof) : stored(proof.stored.begin(), proof.stored.end()), extents(proof.extents) {
  for (const PtxAccess& access : proof.accesses) {
    for (const std::uint32_t word : access.at) {
      if (access.reads) words.emplace(word, false);
      if (access.writes) words.emplace(word, true);
    }
  }
  for (const PtxGlobal& global : proof.globals) {
    if (global.reads) variables.emplace(global.name, false);
    if (global.writes) variables.emplace(global.name, true);
  }
}

std::string run_once(const emulator::Program& program, const Layout& layout, const Claims& claims, std::uint64_t seed,
                     const Measure& measure, Tally& tally) {
  return Run(program, layout, claims, seed, measure, tally).run();
}

}  // namespace nimble::code::oracle
