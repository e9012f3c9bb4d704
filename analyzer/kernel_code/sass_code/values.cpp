#include "analyzer/kernel_code/sass_code/values.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace nimble::code::sass {
Values::Values(const Kernel& kernel, const ControlFlow& flow)
    : flow_(flow), callers_(flow.functions.size()), last_(flow.blocks.size()) {
  for (Lists* const lists : {&reads_, &writes_}) lists->of.resize(flow.instructions.size());
  guards_.resize(flow.instructions.size());
  for (std::uint32_t block = 0; block < flow.blocks.size(); ++block) {
    if (flow.blocks[block].callee != kNoBlock) callers_[flow.blocks[block].callee].push_back(block);
    write_block(block);
  }
  for (std::uint32_t block = 0; block < flow.blocks.size(); ++block) read_block(block);
  fill_choices();
  same_as_.resize(values_.size());
  for (ValueId value = 0; value < values_.size(); ++value) same_as_[value] = value;
  join_equal_choices();
  use_representatives();
  // Each may make more of the others equal.
  for (int round = 0; round < 3; ++round) {
    find_copies();
    if (round > 0) find_loaded_back(kernel);
    find_equal_predicates();
    find_equal_results();
    join_equal_choices();
    use_representatives();
  }
  resolve_conditions();
}

std::span<const ValueId> Values::read(std::uint32_t instruction, const Registers& registers) const {
  std::size_t at = 0;
  for (const Registers& each : flow_.instructions[instruction].read) {
    if (each.file == registers.file && each.at == registers.at)
      return read(instruction).subspan(at, std::min<std::size_t>(each.count, registers.count));
    at += each.count;
  }
  return {};
}

std::uint32_t Values::begins_function(ValueId choice) const {
  const auto found = entry_choices_.find(choice);
  return found == entry_choices_.end() ? kNoBlock : found->second;
}

void Values::write_block(std::uint32_t block) {
  std::vector<Last>& last = last_[block];
  for (std::uint32_t at = flow_.blocks[block].begin; at < flow_.blocks[block].end; ++at) {
    order_.push_back(at);
    List& list = writes_.of[at];
    list.first = static_cast<std::uint32_t>(writes_.ids.size());
    const bool is_always = flow_.instructions[at].guard.when == Guard::When::always;
    for (const Registers& registers : flow_.instructions[at].written) {
      for (std::uint32_t i = 0; i < registers.count; ++i) {
        const std::uint32_t variable = variable_of(registers.file, registers.first + i);
        auto id = static_cast<ValueId>(values_.size());
        values_.push_back({Value::Kind::written, variable, at});
        writes_.ids.push_back(id);
        // The choice follows immediately.
        if (!is_always) values_.push_back({Value::Kind::choice, variable, at}), ++id;
        last.push_back({variable, id});
      }
    }
    list.count = static_cast<std::uint32_t>(writes_.ids.size()) - list.first;
  }
  // Of each variable the last one.
  std::stable_sort(last.begin(), last.end(), [](const Last& a, const Last& b) { return a.variable < b.variable; });
  std::vector<Last> kept;
  for (std::size_t i = 0; i < last.size(); ++i)
    if (i + 1 == last.size() || last[i + 1].variable != last[i].variable) kept.push_back(last[i]);
  last = std::move(kept);
}

