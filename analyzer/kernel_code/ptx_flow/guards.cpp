#include "analyzer/kernel_code/ptx_flow/guards.h"

#include <algorithm>

#include "analyzer/kernel_code/ptx/module.h"
#include "analyzer/kernel_code/ptx_flow/opcodes.h"

namespace nimble::code {
namespace {

constexpr std::size_t kMostConditions = 4;  // of an instruction: leaving one out only costs precision
constexpr std::size_t kNowhere = ~std::size_t{0};

bool is_integer(std::string_view type) {
  return ptx_type_bits(type) >= 8 && (type[0] == 's' || type[0] == 'u' || (type[0] == 'b' && type[1] != 'f'));
}

class Guards {
 public:
  Guards(const PtxBody& body, const std::unordered_map<std::uint32_t, const PtxInstruction*>& definition,
         const std::function<std::optional<std::uint32_t>(const PtxOperand&, std::uint32_t)>& parameter)
      : body_(body), definition_(definition), parameter_(parameter) {}

  PtxGuards find() {
    PtxGuards result;
    result.of.assign(body_.instructions.size(), 0);
    if (body_.jumps) return result;
    find_branches();
    const auto add = [&](const PtxConditions& conditions) {
      if (conditions.empty()) return 0u;
      if (result.sets.back() != conditions) result.sets.push_back(conditions);
      return static_cast<std::uint32_t>(result.sets.size() - 1);
    };
    PtxConditions here;
    bool is_reached = true;  // from the instruction before
    std::size_t label = 0;
    for (std::size_t i = 0; i < body_.instructions.size(); ++i) {
      const PtxInstruction& instruction = body_.instructions[i];
      std::size_t labels = 0;
      for (; label < body_.labels.size() && body_.labels[label].before <= i; ++label, ++labels)
        here = is_reached || labels > 0 ? PtxConditions{} : behind_only_branch(body_.labels[label].symbol, i, result);
      PtxConditions own = here;
      and_if(own, instruction, true);
      result.of[i] = add(own);
      const PtxOpcode opcode(instruction.opcode);
      is_reached = true;
      if (opcode.base != "bra" && opcode.base != "ret" && opcode.base != "exit") continue;
      is_reached = instruction.predicate != kNoSymbol;
      if (is_reached) and_if(here, instruction, false);
    }
    return result;
  }

 private:
  // For each label the only branch to it; kNowhere if anything else names it, too.
  void find_branches() {
    for (const PtxLabel& label : body_.labels) {
      const bool is_first = branches_.emplace(label.symbol, kNone).second;
      if (!is_first) branches_[label.symbol] = kNowhere;
    }
    for (std::size_t i = 0; i < body_.instructions.size(); ++i) {
      const bool is_branch = PtxOpcode(body_.instructions[i].opcode).base == "bra";
      for (const PtxOperand& operand : body_.instructions[i].operands) names(operand, is_branch ? i : kNowhere);
    }
  }

  void names(const PtxOperand& operand, std::size_t branch) {
    for (const PtxOperand& part : operand.parts) names(part, kNowhere);
    const auto found = operand.symbol == kNoSymbol ? branches_.end() : branches_.find(operand.symbol);
    if (found == branches_.end()) return;
    found->second = found->second == kNone && operand.kind == PtxOperand::Kind::symbol ? branch : kNowhere;
  }

  // What holds at a label that is only reached by an earlier branch.
  PtxConditions behind_only_branch(std::uint32_t label, std::size_t place, const PtxGuards& known) const {
    const std::size_t branch = branches_.at(label);
    if (branch >= place) return {};
    return known.sets[known.of[branch]];  // including that of the branch itself: it is taken
  }

