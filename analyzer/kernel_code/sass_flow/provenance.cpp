#include "analyzer/kernel_code/sass_flow/provenance.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace nimble::code::sass {
namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool is_computed(Class what) { return what == Class::integer || what == Class::number || what == Class::predicate; }

bool is_local_load(const Instruction& instruction) {
  return instruction.what == Class::load && instruction.memory.size() == 1 &&
         instruction.memory[0].space == Space::local;
}

// Additions: the sum is an address if one of the operands is.
bool is_sum(std::string_view name) {
  return is_one_of(name, {"IADD3", "UIADD3", "IADD", "VIADD", "UVIADD", "LOP3", "ULOP3"});
}

}  // namespace

ExpressionId Provenance::from(std::uint32_t at, const MemoryOperand& operand, Root root) {
  std::array<std::vector<ExpressionId>, 2> halves;
  for (const auto& registers : {operand.base, operand.uniform}) {
    if (!registers) continue;
    const auto values = values_.read(at, *registers);
    for (std::size_t i = 0; i < std::min(values.size(), halves.size()); ++i) halves[i].push_back(of(values[i], root));
  }
  return occurrence_.both(occurrence_.any(halves[0]), occurrence_.any(halves[1]));
}

ExpressionId Provenance::number(std::uint32_t at, const MemoryOperand& operand) {
  std::vector<ExpressionId> ways;
  for (const std::size_t half : {0, 1}) {
    ExpressionId all = occurrence_.always();
    for (const auto& registers : {operand.base, operand.uniform}) {
      if (!registers) continue;
      const auto values = values_.read(at, *registers);
      if (half < values.size() && is_address(values[half])) all = occurrence_.both(all, of(values[half], kIsNumber));
    }
    ways.push_back(all);
  }
  return occurrence_.any(ways);
}

ExpressionId Provenance::of(ValueId value, Question question) {
  const ExpressionId id = begin(value, question);
  // One after the other: a thread's stack may be small.
  while (!open_.empty()) {
    const Open next = open_.back();
    open_.pop_back();
    const bool is_choice = values_.all()[next.value].kind == Value::Kind::choice;
    const ExpressionId found = is_choice ? of_choice(next.value, next.question) : of_result(next.value, next.question);
    addresses_.list().fill(next.id, std::array{found, found});
  }
  return id;
}

// What is known at once; else a choice that is filled later.
ExpressionId Provenance::begin(ValueId value, Question question) {
  if (!may_be(value, question)) return occurrence_.never();
  const Value& each = values_.all()[value];
  const auto [found, is_new] = known_.try_emplace(std::uint64_t{question} << 32 | value, occurrence_.always());
  if (!is_new || each.kind == Value::Kind::initial) return found->second;
  if (each.kind == Value::Kind::written) {
    const Instruction& instruction = flow_.instructions[each.instruction];
    if (!is_computed(instruction.what) && !is_local_load(instruction))
      return found->second = of_result(value, question);
  }
  const ExpressionId id = addresses_.list().choice(32, 0);
  open_.push_back({value, question, id});
  return found->second = id;
}

ExpressionId Provenance::of_choice(ValueId choice, Question question) {
  std::vector<ExpressionId> ways;
  for (const Addresses::Source& source : addresses_.sources(choice))
    if (may_be(source.value, question))
      ways.push_back(occurrence_.both(occurrence_.of(choice, source), begin(source.value, question)));
  return occurrence_.any(std::move(ways));
}