void Values::read_block(std::uint32_t block) {
  std::array<ValueId, kVariables> here;
  here.fill(kNoValue);
  const auto look = [&](std::uint32_t variable) {
    if (here[variable] == kNoValue) here[variable] = at_entry(block, variable);
    return here[variable];
  };
  for (std::uint32_t at = flow_.blocks[block].begin; at < flow_.blocks[block].end; ++at) {
    const Instruction& instruction = flow_.instructions[at];
    List& list = reads_.of[at];
    list.first = static_cast<std::uint32_t>(reads_.ids.size());
    for (const Registers& registers : instruction.read)
      for (std::uint32_t i = 0; i < registers.count; ++i)
        reads_.ids.push_back(look(variable_of(registers.file, registers.first + i)));
    list.count = static_cast<std::uint32_t>(reads_.ids.size()) - list.first;
    if (instruction.guard.when == Guard::When::always) {
      for (const ValueId id : written(at)) here[values_[id].variable] = id;
      continue;
    }
    guards_[at].is_true = instruction.guard.when == Guard::When::if_true;
    if (instruction.guard.when != Guard::When::never)
      guards_[at].predicate = look(variable_of(instruction.guard.file, instruction.guard.predicate));
    std::vector<ValueId> before;
    for (const ValueId id : written(at)) before.push_back(look(values_[id].variable));
    for (std::size_t i = 0; i < before.size(); ++i) {
      const ValueId id = written(at)[i];
      Value& choice = values_[id + 1];
      choice.first = static_cast<std::uint32_t>(choices_.size());
      choice.count = 2;
      choice.predicate = guards_[at].predicate;
      choice.if_true = guards_[at].is_true;
      choices_.insert(choices_.end(), {id, before[i]});
      here[choice.variable] = id + 1;
    }
  }
}

const ValueId* Values::last_in(std::uint32_t block, std::uint32_t variable) const {
  const std::vector<Last>& last = last_[block];
  const auto found = std::lower_bound(last.begin(), last.end(), variable,
                                      [](const Last& each, std::uint32_t key) { return each.variable < key; });
  return found != last.end() && found->variable == variable ? &found->value : nullptr;
}

ValueId Values::initial(std::uint32_t variable) {
  const auto [found, is_new] = initial_.emplace(variable, static_cast<ValueId>(values_.size()));
  if (is_new) values_.push_back({Value::Kind::initial, variable});
  return found->second;
}

// Whether the variable is what it was in the one block before this. What a callee wrote is not that: each call of it
// writes another value.
bool Values::is_one_way(std::uint32_t block, std::uint32_t variable, std::uint32_t& from) const {
  const Block& here = flow_.blocks[block];
  const Function& function = flow_.functions[here.function];
  if (here.from.size() != 1 || block == function.entry) return false;
  from = here.from.front().block;
  return !here.from.front().after_call || !flow_.functions[flow_.blocks[from].callee].clobbered.test(variable);
}

ValueId Values::at_entry(std::uint32_t block, std::uint32_t variable) {
  for (std::uint32_t from = 0; is_one_way(block, variable, from); block = from)
    if (const ValueId* const last = last_in(from, variable)) return *last;
  const auto [found, is_new] =
      entries_.emplace(std::uint64_t{block} * kVariables + variable, static_cast<ValueId>(values_.size()));
  if (is_new) {
    values_.push_back({Value::Kind::choice, variable, flow_.blocks[block].begin});
    open_.emplace_back(block, found->second);
  }
  return found->second;
}

ValueId Values::at_end(std::uint32_t block, std::uint32_t variable) {
  const ValueId* const last = last_in(block, variable);
  return last ? *last : at_entry(block, variable);
}

void Values::fill_choices() {
  while (!open_.empty()) {
    const auto [block, choice] = open_.back();
    open_.pop_back();
    const std::uint32_t variable = values_[choice].variable;
    std::vector<ValueId> from;
    const Block& here = flow_.blocks[block];
    const bool is_entry = block == flow_.functions[here.function].entry;
    if (is_entry) entry_choices_.emplace(choice, here.function);
    if (is_entry)
      for (const std::uint32_t caller : callers_[here.function]) from.push_back(at_end(caller, variable));
    for (const Block::From& each : here.from) {
      const std::uint32_t called = flow_.blocks[each.block].callee;
      if (!each.after_call || !flow_.functions[called].clobbered.test(variable)) {
        from.push_back(at_end(each.block, variable));
      } else {
        returned_.insert(choice);
        for (const std::uint32_t returning : flow_.functions[called].returns)
          from.push_back(at_end(returning, variable));
      }
    }
    // The kernel begins here, or it is not known from where this is reached.
    if ((is_entry && here.function == 0) || from.empty()) from.push_back(initial(variable));
    values_[choice].first = static_cast<std::uint32_t>(choices_.size());
    values_[choice].count = static_cast<std::uint32_t>(from.size());
    choices_.insert(choices_.end(), from.begin(), from.end());
  }
}

}  // namespace nimble::code::sass
