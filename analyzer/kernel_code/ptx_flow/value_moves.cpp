#include "analyzer/kernel_code/ptx_flow/value_moves.h"

#include <algorithm>

#include "analyzer/kernel_code/ptx_flow/cells.h"
#include "analyzer/kernel_code/ptx_flow/opcodes.h"

namespace nimble::code {
namespace {

constexpr std::size_t kMostSteps = 1 << 21;

// Functions that the driver provides and that other kernels cannot notice. A failing assertion ends the program.
bool harmless(std::string_view name) { return name == "__assertfail"; }

class Builder : private PtxCells {
 public:
  Builder(const PtxModule& module, const PtxFunction& kernel) : PtxCells(module, kernel) {}

  PtxSteps build() {
    reach(kernel_);
    for (std::size_t i = 0; i < reached_.size() && result_.error.empty(); ++i) {
      current_ = i;
      count_definitions();
      const PtxGuards guards = i == 0 ? own_guards() : PtxGuards();  // callers are not examined
      if (i == 0) result_.conditions = guards.sets;
      for (std::size_t at = 0; at < body().instructions.size(); ++at) {
        when_ = at < guards.of.size() ? guards.of[at] : 0;
        decode(body().instructions[at]);
        if (result_.steps.size() > kMostSteps) fail("it is too large");
        if (!result_.error.empty()) break;
      }
    }
    return std::move(result_);
  }

 private:
  PtxGuards own_guards() const {
    const auto parameter = [this](const PtxOperand& operand, std::uint32_t bytes) -> std::optional<std::uint32_t> {
      if (operand.kind != Operand::Kind::address || operand.odd || operand.symbol == kNoSymbol) return std::nullopt;
      const Place at = place(operand);
      if (!at || !is_kernel_parameter(at.symbol)) return std::nullopt;
      const PtxParam& param = kernel_.params[at.symbol];
      if (at.offset < 0 || at.offset + bytes > param.size) return std::nullopt;
      return param.offset + static_cast<std::uint32_t>(at.offset);
    };
    return ptx_guards(body(), reached_[current_].definition, parameter);
  }

  // ---- instructions ----

  // A case for each class of instructions.
  void decode(const PtxInstruction& instruction) {
    const PtxOpcode opcode(instruction.opcode);
    const PtxClass what = ptx_class(opcode);
    const auto& operands = instruction.operands;
    if (what == PtxClass::nothing) return;
    if (what == PtxClass::unknown) {
      for (const std::string_view part : {"tex", "tld4", "suld", "sust", "sured", "txq", "suq"})
        if (opcode.base == part) hides("it uses textures or surfaces: ", instruction.opcode);
      return fail("an instruction that is not understood: ", instruction.opcode);
    }
    if (what == PtxClass::call) return call(operands);
    if (what == PtxClass::async_copy) return async_copy(opcode, operands);
    if (what == PtxClass::barrier_object) return barrier(opcode, operands);
    if (operands.empty()) {
      if (what != PtxClass::wgmma) fail("an instruction without operands: ", instruction.opcode);
      return;
    }
    switch (what) {
      case PtxClass::load:
      case PtxClass::matrix_load:
        return decode_load(opcode, operands);
      case PtxClass::store:
      case PtxClass::matrix_store:
        return decode_store(opcode, operands);
      case PtxClass::atomic:
        return decode_atomic(opcode, operands);
      case PtxClass::wmma:
        if (opcode.has("load")) return decode_load(opcode, operands);
        if (opcode.has("store")) return decode_store(opcode, operands);
        return compute(Op::weaken, operands);
      case PtxClass::wgmma:
        if (opcode.count == 0 || opcode.parts[0] != "mma_async") return;
        // Matrices in shared memory, by descriptors that contain nothing else.
        for (const std::uint32_t dst : targets(operands[0])) load(dst, fixed_[kRootShared], PtxSpace::shared, false);
        return compute(Op::weaken, operands);
      case PtxClass::discard:
        return touch(address(operands[0]), opcode.space(), false, true);
      default:
        return arithmetic(what, opcode, operands);
    }
  }

