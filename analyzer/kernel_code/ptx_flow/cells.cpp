#include "analyzer/kernel_code/ptx_flow/cells.h"

#include <algorithm>

#include "analyzer/kernel_code/ptx/compiler_names.h"

namespace nimble::code {
namespace {

constexpr std::size_t kMostFunctions = 256;
constexpr std::uint64_t kMostWords = 512;  // of a local variable that are distinguished
constexpr int kLongestChain = 64;          // of instructions that move an address

}  // namespace

PtxCells::PtxCells(const PtxModule& module, const PtxFunction& kernel) : module_(module), kernel_(kernel) {
  for (const PtxParam& param : kernel.params)
    result_.words = std::max(result_.words, (param.offset + param.size + 7) / 8);
  first_word_ = new_cells(result_.words);
  first_half_ = new_cells(2 * result_.words);
  for (std::uint32_t word = 0; word < result_.words; ++word) result_.given.emplace_back(first_word_ + word, word);
  for (std::uint32_t half = 0; half < 2 * result_.words; ++half)
    result_.given.emplace_back(first_half_ + half, result_.half_root(half));
  const std::uint32_t fixed = new_cells(kRootFixed);
  for (std::uint32_t which = 0; which < kRootFixed; ++which) {
    fixed_[which] = fixed + which;
    result_.given.emplace_back(fixed + which, result_.root(static_cast<PtxRoot>(which)));
  }
  result_.shared_wide = new_cells(2);
  result_.shared_narrow = result_.shared_wide + 1;
}

void PtxCells::fail(std::string_view why, std::string_view what) {
  if (result_.error.empty()) result_.error.append(why).append(what.substr(0, 80));
}

void PtxCells::hides(std::string_view why, std::string_view what) {
  if (result_.hidden.empty()) result_.hidden.append(why).append(what.substr(0, 200));
}

std::uint32_t PtxCells::new_cells(std::uint32_t count) {
  const std::uint32_t first = result_.cells;
  result_.cells += count;
  return first;
}

std::uint32_t PtxCells::words_of(const PtxSymbol& symbol) {
  const std::uint64_t words = (symbol.bytes + 7) / 8;
  return words > kMostWords ? 1 : static_cast<std::uint32_t>(std::max<std::uint64_t>(words, 1));
}

bool PtxCells::is_memory(const PtxSymbol& symbol) {
  return symbol.kind == PtxSymbol::Kind::param || symbol.kind == PtxSymbol::Kind::local;
}

std::size_t PtxCells::reach(const PtxFunction& function) {
  for (std::size_t i = 0; i < reached_.size(); ++i)
    if (reached_[i].function == &function) return i;
  if (reached_.size() >= kMostFunctions) fail("it calls too many functions");
  Reached reached{&function, read_ptx_body(function), {}, {}, {}};
  if (!reached.body.error.empty()) fail(reached.body.error);
  for (const PtxSymbol& symbol : reached.body.symbols)
    reached.cells.push_back(new_cells(is_memory(symbol) ? 2 * words_of(symbol) : 1));
  reached_.push_back(std::move(reached));
  return reached_.size() - 1;
}

void PtxCells::count_definitions() {
  Reached& reached = reached_[current_];
  std::vector<std::uint8_t> count(reached.body.symbols.size(), 0);
  const auto defines = [&](const auto& self, const Operand& operand, const PtxInstruction& instruction) -> void {
    for (const Operand& part : operand.parts) self(self, part, instruction);
    if (operand.kind != Operand::Kind::symbol) return;
    if (count[operand.symbol]++ == 0)
      reached.definition[operand.symbol] = &instruction;
    else
      reached.definition.erase(operand.symbol), count[operand.symbol] = 2;
  };
  // Callers fill in parameters in registers.
  for (std::size_t i = 0; i < reached.function->results.size() + reached.function->params.size(); ++i) count[i] = 2;
  for (const PtxInstruction& instruction : reached.body.instructions)
    if (!instruction.operands.empty()) defines(defines, instruction.operands[0], instruction);
}

PtxCells::Place PtxCells::place(const Operand& operand) const {
  Place result{operand.symbol, operand.value};
  for (int step = 0; step < kLongestChain && result; ++step) {
    const PtxSymbol& named = body().symbols[result.symbol];
    if (is_memory(named)) return result;
    const auto found = reached_[current_].definition.find(result.symbol);
    if (named.kind != PtxSymbol::Kind::reg || found == reached_[current_].definition.end()) return {};
    const PtxOpcode opcode(found->second->opcode);
    const auto& operands = found->second->operands;
    const bool moves = operands.size() == 2 && (opcode.base == "mov" || opcode.base == "cvta"),
               adds = operands.size() == 3 && opcode.base == "add" && operands[2].kind == Operand::Kind::number &&
                      !operands[2].odd;
    if ((!moves && !adds) || !is_wide_integer(opcode.last_type()) || operands[1].kind != Operand::Kind::symbol)
      return {};
    constexpr std::int64_t kFarthest = 1 << 30;
    const std::int64_t more = adds ? operands[2].value : 0;
    for (const std::int64_t part : {result.offset, operands[1].value, more})
      if (part > kFarthest || part < -kFarthest) return {};
    result = {operands[1].symbol, result.offset + operands[1].value + more};
  }
  return {};
}

std::uint32_t PtxCells::cell_at(const Place& at, unsigned bits) const {
  const PtxSymbol& named = body().symbols[at.symbol];
  const std::uint32_t words = words_of(named);
  const auto word = static_cast<std::uint64_t>(at.offset) / 8;
  if (at.offset < 0 || word >= words || words != (named.bytes + 7) / 8) return kNoCell;
  if (bits == 64 && at.offset % 8 != 0) return kNoCell;
  return cell(at.symbol) + 2 * static_cast<std::uint32_t>(word);
}

void PtxCells::step(Op op, std::uint32_t dst, std::uint32_t src) {
  if (dst == kNoCell || src == kNoCell) return;
  PtxStep result;
  result.op = op;
  result.dst = dst;
  result.src = src;
  result_.steps.push_back(result);
}

void PtxCells::combine(Op op, std::uint32_t dst, std::uint32_t src, std::uint32_t other) {
  if (dst == kNoCell) return;
  PtxStep result;
  result.op = op;
  result.dst = dst;
  result.src = src;
  result.other = other;
  result_.steps.push_back(result);
}

void PtxCells::number(std::uint32_t dst, std::uint32_t src) { combine(Op::number, dst, src, kNoCell); }

void PtxCells::load(std::uint32_t dst, std::uint32_t address, PtxSpace space, bool wide) {
  PtxStep result;
  result.op = dst == kNoCell ? Op::touch : Op::load;
  result.reads = true;
  result.dst = dst;
  result.address = address;
  result.space = space;
  result.wide = wide;
  result.when = when_;
  result_.steps.push_back(result);
}

void PtxCells::store(std::uint32_t src, std::uint32_t address, PtxSpace space, bool wide) {
  PtxStep result;
  result.op = src == kNoCell ? Op::touch : Op::store;
  result.writes = true;
  result.src = src;
  result.address = address;
  result.space = space;
  result.wide = wide;
  result.when = when_;
  result_.steps.push_back(result);
}

void PtxCells::touch(std::uint32_t address, PtxSpace space, bool reads, bool writes) {
  PtxStep result;
  result.op = Op::touch;
  result.reads = reads;
  result.writes = writes;
  result.address = address;
  result.space = space;
  result.when = when_;
  result_.steps.push_back(result);
}

std::uint32_t PtxCells::extra_root(PtxExtraRoot root) {
  const std::uint32_t address = new_cells(1);
  result_.given.emplace_back(address, result_.extra_root(result_.extra.size()));
  result_.extra.push_back(root);
  return address;
}

std::uint32_t PtxCells::address_of(std::uint32_t index) {
  auto& known = reached_[current_].address;
  if (const auto found = known.find(index); found != known.end()) return found->second;
  const PtxSymbol& named = body().symbols[index];
  std::uint32_t result = kNoCell;
  if (named.kind == PtxSymbol::Kind::local) {
    result = extra_root({PtxSpace::local, named.name, cell(index), words_of(named)});
  } else if (named.kind == PtxSymbol::Kind::shared) {
    result = fixed_[kRootShared];
  } else if (named.kind == PtxSymbol::Kind::param) {
    if (is_kernel_parameter(index)) {
      const PtxParam& param = kernel_.params[index];
      const std::uint32_t first = param.offset / 8, end = (param.offset + param.size + 7) / 8;
      result = extra_root({PtxSpace::param, named.name, first, end - first});
    } else {
      fail("it takes the address of a function's parameter");
    }
  } else if (named.kind == PtxSymbol::Kind::outside) {
    result = outside(named.name);
  }
  known.emplace(index, result);
  return result;
}

std::uint32_t PtxCells::outside(std::string_view name) {
  if (const auto found = module_.variable_of.find(name); found != module_.variable_of.end()) {
    const PtxVariable& variable = module_.variables[found->second];
    if (variable.space == PtxSpace::shared) return fixed_[kRootShared];
    if (const auto known = variables_.find(name); known != variables_.end()) return known->second;
    if (variable.space == PtxSpace::texture)
      hides("it uses the texture ", name);
    else if (variable.managed)
      hides("it reaches the managed variable ", name);
    else if (!names_constant(name) && result_.variable.empty())
      result_.variable
          .append(variable.space == PtxSpace::constant ? "it reads the constant variable "
                                                       : "it reaches the global variable ")
          .append(name.substr(0, 200));
    return variables_.emplace(name, extra_root({variable.space, name, 0, 0})).first->second;
  }
  if (module_.function_of.contains(name)) return fixed_[kRootCode];
  if (is_special_register(name)) return kNoCell;
  fail("an unknown name: ", name);
  return kNoCell;
}

std::uint32_t PtxCells::value(const Operand& operand) {
  if (operand.kind == Operand::Kind::number) return kNoCell;
  if (operand.kind != Operand::Kind::symbol) {
    fail("an operand that is not understood");
    return kNoCell;
  }
  const PtxSymbol& named = symbol(operand);
  if (named.kind == PtxSymbol::Kind::reg) return cell(operand.symbol);
  if (named.kind == PtxSymbol::Kind::predicate || named.kind == PtxSymbol::Kind::label || named.name == "_")
    return kNoCell;
  return address_of(operand.symbol);
}

std::vector<std::uint32_t> PtxCells::values(const Operand& operand) {
  if (operand.kind != Operand::Kind::vector) return {value(operand)};
  std::vector<std::uint32_t> result;
  for (const Operand& part : operand.parts) result.push_back(value(part));
  return result;
}

std::vector<std::uint32_t> PtxCells::targets(const Operand& operand) {
  std::vector<std::uint32_t> result;
  const auto add = [&](const Operand& each) {
    if (each.kind != Operand::Kind::symbol) return fail("a result that is not a register");
    const PtxSymbol& named = symbol(each);
    if (named.kind == PtxSymbol::Kind::reg)
      result.push_back(cell(each.symbol));
    else if (named.kind == PtxSymbol::Kind::predicate || named.name == "_")
      result.push_back(kNoCell);
    else
      fail("a result that is not a register: ", named.name);
  };
  if (operand.kind == Operand::Kind::vector)
    for (const Operand& part : operand.parts) add(part);
  else
    add(operand);
  return result;
}

std::uint32_t PtxCells::address(const Operand& operand) {
  if (operand.kind != Operand::Kind::address || operand.odd) {
    fail("an address that is not understood");
    return kNoCell;
  }
  if (operand.symbol == kNoSymbol) return fixed_[kRootUnknown];
  const std::uint32_t result = value({Operand::Kind::symbol, operand.symbol, 0, false, {}});
  return result == kNoCell ? fixed_[kRootUnknown] : result;
}
}  // namespace nimble::code
