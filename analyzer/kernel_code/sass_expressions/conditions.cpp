#include "analyzer/kernel_code/sass_expressions/conditions.h"

#include <string_view>

namespace nimble::code::sass {
namespace {

constexpr unsigned kAtFirstPredicate = 81, kAtSecondPredicate = 84;  // that a comparison writes
constexpr unsigned kAtFirstInput = 87, kAtSecondInput = 77, kAtThirdInput = 68;
constexpr unsigned kAtCondition = 87, kTrueCondition = 7;  // of branches and exits, and its negation
constexpr unsigned kTrue = 7;
constexpr int kMostBlocks = 64, kMostDepth = 8;

bool is_comparison(const Instruction& instruction) {
  const std::string_view name = instruction.name;
  return name == "ISETP" || name == "UISETP";
}

}  // namespace

Conditions::Conditions(const ControlFlow& flow, const Values& values)
    : flow_(flow), values_(values), dominators_(flow), block_of_(flow.instructions.size(), kNoBlock) {
  for (std::uint32_t block = 0; block < flow.blocks.size(); ++block)
    for (std::uint32_t at = flow.blocks[block].begin; at < flow.blocks[block].end; ++at) block_of_[at] = block;
}

const std::vector<Comparison>& Conditions::at(std::uint32_t instruction) {
  const auto [found, is_new] = known_.try_emplace(instruction);
  if (!is_new) return found->second;
  std::vector<Fact> facts = in_block(block_of_[instruction]);
  const Fact& guard = values_.guard(instruction);
  if (guard.predicate != kNoValue) facts.push_back({guard.predicate, guard.is_true});
  for (const Fact& fact : facts) follow(fact, 0, found->second);
  return found->second;
}

std::vector<Comparison> Conditions::along(std::uint32_t from, std::uint32_t to) {
  std::vector<Fact> facts = in_block(from);
  if (const Fact fact = branch(from, to); fact.predicate != kNoValue) facts.push_back(fact);
  std::vector<Comparison> found;
  for (const Fact& fact : facts) follow(fact, 0, found);
  return found;
}

std::vector<Comparison> Conditions::of(const Fact& fact) const {
  std::vector<Comparison> found;
  follow(fact, 0, found);
  return found;
}

// By the branch or the exit at the end of the one: not by a further condition, and not where the branch leads to what
// comes after it.
Fact Conditions::branch(std::uint32_t from, std::uint32_t to) const {
  constexpr unsigned kBranchUniform = 0x1547, kAtUniform = 24, kNegatesUniform = 27, kAtForm = 32;
  const std::uint32_t last = flow_.blocks[from].end - 1;
  const Instruction& instruction = flow_.instructions[last];
  const Word word = flow_.word(last);
  Fact fact = values_.guard(last);
  if (word.bits(kAtCondition, 4) != kTrueCondition) return {};
  if (instruction.what == Class::exit && word.bits(84, 2) == 0) {
    fact.is_true = !fact.is_true;
    return fact.predicate == kNoValue ? Fact{} : fact;
  }
  if (instruction.what != Class::branch || !instruction.target) return {};
  if (instruction.opcode == kBranchUniform) {
    const bool is_plain = instruction.guard.when == Guard::When::always && word.bits(kAtForm, 2) == 1;
    if (!is_plain) return {};
    fact = {predicate_at(last, kAtUniform), word.bit(kNegatesUniform) == 0};
  } else if (instruction.read.size() != 0) {
    return {};
  }
  const auto target = static_cast<std::uint32_t>(last + *instruction.target / 16);
  if (fact.predicate == kNoValue || target == last + 1) return {};
  if (flow_.blocks[to].begin != target) fact.is_true = !fact.is_true;
  return fact;
}

// What held on the way to a block that dominates it holds there: were the values that it speaks of computed anew since,
// there would be a way that leads around that block.
std::vector<Fact> Conditions::in_block(std::uint32_t block) const {
  std::vector<Fact> facts;
  for (int i = 0; i < kMostBlocks && block != kNoBlock; ++i) {
    const Block& here = flow_.blocks[block];
    const std::uint32_t before = dominators_.immediate(block);
    if (here.from.size() == 1 && !here.from.front().after_call && here.from.front().block == before)
      if (const Fact fact = branch(before, block); fact.predicate != kNoValue) facts.push_back(fact);
    block = before;
  }
  return facts;
}

ValueId Conditions::predicate_at(std::uint32_t instruction, unsigned bit) const {
  std::size_t next = 0;
  for (const Registers& registers : flow_.instructions[instruction].read) {
    const bool is_predicate = registers.file == File::p || registers.file == File::up;
    if (is_predicate && registers.at == bit) return values_.read(instruction)[next];
    next += registers.count;
  }
  return kNoValue;
}

void Conditions::follow(const Fact& any, int depth, std::vector<Comparison>& found) const {
  const Fact fact = values_.plain(any);
  const Value& value = values_.all()[fact.predicate];
  if (value.kind != Value::Kind::written || depth > kMostDepth) return;
  const std::uint32_t at = value.instruction;
  const Instruction& instruction = flow_.instructions[at];
  const Word word = flow_.word(at);
  const unsigned result = result_at(at, fact.predicate);
  if (result != kAtFirstPredicate && result != kAtSecondPredicate) return;
  const std::string_view name = instruction.name;
  struct Input {
    unsigned at, negated;
  };
  constexpr Input kInputs[] = {{kAtFirstInput, 90}, {kAtSecondInput, 80}, {kAtThirdInput, 71}};
  if (name == "PLOP3" || name == "UPLOP3") {
    // A table of outcomes, by three inputs: what all rows with this outcome agree in.
    const auto table = static_cast<unsigned>(result == kAtFirstPredicate ? word.bits(64, 3) | word.bits(72, 5) << 3
                                                                         : word.bits(16, 8));
    for (unsigned input = 0; input < 3; ++input) {
      const bool negated = word.bit(kInputs[input].negated) != 0;
      bool may_be[2] = {false, false};
      for (unsigned row = 0; row < 8; ++row) {
        bool is_possible = (table >> row & 1) == (fact.is_true ? 1u : 0u);
        for (unsigned other = 0; other < 3; ++other) {
          const bool is_fixed = word.bits(kInputs[other].at, 3) == kTrue;
          const bool holds = (row >> (2 - other) & 1) != 0;
          if (is_fixed && holds == (word.bit(kInputs[other].negated) != 0)) is_possible = false;
        }
        if (is_possible) may_be[row >> (2 - input) & 1] = true;
      }
      const ValueId predicate = predicate_at(at, kInputs[input].at);
      if (predicate != kNoValue && may_be[0] != may_be[1]) follow({predicate, may_be[1] != negated}, depth + 1, found);
    }
    return;
  }
  if (!is_comparison(instruction)) return;
  // It, or its opposite, joined with a further predicate.
  const unsigned joined = static_cast<unsigned>(word.bits(74, 2));
  const bool is_fixed = word.bits(kAtFirstInput, 3) == kTrue, negated = word.bit(90) != 0;
  const bool is_and = joined == 0, is_or = joined == 1;
  const bool is_neutral = is_fixed && (is_and ? !negated : is_or && negated);
  if (!is_neutral && !(is_and && fact.is_true) && !(is_or && !fact.is_true)) return;
  if (!is_fixed && !is_neutral)
    if (const ValueId other = predicate_at(at, kAtFirstInput); other != kNoValue)
      follow({other, fact.is_true != negated}, depth + 1, found);
  if (const auto comparison = this->comparison(at, fact.is_true == (result == kAtFirstPredicate)))
    found.push_back(*comparison);
}

unsigned Conditions::result_at(std::uint32_t at, ValueId value) const {
  std::size_t next = 0;
  for (const Registers& registers : flow_.instructions[at].written) {
    if (values_.written(at)[next] == value) return registers.at;
    next += registers.count;
  }
  return 0;
}

std::optional<Comparison> Conditions::comparison(std::uint32_t at, bool holds) const {
  using enum ExpressionRelation;
  const Word word = flow_.word(at);
  constexpr ExpressionRelation kRelations[] = {equal, less, equal, at_most, greater, not_equal, at_least, equal};
  constexpr ExpressionRelation kOpposites[] = {equal, at_least, not_equal, greater, at_most, equal, less, equal};
  const auto how = static_cast<unsigned>(word.bits(76, 3));
  if (!is_comparison(flow_.instructions[at]) || how == 0 || how == 7) return std::nullopt;
  Comparison comparison{at, Comparison::kNoInstruction, holds ? kRelations[how] : kOpposites[how], word.bit(73) != 0};
  if (word.bit(72) != 0) {
    // The upper halves; the lower ones were compared before, in the same way.
    const ValueId lower = predicate_at(at, kAtThirdInput);
    if (lower == kNoValue || word.bit(71) != 0 || values_.all()[lower].kind != Value::Kind::written)
      return std::nullopt;
    comparison.lower = values_.all()[lower].instruction;
    const Instruction& other = flow_.instructions[comparison.lower];
    const Word lower_word = flow_.word(comparison.lower);
    const bool is_same = is_comparison(other) && lower_word.bits(76, 3) == how && lower_word.bit(72) == 0 &&
                         lower_word.bits(74, 2) == 0 && lower_word.bits(kAtFirstInput, 3) == kTrue &&
                         lower_word.bit(90) == 0 && lower_word.bit(73) == 0 && other.written.size() > 0 &&
                         other.written[0].at == kAtFirstPredicate && values_.written(comparison.lower)[0] == lower;
    if (!is_same) return std::nullopt;
  }
  return comparison;
}

}  // namespace nimble::code::sass
