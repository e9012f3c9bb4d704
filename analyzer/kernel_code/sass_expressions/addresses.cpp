#include "analyzer/kernel_code/sass_expressions/addresses.h"

#include <algorithm>
#include <string_view>

namespace nimble::code::sass {
namespace {

// Strongly connected parts of more than one block, or of one that leads to itself: where loops are. Tarjan's algorithm,
// without recursion.
std::unordered_set<std::uint32_t> blocks_in_loops(const ControlFlow& flow) {
  const auto count = static_cast<std::uint32_t>(flow.blocks.size());
  std::vector<std::vector<std::uint32_t>> to(count);
  for (std::uint32_t block = 0; block < count; ++block)
    for (const Block::From& from : flow.blocks[block].from) to[from.block].push_back(block);
  constexpr std::uint32_t kNone = 0xffffffffu;
  std::vector<std::uint32_t> index(count, kNone), least(count), next(count), stack;
  std::vector<std::uint8_t> is_open(count);
  std::unordered_set<std::uint32_t> result;
  std::uint32_t counter = 0;
  for (std::uint32_t root = 0; root < count; ++root) {
    if (index[root] != kNone) continue;
    std::vector<std::uint32_t> path{root};
    while (!path.empty()) {
      const std::uint32_t block = path.back();
      if (index[block] == kNone) {
        index[block] = least[block] = counter++;
        stack.push_back(block);
        is_open[block] = 1;
      }
      if (next[block] < to[block].size()) {
        const std::uint32_t target = to[block][next[block]++];
        if (target == block) result.insert(block);
        if (index[target] == kNone)
          path.push_back(target);
        else if (is_open[target] != 0)
          least[block] = std::min(least[block], index[target]);
        continue;
      }
      path.pop_back();
      if (!path.empty()) least[path.back()] = std::min(least[path.back()], least[block]);
      if (least[block] != index[block]) continue;
      const bool is_loop = stack.back() != block;
      for (std::uint32_t member = kNone; member != block;) {
        member = stack.back();
        stack.pop_back();
        is_open[member] = 0;
        if (is_loop) result.insert(member);
      }
    }
  }
  return result;
}

}  // namespace

Addresses::Addresses(const Kernel& kernel, const ControlFlow& flow, const Values& values)
    : kernel_(kernel),
      flow_(flow),
      values_(values),
      conditions_(flow, values),
      local_words_(kernel, flow, values),
      loops_(blocks_in_loops(flow)) {}

// Whether it is of what an instruction writes and what was there, even where nothing is known of its condition: one
// that never holds. Such a choice comes right after what is written.
bool Addresses::is_of_write(ValueId choice) const {
  const auto all = values_.all();
  if (all[choice].predicate != kNoValue) return true;
  return choice > 0 && all[choice - 1].kind == Value::Kind::written && all[choice].count == 2 &&
         all[choice - 1].instruction == all[choice].instruction && all[choice - 1].variable == all[choice].variable;
}

std::vector<Addresses::Source> Addresses::sources(ValueId choice) const {
  const Value& value = values_.all()[choice];
  const auto choices = values_.choices(choice);
  std::vector<Source> result;
  if (value.predicate != kNoValue) {
    for (std::size_t i = 0; i < choices.size(); ++i)
      result.push_back({choices[i], kNoBlock, Fact{value.predicate, value.if_true == (i == 0)}});
    return result;
  }
  if (is_of_write(choice)) {
    for (const ValueId each : choices) result.push_back({each, kNoBlock, std::nullopt});
    return result;
  }
  // One for each block that comes before; where a function begins or has ended there are others.
  const std::uint32_t block = conditions_.block_of(value.instruction);
  const auto& from = flow_.blocks[block].from;
  const bool is_plain = values_.begins_function(choice) == kNoBlock && from.size() == choices.size() &&
                        std::ranges::none_of(from, [](const Block::From& each) { return each.after_call; });
  for (std::size_t i = 0; i < choices.size(); ++i)
    result.push_back({choices[i], is_plain ? from[i].block : kNoBlock, std::nullopt});
  return result;
}

std::vector<Comparison> Addresses::conditions(ValueId choice, const Source& source) {
  if (source.fact) return conditions_.of(*source.fact);
  if (source.from == kNoBlock) return {};
  return conditions_.along(source.from, conditions_.block_of(values_.all()[choice].instruction));
}

std::span<const Comparison> Addresses::known_at(std::uint32_t instruction) {
  if (values_.stands_for_others(instruction)) return {};
  return conditions_.at(instruction);
}

// A block of a loop that can be reached from outside of it is where the loop begins; of those within it, all that more
// than one way leads to are taken for that, too: it says no more than that the choices are made at the same time.
std::int64_t Addresses::loop_of(ValueId choice) const {
  const Value& value = values_.all()[choice];
  if (is_of_write(choice)) return 0;
  const std::uint32_t block = conditions_.block_of(value.instruction);
  // One for each way that leads there, in their order.
  if (values_.begins_function(choice) != kNoBlock || value.count != flow_.blocks[block].from.size()) return 0;
  return loops_.contains(block) ? std::int64_t{block} + 1 : 0;
}

// Adds the same each time, up to a bound.
bool Addresses::is_counter(ExpressionId choice) const {
  constexpr int kMostSteps = 64;
  // Its alternatives, which are chained.
  std::vector<ExpressionId> alternatives{list_[choice].a};
  for (ExpressionId rest = list_[choice].b;; rest = list_[rest].b) {
    const bool is_chain = list_[rest].op == ExpressionOp::either && list_[rest].value == kRestOfChoice;
    alternatives.push_back(is_chain ? list_[rest].a : rest);
    if (!is_chain || alternatives.size() > kMostSteps) break;
  }
  for (const ExpressionId back : alternatives) {
    bool is_bounded = false, is_changed = false;
    ExpressionId at = back;
    for (int i = 0; i < kMostSteps && at != choice; ++i) {
      const Expression& each = list_[at];
      if (each.op == ExpressionOp::where) {
        is_bounded = true;
        at = each.a;
      } else if (each.op == ExpressionOp::when) {
        at = each.a;
      } else if (each.op == ExpressionOp::add) {
        const bool is_first = list_[each.a].op == ExpressionOp::constant;
        is_changed = true;
        at = is_first ? each.b : each.a;
      } else {
        break;
      }
    }
    if (at == choice && is_bounded && is_changed) return true;
  }
  return false;
}

std::vector<ExpressionId> Addresses::counters() {
  std::unordered_set<std::int64_t> loops;
  for (ExpressionId id = 0; id < list_.size(); ++id)
    if (list_[id].op == ExpressionOp::either && list_[id].value > 0) loops.insert(list_[id].value);
  std::vector<ExpressionId> found;
  for (ValueId value = 0; value < values_.all().size(); ++value) {
    const Value& each = values_.all()[value];
    if (each.kind != Value::Kind::choice || each.predicate != kNoValue || !loops.contains(loop_of(value))) continue;
    const bool is_register = each.variable < kFirstPredicate;
    if (!is_register) continue;
    const ExpressionId id = of(value, 0);
    if (list_[id].op == ExpressionOp::either && is_counter(id)) found.push_back(id);
  }
  return found;
}

ExpressionId Addresses::address(std::uint32_t at, const MemoryOperand& operand) {
  const auto unknown = [&] { return possible(conditions_.at(at), list_.unknown(64), 0); };
  if (!operand.has_offset || operand.scale != 1) return unknown();
  ExpressionId all = list_.number(operand.offset, 64);
  const auto add = [&](const Registers& registers, bool is_uniform) {
    const auto read = values_.read(at, registers);
    if (read.empty()) return false;
    if (read.size() > 1) {
      const Pair pair{read[0], read[1]};
      all = list_.add(all, wide_narrowed(conditions_.at(at), pair, wide(pair, 0), 0));
    } else {
      // 32 bits beside a uniform pair: without a sign.
      if (!is_uniform && !operand.uniform) return false;
      all = list_.add(all, list_.make(ExpressionOp::widen, narrowed(at, read[0], of(read[0], 0), 0)));
    }
    return true;
  };
  if (operand.base && !add(*operand.base, false)) return unknown();
  if (operand.uniform && !add(*operand.uniform, true)) return unknown();
  return possible(conditions_.at(at), all, 0);
}

}  // namespace nimble::code::sass