  // dst, and everything that it is computed from.
  void compute(Op op, const std::vector<Operand>& operands) {
    const auto dsts = targets(operands[0]);
    for (std::size_t i = 1; i < operands.size(); ++i) {
      if (operands[i].kind == Operand::Kind::list) return fail("an operand that is not understood");
      for (const std::uint32_t src : values(operands[i]))
        for (const std::uint32_t dst : dsts) step(op, dst, src);
    }
    if (op == Op::weaken)
      for (const std::uint32_t dst : dsts) number(dst);
  }

  // dst, and the operands that it may be one of.
  void choose(const std::vector<Operand>& operands, std::size_t among) {
    compute(Op::keep, operands);
    for (std::size_t i = 1; i <= among && i < operands.size(); ++i)
      for (const std::uint32_t dst : targets(operands[0])) constant(dst, operands[i]);
  }

  // For what is put whole into dst: an address is not a constant other than null, nor something that the hardware fills
  // in.
  void constant(std::uint32_t dst, const Operand& operand) {
    if (operand.kind == Operand::Kind::number ? operand.value == 0 && !operand.odd
                                              : operand.kind != Operand::Kind::symbol || value(operand) != kNoCell)
      return;
    number(dst);
  }

  // 64-bit integers that are added, masked, compared.
  void integers(const PtxOpcode& opcode, const std::vector<Operand>& operands) {
    if (operands.size() < 2) return fail("an instruction with too few operands");
    // A mask may leave nothing of an address, and the smaller one may be the number.
    const bool masks = opcode.base == "and" && operands.size() == 3 && operands[2].kind != Operand::Kind::number;
    const Op op = masks || opcode.base == "min" || opcode.base == "max" ? Op::either : Op::combine;
    const auto dsts = targets(operands[0]);
    for (const std::uint32_t dst : dsts) {
      std::uint32_t sum = value(operands[1]);
      if (operands.size() == 2) step(Op::keep, dst, sum);
      for (std::size_t i = 2; i < operands.size(); ++i) {
        const std::uint32_t into = i + 1 == operands.size() ? dst : new_cells(1);
        combine(op, into, sum, value(operands[i]));
        sum = into;
      }
    }
  }

  void arithmetic(PtxClass what, const PtxOpcode& opcode, const std::vector<Operand>& operands) {
    if (ptx_type_bits(opcode.last_type()) == 128) return fail("it computes with 128 bits");
    const std::string_view first = opcode.type(0);
    switch (what) {
      case PtxClass::number:
        return compute(Op::weaken, operands);
      case PtxClass::integer:
        return is_wide_integer(first) ? integers(opcode, operands) : compute(Op::weaken, operands);
      case PtxClass::chooses:
        return is_wide(first) ? choose(operands, 2) : compute(Op::weaken, operands);
      case PtxClass::insert:
        return compute(is_wide(first) ? Op::restore : Op::weaken, operands);
      case PtxClass::convert:
        return compute(is_wide_integer(first) && is_wide_integer(opcode.type(1)) ? Op::keep : Op::weaken, operands);
      case PtxClass::move:
        return move(first, operands);
      case PtxClass::to_generic:
        if (!opcode.has("to") && opcode.space() == PtxSpace::shared) {
          // A number of bytes into shared memory is an address there.
          for (const std::uint32_t dst : targets(operands[0]))
            for (const std::uint32_t src : values(operands[1])) combine(Op::combine, dst, src, fixed_[kRootShared]);
          return;
        }
        return compute(opcode.has("to") || opcode.space() == PtxSpace::global ? Op::keep : Op::restore, operands);
      default:
        return scaled(what, opcode, operands);
    }
  }

