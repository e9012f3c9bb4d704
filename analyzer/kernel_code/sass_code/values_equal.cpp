// Which values of a kernel are always the same, and what conditions say of them.
#include <algorithm>
#include <map>
#include <string_view>

#include "analyzer/kernel_code/sass_code/local_words.h"
#include "analyzer/kernel_code/sass_code/values.h"

namespace nimble::code::sass {
namespace {

constexpr unsigned kAtCondition = 87, kTrueCondition = 7;  // of branches and exits, and its negation
constexpr unsigned kControlAt = 105, kControlBits = 21;    // when it runs, not what it does

}  // namespace

// ---- what is the same ----

ValueId Values::representative(ValueId value) const {
  while (same_as_[value] != value) value = same_as_[value];
  return value;
}

void Values::make_same(ValueId value, ValueId as) {
  if (as != kNoValue && same_as_[value] == value && representative(as) != value) same_as_[value] = as;
}

// A choice among one value and itself is that value, but where another call of a function begins or has ended: there
// it is another value each time. What that makes equal may make others so.
void Values::join_equal_choices() {
  constexpr int kMostRounds = 16;
  bool changed = true;
  for (int round = 0; round < kMostRounds && changed; ++round) {
    changed = false;
    for (ValueId value = 0; value < values_.size(); ++value) {
      if (values_[value].kind != Value::Kind::choice || same_as_[value] != value) continue;
      if (values_[value].predicate != kNoValue || entry_choices_.contains(value) || returned_.contains(value)) continue;
      ValueId only = kNoValue;
      bool is_one = true;
      for (const ValueId from : choices(value)) {
        const ValueId each = representative(from);
        if (each == value || each == only) continue;
        is_one = only == kNoValue;
        if (!is_one) break;
        only = each;
      }
      if (!is_one || only == kNoValue) continue;
      same_as_[value] = only;
      changed = true;
    }
  }
}

Values::Fact Values::plain(Fact fact) const {
  if (fact.predicate == kNoValue) return fact;
  fact.predicate = representative(fact.predicate);
  constexpr int kMostSteps = 64;  // in code that never runs one may be the opposite of itself
  for (int i = 0; i < kMostSteps; ++i) {
    const auto found = opposites_.find(fact.predicate);
    if (found == opposites_.end()) break;
    fact = {representative(found->second), !fact.is_true};
  }
  return fact;
}

void Values::use_representatives() {
  for (ValueId& id : reads_.ids) id = representative(id);
  for (ValueId& id : choices_) id = representative(id);
  for (Value& value : values_) {
    if (value.predicate == kNoValue) continue;
    const Fact fact = plain({value.predicate, value.if_true});
    value.predicate = fact.predicate;
    value.if_true = fact.is_true;
  }
  for (Fact& guard : guards_) guard = plain(guard);
}

// A copy is what it was made of: so what is known of that under a condition holds of it, too. Not what R2UR copies:
// that is one thread's, and another thread's may be another.
void Values::find_copies() {
  for (const std::uint32_t at : order_) {
    const Registers* const copied = copied_by(flow_.instructions[at], flow_.word(at));
    for (std::uint32_t i = 0; copied && i < copied->count; ++i) make_same(this->written(at)[i], read(at)[i]);
  }
}

// What is loaded from local memory is what was stored there: if that is one value whatever way leads to the load. It is
// not computed anew in between: a way from there to the load that leaves out the store would be one from the kernel's
// beginning, too.
void Values::find_loaded_back(const Kernel& kernel) {
  const auto is_local = [&](std::uint32_t at) {
    const Instruction& instruction = flow_.instructions[at];
    return instruction.what == Class::load && instruction.memory.size() == 1 &&
           instruction.memory[0].space == Space::local;
  };
  if (std::ranges::none_of(order_, is_local)) return;
  const LocalWords words(kernel, flow_, *this);
  for (const std::uint32_t at : order_) {
    if (!is_local(at)) continue;
    const auto results = written(at);
    for (unsigned i = 0; i < results.size(); ++i) {
      const auto stored = words.reaching(at, i);
      if (!stored || stored->size() != 1) continue;
      const LocalWords::Stored& only = stored->front();
      if (flow_.instructions[only.instruction].guard.when == Guard::When::always) make_same(results[i], only.value);
    }
  }
}

// What computes the same of the same has the same result: instructions that differ in nothing but where they put it.
// Of those that other threads, the time, or the loader have a part in there is none.
void Values::find_equal_results() {
  std::map<std::vector<std::uint64_t>, ValueId> known;
  for (const std::uint32_t at : order_) {
    const Instruction& instruction = flow_.instructions[at];
    const std::string_view name = instruction.name;
    const bool is_pure = (instruction.what == Class::constant_load && !instruction.constant->index) ||
                         (instruction.what == Class::integer && name != "SHFL" && name != "R2UR" && name != "RPCMOV") ||
                         (instruction.what == Class::predicate && name != "ELECT" && name != "R2P");
    if (!is_pure || instruction.guard.when != Guard::When::always || instruction.written.size() == 0) continue;
    if (flow_.relocated.contains(at)) continue;
    Word word = flow_.word(at);
    const auto clear = [&](unsigned first, unsigned count) {
      for (unsigned bit = first; bit < first + count; ++bit)
        (bit < 64 ? word.low : word.high) &= ~(std::uint64_t{1} << (bit % 64));
    };
    clear(kControlAt, kControlBits);
    std::vector<std::uint64_t> key;
    for (const auto* const list : {&instruction.read}) {
      for (const Registers& registers : *list) {
        clear(registers.at, registers.file == File::r || registers.file == File::ur ? 8 : 3);
        key.push_back(std::uint64_t{registers.at} << 32 | registers.count);
      }
    }
    for (const Registers& registers : instruction.written) {
      clear(registers.at, registers.file == File::r || registers.file == File::ur ? 8 : 3);
      key.push_back(std::uint64_t{registers.at} << 32 | registers.count);
    }
    key.insert(key.end(), {word.low, word.high});
    for (const ValueId id : read(at)) key.push_back(representative(id));
    const auto results = written(at);
    const auto [found, is_new] = known.emplace(std::move(key), results[0]);
    if (is_new) continue;
    stands_for_others_.insert(values_[found->second].instruction);
    // Results come one after the other.
    for (std::size_t i = 0; i < results.size(); ++i) make_same(results[i], found->second + static_cast<ValueId>(i));
  }
}

// ---- conditions ----

// What is known of predicates in a block, since branches lead to it from one block alone.
std::vector<Values::Fact> Values::facts_of(std::uint32_t block) const {
  constexpr int kMostBlocks = 64;
  std::vector<Fact> facts;
  for (int i = 0; i < kMostBlocks; ++i) {
    const Block& here = flow_.blocks[block];
    if (here.from.size() != 1 || here.from.front().after_call || block == flow_.functions[here.function].entry) break;
    const std::uint32_t from = here.from.front().block, last = flow_.blocks[from].end - 1;
    const Fact& guard = guards_[last];
    const bool has_condition = flow_.word(last).bits(kAtCondition, 4) != kTrueCondition;
    // Not by a further condition; and not where the branch leads to what comes after it.
    if (guard.predicate != kNoValue && flow_.instructions[last].what == Class::branch && !has_condition &&
        flow_.instructions[last].read.size() == 0 && flow_.instructions[last].target) {
      const std::uint32_t following = last + 1;
      const auto target = static_cast<std::uint32_t>(last + *flow_.instructions[last].target / 16);
      if (target != following) facts.push_back({guard.predicate, (here.begin == target) == guard.is_true});
    }
    if (guard.predicate != kNoValue && flow_.instructions[last].what == Class::exit && !has_condition &&
        flow_.word(last).bits(84, 2) == 0)
      facts.push_back({guard.predicate, !guard.is_true});
    block = from;
  }
  return facts;
}

// What it is where these hold.
ValueId Values::resolve(ValueId value, std::span<const Fact> facts) const {
  for (bool changed = true; changed;) {
    changed = false;
    const Value& each = values_[value];
    if (each.predicate == kNoValue) return value;
    for (const Fact& fact : facts) {
      if (fact.predicate != each.predicate) continue;
      value = choices_[each.first + (each.if_true == fact.is_true ? 0 : 1)];
      changed = true;
      break;
    }
  }
  return value;
}

void Values::resolve_conditions() {
  for (std::uint32_t block = 0; block < flow_.blocks.size(); ++block) {
    std::vector<Fact> facts = facts_of(block);
    for (std::uint32_t at = flow_.blocks[block].begin; at < flow_.blocks[block].end; ++at) {
      const Fact guard = guards_[at];
      const bool has_guard = guard.predicate != kNoValue;
      if (has_guard) facts.push_back(guard);
      const List& list = reads_.of[at];
      for (std::uint32_t i = 0; i < list.count; ++i)
        reads_.ids[list.first + i] = resolve(reads_.ids[list.first + i], facts);
      if (!has_guard) continue;
      // What was there stays where the condition does not hold.
      facts.back().is_true = !guard.is_true;
      for (const ValueId id : written(at)) {
        ValueId& kept = choices_[values_[id + 1].first + 1];
        kept = resolve(kept, facts);
      }
      facts.pop_back();
    }
  }
}

}  // namespace nimble::code::sass