  // Adds that an instruction's predicate has, or has not, the value that the instruction needs to run.
  void and_if(PtxConditions& conditions, const PtxInstruction& instruction, bool runs) const {
    if (instruction.predicate == kNoSymbol || conditions.size() >= kMostConditions) return;
    std::optional<PtxCondition> condition = tested(instruction);
    if (!condition) return;
    if (instruction.negated == runs) condition->equal = !condition->equal;
    if (std::ranges::find(conditions, *condition) == conditions.end()) conditions.push_back(*condition);
  }

  // The instruction that puts a value into it, once and for all, before it is used.
  const PtxInstruction* defined(std::uint32_t symbol, std::string_view base, const PtxInstruction& use) const {
    const auto found = definition_.find(symbol);
    if (found == definition_.end() || found->second->predicate != kNoSymbol || found->second >= &use) return nullptr;
    return PtxOpcode(found->second->opcode).base == base ? found->second : nullptr;
  }

  // What the predicate says about the parameters: setp.eq.s32 %p1, %r1, 0 about what ld.param has put into %r1.
  // A chain of preconditions: without any of them there is no condition.
  std::optional<PtxCondition> tested(const PtxInstruction& instruction) const {
    const PtxInstruction* const test = defined(instruction.predicate, "setp", instruction);
    if (test == nullptr || test->operands.size() != 3) return std::nullopt;
    const PtxOperand &target = test->operands[0], &left = test->operands[1], &right = test->operands[2];
    if (target.kind != PtxOperand::Kind::symbol || left.kind != PtxOperand::Kind::symbol || left.value != 0 ||
        right.kind != PtxOperand::Kind::number || right.odd)
      return std::nullopt;
    const PtxOpcode compares(test->opcode);
    const bool equal = compares.count == 2 && compares.parts[0] == "eq";
    if (!equal && (compares.count != 2 || compares.parts[0] != "ne")) return std::nullopt;
    const PtxInstruction* const load = defined(left.symbol, "ld", *test);
    if (load == nullptr || load->operands.size() != 2) return std::nullopt;
    // The first of a vector's parts is where the load says, the others follow.
    const PtxOperand& loaded = load->operands[0];
    std::uint32_t part = 0;
    while (part < loaded.parts.size() && loaded.parts[part].symbol != left.symbol) ++part;
    if (part == loaded.parts.size() && loaded.kind != PtxOperand::Kind::symbol) return std::nullopt;
    const PtxOpcode loads(load->opcode);
    const std::string_view type = loads.last_type(), compared = compares.last_type();
    const unsigned bits = ptx_type_bits(type), compared_bits = ptx_type_bits(compared);
    // One that is widened is filled up with zeros if it is unsigned.
    const bool is_same = bits == compared_bits || (bits < compared_bits && type[0] == 'u');
    if (loads.space() != PtxSpace::param || !is_same || !is_integer(type) || !is_integer(compared) ||
        compared_bits > 64)
      return std::nullopt;
    const auto value = static_cast<std::uint64_t>(right.value);
    const std::uint64_t wide = compared_bits >= 64 ? value : value & ((std::uint64_t{1} << compared_bits) - 1);
    if (bits < 64 && wide >> bits != 0) return std::nullopt;
    const auto at = parameter_(load->operands[1], (part + 1) * (bits / 8));
    if (!at) return std::nullopt;
    return PtxCondition{*at + part * (bits / 8), bits / 8, wide, equal};
  }

  static constexpr std::size_t kNone = kNowhere - 1;  // no branch was seen yet

  const PtxBody& body_;
  const std::unordered_map<std::uint32_t, const PtxInstruction*>& definition_;
  const std::function<std::optional<std::uint32_t>(const PtxOperand&, std::uint32_t)>& parameter_;
  std::unordered_map<std::uint32_t, std::size_t> branches_;  // by label
};

}  // namespace

PtxGuards ptx_guards(const PtxBody& body, const std::unordered_map<std::uint32_t, const PtxInstruction*>& definition,
                     const std::function<std::optional<std::uint32_t>(const PtxOperand&, std::uint32_t)>& parameter) {
  return Guards(body, definition, parameter).find();
}

}  // namespace nimble::code