  // Products, with or without an addend, and shifts: the one operation that changes how much of an address is left.
  // Its cases depend on each other by operand, so they stay together.
  void scaled(PtxClass what, const PtxOpcode& opcode, const std::vector<Operand>& operands) {
    if (operands.size() < 3) return fail("an instruction with too few operands");
    const std::string_view first = opcode.type(0);
    const auto dsts = targets(operands[0]);
    const Operand &a = operands[1], &b = operands[2];
    const bool b_known = b.kind == Operand::Kind::number && !b.odd;
    const bool wide = is_wide_integer(first);
    Op of_a = Op::weaken;
    if (what == PtxClass::shift_right) {
      if (wide) of_a = Op::lower;
    } else if (what == PtxClass::shift_left) {
      if (wide) of_a = !b_known ? Op::restore : b.value == 0 ? Op::keep : b.value > 16 ? Op::raise : Op::weaken;
    } else if (wide && opcode.has("lo")) {
      // A product is a number, unless a factor only moves or negates.
      for (const Operand& factor : {a, b}) {
        if (factor.kind != Operand::Kind::number) continue;
        if (factor.value == 1 || factor.value == -1 || factor.odd) of_a = Op::keep;
        if (factor.value > 0xffff || factor.value < -0xffff) of_a = Op::raise;
      }
    }
    const bool product = what == PtxClass::multiply || what == PtxClass::multiply_add;
    if (what == PtxClass::multiply_add && operands.size() < 4) return fail("an instruction with too few operands");
    for (const std::uint32_t dst : dsts) {
      const bool alone = what == PtxClass::multiply || (!product && b_known);
      const std::uint32_t part = alone || dst == kNoCell ? dst : new_cells(1);
      step(of_a, part, value(a));
      if (of_a == Op::weaken) number(part);
      if (of_a == Op::restore) number(part, value(a));
      if (product) step(of_a, part, value(b));
      if (alone) continue;
      std::uint32_t rest = product ? value(operands[3]) : value(b);
      const bool addend_whole = wide || (opcode.has("wide") && ptx_type_bits(first) == 32 && first[0] != 'f');
      if (!product || !addend_whole || opcode.has("hi")) {
        const std::uint32_t weak = new_cells(1);
        step(Op::weaken, weak, rest);
        number(weak);
        rest = weak;
      }
      combine(Op::combine, dst, part, rest);
    }
  }

  void move(std::string_view type, const std::vector<Operand>& operands) {
    if (operands.size() != 2) return fail("a move with other than two operands");
    const bool wide = is_wide(type);
    const bool packs = operands[1].kind == Operand::Kind::vector, splits = operands[0].kind == Operand::Kind::vector;
    const Op op = !wide || splits ? Op::weaken : packs ? Op::restore : Op::keep;
    for (const std::uint32_t dst : targets(operands[0])) {
      for (const std::uint32_t src : values(operands[1])) step(op, dst, src);
      if (op == Op::keep) constant(dst, operands[1]);
    }
  }

  // ---- memory ----

  void decode_load(const PtxOpcode& opcode, const std::vector<Operand>& operands) {
    if (operands.size() < 2) return fail("a load with too few operands");
    const unsigned bits = ptx_type_bits(opcode.base == "ld" || opcode.base == "ldu" ? opcode.last_type() : "b32");
    if (bits == 0 || bits == 128) return fail("a load of an unknown width");
    const auto dsts = targets(operands[0]);
    Place at = known_place(opcode, operands[1]);
    std::uint32_t from = kNoCell;
    for (const std::uint32_t dst : dsts) {
      if (!at || !load_place(dst, at, bits)) {
        if (from == kNoCell) from = address(operands[1]);
        load(dst, from, opcode.space(), bits == 64);
      }
      at.offset += bits / 8;
    }
  }