ExpressionId Provenance::of_result(ValueId value, Question question) {
  const std::uint32_t at = values_.all()[value].instruction;
  const Instruction& instruction = flow_.instructions[at];
  // Where the same is computed elsewhere, that need not run where this does.
  const ExpressionId here = values_.stands_for_others(at) ? occurrence_.always() : occurrence_.of(at);
  if (is_local_load(instruction))
    if (const auto kept = loaded_back(value, question)) return occurrence_.both(here, *kept);
  if (!is_computed(instruction.what)) return here;
  constexpr unsigned kChooses = 87, kNegated = 90, kTrue = 7;
  const bool chooses = is_one_of(instruction.name, {"SEL", "USEL"}) && flow_.word(at).bits(kChooses, 3) != kTrue;
  const ValueId predicate = chooses ? addresses_.conditions().predicate_at(at, kChooses) : kNoValue;
  // The first of two where the predicate holds, or is negated and does not.
  const auto chosen = [&](bool is_first) {
    if (predicate == kNoValue) return occurrence_.always();
    return occurrence_.of(Fact{predicate, is_first != (flow_.word(at).bit(kNegated) != 0)});
  };
  if (question == kIsNumber && predicate == kNoValue) {
    const std::vector<ValueId> added = addends(value);
    ExpressionId all = added.empty() ? here : occurrence_.always();
    for (const ValueId each : added) all = occurrence_.both(all, begin(each, question));
    return all;
  }
  std::vector<ExpressionId> ways;
  const bool is_brought =
      question == kIsNumber ? instruction.constant || instruction.immediate : contents_.brings(at, question);
  if (is_brought) ways.push_back(occurrence_.both(here, chosen(false)));
  for (const Registers& registers : instruction.read) {
    if (registers.file != File::r && registers.file != File::ur) continue;
    for (const ValueId each : values_.read(at, registers))
      if (may_be(each, question)) ways.push_back(occurrence_.both(begin(each, question), chosen(registers.at == kAtA)));
  }
  // What the flow has from nowhere else is made here.
  return ways.empty() ? here : occurrence_.any(std::move(ways));
}

// From local memory it is one of what was stored there on the ways to the load, where that is known.
std::optional<ExpressionId> Provenance::loaded_back(ValueId value, Question question) {
  const std::uint32_t at = values_.all()[value].instruction;
  const auto results = values_.written(at);
  const auto index = static_cast<unsigned>(std::ranges::find(results, value) - results.begin());
  const auto stored = addresses_.local_words().reaching(at, index);
  if (!stored) return std::nullopt;
  std::vector<ExpressionId> ways;
  for (const LocalWords::Stored& each : *stored)
    if (each.value != kNoValue && may_be(each.value, question))
      ways.push_back(occurrence_.both(occurrence_.of(each.instruction), begin(each.value, question)));
  return occurrence_.any(std::move(ways));
}

bool Provenance::may_be(ValueId value, Question question) {
  const Content& content = contents_.of(value);
  return question == kIsNumber ? content.number : contents_.may_come_from(content, question);
}

bool Provenance::is_address(ValueId value) { return contents_.contents().is_address(contents_.of(value)); }

// The values that make the result an address if they are one.
std::vector<ValueId> Provenance::addends(ValueId value) {
  const std::uint32_t at = values_.all()[value].instruction;
  const Instruction& instruction = flow_.instructions[at];
  const std::string_view name = instruction.name;
  std::vector<ValueId> all;
  const auto add = [&](ValueId each) {
    if (each != kNoValue && is_address(each)) all.push_back(each);
  };
  std::size_t half = 0, place = 0;
  for (const Registers& registers : instruction.written)
    for (unsigned i = 0; i < registers.count; ++i, ++place)
      if (values_.written(at)[place] == value) half = i;
  const bool is_move = is_one_of(name, {"MOV", "UMOV", "R2UR"}) && !instruction.constant && !instruction.immediate;
  if (is_sum(name) || is_move) {
    for (const Registers& registers : instruction.read) {
      if (registers.file != File::r && registers.file != File::ur) continue;
      const auto values = values_.read(at, registers);
      if (half < values.size()) add(values[half]);
    }
  } else if (is_one_of(name, {"IMAD", "UIMAD"})) {
    constexpr unsigned kHigh = 0x27, kHighUniform = 0x26;
    const unsigned kind = instruction.opcode & 0x7f;
    const SourceOperands from = operands_of(flow_, values_, at);
    if (kind != kHigh && kind != kHighUniform) add(from.c.values[half]);
  } else if (is_one_of(name, {"LEA", "ULEA"})) {
    add(operands_of(flow_, values_, at).b.values[0]);
  }
  return all;
}

}  // namespace nimble::code::sass