  Place known_place(const PtxOpcode& opcode, const Operand& operand) const {
    const PtxSpace space = opcode.space();
    if (operand.kind != Operand::Kind::address || operand.odd || operand.symbol == kNoSymbol) return {};
    if (space != PtxSpace::param && space != PtxSpace::local && space != PtxSpace::generic) return {};
    return place(operand);
  }

  bool load_place(std::uint32_t dst, const Place& at, unsigned bits) {
    if (is_kernel_parameter(at.symbol)) {
      const PtxParam& param = kernel_.params[at.symbol];
      if (at.offset < 0 || at.offset + bits / 8 > param.size) {
        fail("a load past the end of a parameter");
        return true;
      }
      const std::uint32_t byte = param.offset + static_cast<std::uint32_t>(at.offset);
      if (bits == 64)
        step(Op::keep, dst, byte % 8 == 0 ? first_word_ + byte / 8 : fixed_[kRootUnknown]);
      else
        step(Op::weaken, dst, first_half_ + byte / 4);
      return true;
    }
    const std::uint32_t from = cell_at(at, bits);
    if (from == kNoCell) return false;
    step(bits == 64 ? Op::keep : Op::weaken, dst, from);
    step(bits == 64 ? Op::restore : Op::weaken, dst, from + 1);
    return true;
  }

  void decode_store(const PtxOpcode& opcode, const std::vector<Operand>& operands) {
    if (operands.size() < 2) return fail("a store with too few operands");
    const unsigned bits = ptx_type_bits(opcode.base == "st" ? opcode.last_type() : "b32");
    if (bits == 0 || bits == 128) return fail("a store of an unknown width");
    const auto srcs = values(operands[1]);
    Place at = known_place(opcode, operands[0]);
    std::uint32_t to = kNoCell;
    for (const std::uint32_t src : srcs) {
      const std::uint32_t known = at && !is_kernel_parameter(at.symbol) ? cell_at(at, bits) : kNoCell;
      if (known != kNoCell) {
        step(bits == 64 ? Op::keep : Op::weaken, bits == 64 ? known : known + 1, src);
      } else {
        if (to == kNoCell) to = address(operands[0]);
        store(src, to, opcode.space(), bits == 64);
      }
      at.offset += bits / 8;
    }
  }

  void decode_atomic(const PtxOpcode& opcode, const std::vector<Operand>& operands) {
    const bool result = opcode.base == "atom";
    const std::size_t place = result ? 1 : 0;
    const unsigned bits = ptx_type_bits(opcode.last_type());
    if (operands.size() <= place || bits == 0 || bits == 128) return fail("an atomic operation that is not understood");
    const std::uint32_t at = address(operands[place]);
    touch(at, opcode.space(), true, true);
    for (std::size_t i = place + 1; i < operands.size(); ++i)
      for (const std::uint32_t src : values(operands[i])) store(src, at, opcode.space(), bits == 64);
    if (!result) return;
    for (const std::uint32_t dst : targets(operands[0])) load(dst, at, opcode.space(), bits == 64);
  }

  // cp.async and the bulk copies that take no tensor map: from global memory to shared memory, or back.
  void async_copy(const PtxOpcode& opcode, const std::vector<Operand>& operands) {
    for (const std::string_view part : {"commit_group", "wait_group", "wait_all", "mbarrier", "prefetch"})
      if (opcode.has(part) && !opcode.has("tensor")) return;
    if (opcode.count == 0 || opcode.parts[0] != "async" || opcode.has("tensor") || opcode.has("reduce") ||
        operands.size() < 2)
      return fail("an instruction that is not understood: cp.", opcode.count != 0 ? opcode.parts[0] : "");
    const PtxSpace to = opcode.space();
    const bool out = to == PtxSpace::global;
    if (!out && !opcode.has("global")) return fail("a copy between blocks");
    if (out && !opcode.has_prefix("shared")) return fail("a copy that is not understood");
    const std::uint32_t dst = address(operands[0]), src = address(operands[1]);
    const std::uint32_t moved = new_cells(1);
    load(moved, src, out ? PtxSpace::shared : PtxSpace::global, true);
    store(moved, dst, to, true);
  }

  // Objects in shared memory that threads use to wait for each other.
  void barrier(const PtxOpcode& opcode, const std::vector<Operand>& operands) {
    if (opcode.space() == PtxSpace::shared) return;
    for (const Operand& operand : operands)
      if (operand.kind == Operand::Kind::address) touch(address(operand), opcode.space(), true, true);
  }

  // ---- calls ----

  // call (results), name, (arguments), prototype;
  void call(const std::vector<Operand>& operands) {
    static const Operand kNone{Operand::Kind::list, kNoSymbol, 0, false, {}};
    std::size_t at = 0;
    const bool has_results = !operands.empty() && operands[0].kind == Operand::Kind::list;
    const Operand& results = has_results ? operands[at++] : kNone;
    if (at >= operands.size() || operands[at].kind != Operand::Kind::symbol)
      return fail("a call that is not understood");
    const PtxSymbol& named = symbol(operands[at++]);
    const Operand& arguments = at < operands.size() && operands[at].kind == Operand::Kind::list ? operands[at] : kNone;
    if (named.kind != PtxSymbol::Kind::outside) {
      hides("it calls through a pointer", "");
      return fail("it calls through a pointer");
    }
    const PtxFunction* callee = module_.find(named.name);
    if (callee == nullptr || !callee->defined) {
      if (harmless(named.name)) return;
      hides("it calls ", named.name);
      return fail("it calls ", named.name);
    }
    if (callee->entry) return fail("it calls a kernel");
    if (callee->params.size() != arguments.parts.size() || callee->results.size() != results.parts.size())
      return fail("a call whose parameters do not match ", named.name);
    const std::size_t other = reach(*callee);
    if (!result_.error.empty()) return;
    const auto first = static_cast<std::uint32_t>(callee->results.size());
    for (std::uint32_t i = 0; i < arguments.parts.size(); ++i) pass(arguments.parts[i], other, first + i, true);
    for (std::uint32_t i = 0; i < results.parts.size(); ++i) pass(results.parts[i], other, i, false);
  }

  // Between what the caller names and a parameter of the callee. Either may be a register.
  void pass(const Operand& operand, std::size_t other, std::uint32_t formal, bool into) {
    if (operand.kind == Operand::Kind::number) return constant(into ? reached_[other].cells[formal] : kNoCell, operand);
    if (operand.kind != Operand::Kind::symbol) return fail("an argument that is not understood");
    const PtxSymbol &named = symbol(operand), &its = reached_[other].body.symbols[formal];
    if (named.kind != PtxSymbol::Kind::reg && named.kind != PtxSymbol::Kind::param)
      return fail("an argument that is not understood");
    if (is_kernel_parameter(operand.symbol)) return fail("a kernel's parameter as an argument");
    const std::uint32_t own_cell = cell(operand.symbol), its_cell = reached_[other].cells[formal];
    const PtxSymbol &source = into ? named : its, &target = into ? its : named;
    const std::uint32_t from = into ? own_cell : its_cell, to = into ? its_cell : own_cell;
    if (!is_memory(source) || !is_memory(target)) {
      step(Op::keep, to, from);
      if (is_memory(source)) step(Op::restore, to, from + 1);
      if (words_of(source) != 1 || words_of(target) != 1) fail("an argument of another size");
      return;
    }
    if (words_of(source) != words_of(target)) return fail("an argument of another size");
    for (std::uint32_t i = 0; i < 2 * words_of(source); ++i) step(Op::keep, to + i, from + i);
  }
};

}  // namespace

PtxSteps ptx_steps(const PtxModule& module, const PtxFunction& kernel) { return Builder(module, kernel).build(); }

}  // namespace nimble::code
