#include "analyzer/kernel_code/sass_code/reach.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "analyzer/kernel_code/sass/decode.h"

namespace nimble::code::sass {
namespace {

constexpr unsigned kBra = 0x947, kBrx = 0x949, kBrxu = 0x1958, kCallRel = 0x944, kCallAbs = 0x943, kCallAbsR = 0x343,
                   kBssy = 0x945, kBsync = 0x941, kBmovBack = 0x356, kBmovImmediate = 0x956;
constexpr std::size_t kMostInstructions = 1u << 20;
constexpr unsigned kAtCondition = 87, kAbsoluteAt = 85;

// A failing assertion ends the program; nothing comes back from it.
constexpr std::string_view kAssertFail = "__assertfail";
// It reads its arguments, and writes to a buffer of the runtime, so that what two kernels print has an order. Where a
// trap follows, as in error messages, nothing is left of the program that this could matter to.
constexpr std::string_view kPrint = "vprintf";

std::string hex(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

class Explorer {
 public:
  explicit Explorer(const Kernel& kernel) : kernel_(kernel) {}

  Reach run() {
    if (kernel_.instructions() > kMostInstructions) {
      fail("it is too large");
      return std::move(reach_);
    }
    reach_.instructions.resize(kernel_.instructions());
    reach_.ends.resize(kernel_.instructions());
    reach_.reached.resize(kernel_.instructions());
    if (explore() && is_straight()) {
      find_jumps();
      waits_go_on_behind();
    }
    return std::move(reach_);
  }

 private:
  bool fail(std::string why) {
    if (reach_.error.empty()) reach_.error = std::move(why);
    return false;
  }

  Word word(std::uint32_t at) const {
    const std::uint64_t byte = std::uint64_t{at} * kInstructionBytes;
    return {*read_at<std::uint64_t>(kernel_.text, byte), *read_at<std::uint64_t>(kernel_.text, byte + 8)};
  }

  bool is_inside(std::int64_t byte) const {
    return byte >= 0 && byte % static_cast<std::int64_t>(kInstructionBytes) == 0 &&
           static_cast<std::uint64_t>(byte) < kernel_.text.size();
  }

  bool target(std::uint32_t at, std::vector<std::uint32_t>& to) {
    const std::int64_t byte = std::int64_t{at} * 16 + reach_.instructions[at].target.value_or(-1);
    if (!is_inside(byte)) return fail("a branch leaves the code at byte " + hex(std::uint64_t{at} * 16));
    to.push_back(static_cast<std::uint32_t>(byte / 16));
    return true;
  }

  // Everything that can be reached, instruction by instruction; functions are begun where they are called.
  bool explore() {
    std::vector<std::uint32_t> open;
    const auto reach = [&](std::uint32_t at) {
      if (reach_.reached[at]) return;
      reach_.reached[at] = true;
      open.push_back(at);
    };
    reach_.leaders.insert(kernel_.entry / 16);
    reach(kernel_.entry / 16);
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      open.pop_back();
      Instruction& instruction = reach_.instructions[at];
      instruction = decode(word(at), kernel_.arch);
      if (instruction.what == Class::unknown)
        return fail("an instruction that is not known, at byte " + hex(std::uint64_t{at} * 16) + ": " +
                    hex(word(at).high) + " " + hex(word(at).low));
      End& end = reach_.ends[at];
      if (!end_of(at, end)) return false;
      if (end.is) {
        for (const std::uint32_t to : end.to) reach_.leaders.insert(to), reach(to);
        if (end.call) reach_.leaders.insert(*end.call), reach(*end.call);
        if (!end.falls_through && !end.call) continue;
      }
      if (at + 1 == kernel_.instructions()) return fail("it goes on past its end");
      if (end.is) reach_.leaders.insert(at + 1);
      reach(at + 1);
    }
    return true;
  }

  bool is_always(const Instruction& instruction, std::uint32_t at) const {
    return instruction.guard.when == Guard::When::always && word(at).bits(kAtCondition, 3) == 7 &&
           word(at).bit(90) == 0;
  }

  bool end_of(std::uint32_t at, End& end) {
    const Instruction& instruction = reach_.instructions[at];
    if (instruction.guard.when == Guard::When::never) return true;
    switch (instruction.what) {
      case Class::branch:
        end.is = true;
        end.falls_through = instruction.opcode != kBra || !is_always(instruction, at);
        if (instruction.opcode == kBrx || instruction.opcode == kBrxu) return jump(at, end);
        return target(at, end.to);
      case Class::exit:
        end.is = true;
        // What its other modifiers do is not known (bits 84 and 85).
        end.falls_through = !is_always(instruction, at) || word(at).bits(84, 2) != 0;
        return true;
      case Class::trap:
        end.is = true;
        end.falls_through = instruction.guard.when != Guard::When::always;
        return true;
      case Class::return_:
        // To an offset in the section, which is what the target says of the register; or (.ABS) to an address.
        if (word(at).bit(kAbsoluteAt) == 0 && reach_.instructions[at].target != -(std::int64_t{at} * 16))
          return fail("a return to an address that is not known");
        end.is = end.returns = true;
        end.falls_through = !is_always(instruction, at);
        return true;
      case Class::call:
        return call(at, end);
      case Class::convergence:
        if (instruction.opcode == kBssy) return true;
        end.is = instruction.target.has_value();
        end.falls_through = true;
        return !end.is || target(at, end.to);
      default:
        return true;
    }
  }

  bool jump(std::uint32_t at, End& end) {
    const auto known = kernel_.indirect.find(at * 16);
    if (known == kernel_.indirect.end())
      return fail("a branch to an address that is not known, at byte " + hex(std::uint64_t{at} * 16));
    end.falls_through = !is_always(reach_.instructions[at], at);
    for (const std::uint32_t byte : known->second) {
      if (!is_inside(byte)) return fail("a branch leaves the code at byte " + hex(std::uint64_t{at} * 16));
      end.to.push_back(byte / 16);
    }
    return true;
  }

  bool call(std::uint32_t at, End& end) {
    const Instruction& instruction = reach_.instructions[at];
    end.is = true;
    if (instruction.opcode == kCallRel) {
      std::vector<std::uint32_t> to;
      if (!target(at, to)) return false;
      end.call = to.front();
      end.falls_through = !is_always(instruction, at);
      return true;
    }
    std::string_view name;
    if (instruction.opcode == kCallAbs) {
      if (const auto symbol = kernel_.in_text.find(at * 16); symbol != kernel_.in_text.end())
        name = symbol->second.name;
    } else if (instruction.opcode == kCallAbsR) {
      name = named_by(at);
    }
    if (name.empty()) return fail("a call through a pointer, at byte " + hex(std::uint64_t{at} * 16));
    if (name != kAssertFail && !(name == kPrint && is_trap(at + 1)))
      return fail("it calls " + std::string(name.substr(0, 200)));
    end.falls_through = !is_always(instruction, at);
    return true;
  }

  bool is_trap(std::uint32_t at) const {
    if (at >= kernel_.instructions()) return false;
    const Instruction instruction = decode(word(at), kernel_.arch);
    return instruction.what == Class::trap && instruction.guard.when == Guard::When::always;
  }

  // One of the functions in bank 4, it is not known which: it prints, where all that do not are failing assertions.
  std::string_view one_in_bank4() const {
    std::string_view found;
    for (const auto& [at, symbol] : kernel_.in_bank4) {
      if (symbol.kind == SymbolAt::Kind::variable) continue;
      if (symbol.name != kPrint && symbol.name != kAssertFail) return {};
      found = kPrint;
    }
    return found;
  }

  // The symbol of which the address was loaded from bank 4 into the registers that are called, a few instructions ago.
  std::string_view named_by(std::uint32_t at) {
    const Registers* called = nullptr;
    for (const Registers& registers : reach_.instructions[at].read)
      if (registers.file == File::r && registers.at == kAtA) called = &registers;
    if (!called) return {};
    for (std::uint32_t before = at; before-- > 0 && at - before < kLookBack;) {
      const Instruction instruction = decode(word(before), kernel_.arch);
      if (ends_block(instruction)) return {};
      if (!writes(instruction, *called)) continue;
      if (instruction.guard.when != Guard::When::always) return {};
      if (instruction.what != Class::constant_load || !instruction.constant || instruction.constant->bank != 4)
        return {};
      std::int64_t offset = instruction.constant->offset;
      if (instruction.constant->index) {
        std::uint32_t since = 0;
        const auto index = constant_before(before, *instruction.constant->index, since);
        straight_.emplace_back(before, at);
        if (!index) return one_in_bank4();
        offset += static_cast<std::int32_t>(*index);
        straight_.emplace_back(since, at);
      }
      straight_.emplace_back(before, at);
      const auto symbol = offset >= 0 && offset <= UINT32_MAX
                              ? kernel_.in_bank4.find(static_cast<std::uint32_t>(offset))
                              : kernel_.in_bank4.end();
      return symbol == kernel_.in_bank4.end() ? std::string_view{} : symbol->second.name;
    }
    return {};
  }

  static bool ends_block(const Instruction& instruction) {
    return instruction.what == Class::branch || instruction.what == Class::call || instruction.what == Class::exit ||
           instruction.what == Class::return_ || instruction.what == Class::trap || instruction.what == Class::unknown;
  }

  static bool writes(const Instruction& instruction, const Registers& registers) {
    return std::any_of(instruction.written.begin(), instruction.written.end(), [&](const Registers& written) {
      return written.file == registers.file && written.first < registers.first + registers.count &&
             registers.first < written.first + written.count;
    });
  }

  // The number in a register when that instruction runs, if it was put there in the same stretch of code.
  std::optional<std::uint32_t> constant_before(std::uint32_t at, Registers registers, std::uint32_t& since) const {
    registers.count = 1;
    for (std::uint32_t before = at; before-- > 0 && at - before < kLookBack;) {
      const Instruction instruction = decode(word(before), kernel_.arch);
      if (ends_block(instruction)) return std::nullopt;
      if (!writes(instruction, registers)) continue;
      std::uint32_t value = 0;
      since = before;
      return constant_of(instruction, value) ? std::optional(value) : std::nullopt;
    }
    return std::nullopt;
  }

  // What was looked back for was looked for in code that nothing branches into.
  bool is_straight() {
    for (const auto& [from, to] : straight_)
      if (const auto leader = reach_.leaders.upper_bound(from); leader != reach_.leaders.end() && *leader <= to)
        return fail("a call through a pointer, at byte " + hex(std::uint64_t{to} * 16));
    return true;
  }

  // ---- calls that are jumps ----

  // From which instructions a return can be reached, in the function that they belong to: past calls that return.
  // Nothing where that takes too long to find.
  std::optional<std::vector<bool>> find_returning() const {
    constexpr int kMostRounds = 100;
    std::vector<bool> returning(kernel_.instructions());
    for (int round = 0; round < kMostRounds; ++round) {
      bool changed = false;
      for (std::uint32_t at = static_cast<std::uint32_t>(kernel_.instructions()); at-- > 0;) {
        if (!reach_.reached[at] || returning[at]) continue;
        const End& end = reach_.ends[at];
        bool is = end.returns || std::any_of(end.to.begin(), end.to.end(), [&](auto to) { return returning[to]; });
        if (!end.is || end.falls_through) is = is || returning[at + 1];
        if (end.call) is = is || (returning[*end.call] && returning[at + 1]);
        returning[at] = is;
        changed |= is;
      }
      if (!changed) return returning;
    }
    return std::nullopt;
  }

  // A call of code that ends there, or goes on elsewhere for good, leads there and not back.
  void find_jumps() {
    const auto is_call = [](const End& end) { return end.call.has_value(); };
    if (std::none_of(reach_.ends.begin(), reach_.ends.end(), is_call)) return;
    const auto returning = find_returning();
    if (!returning) return;
    for (End& end : reach_.ends) {
      if (!end.call || (*returning)[*end.call]) continue;
      end.to.push_back(*end.call);
      end.call.reset();
    }
    reach_.reached.assign(kernel_.instructions(), false);
    std::vector<std::uint32_t> open;
    const auto reach = [&](std::uint32_t at) {
      if (reach_.reached[at]) return;
      reach_.reached[at] = true;
      open.push_back(at);
    };
    reach(kernel_.entry / 16);
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      open.pop_back();
      const End& end = reach_.ends[at];
      for (const std::uint32_t to : end.to) reach(to);
      if (end.call) reach(*end.call);
      if (!end.is || end.falls_through || end.call) reach(at + 1);
    }
  }

  // Threads that wait for each other go on where the place to meet was named, which is after the wait: so it is at all
  // 85 000 of sm_75, sm_90 and sm_100 in libtorch_cuda that were looked at. A barrier that was put away, and back by
  // BMOV, is any that was: each place to meet that is named counts.
  void waits_go_on_behind() {
    std::map<std::uint64_t, std::set<std::uint32_t>> meet;  // by barrier
    std::set<std::uint32_t> any;
    std::set<std::uint64_t> put_back;
    const auto for_each = [&](unsigned opcode, const auto& act) {
      for (std::uint32_t at = 0; at < kernel_.instructions(); ++at)
        if (reach_.reached[at] && reach_.instructions[at].opcode == opcode) act(at);
    };
    for_each(kBssy, [&](std::uint32_t at) {
      std::vector<std::uint32_t> to;
      if (!target(at, to)) return;
      meet[word(at).bits(16, 4)].insert(to.front());
      any.insert(to.front());
    });
    for (const unsigned opcode : {kBmovBack, kBmovImmediate})
      for_each(opcode, [&](std::uint32_t at) { put_back.insert(word(at).bits(24, 4)); });
    for_each(kBsync, [&](std::uint32_t at) {
      const std::uint64_t barrier = word(at).bits(16, 4);
      if (!meet[barrier].contains(at + 1) && !(put_back.contains(barrier) && any.contains(at + 1)))
        fail("a wait that goes on elsewhere");
    });
  }

  static constexpr std::uint32_t kLookBack = 256;  // instructions

  const Kernel& kernel_;
  Reach reach_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> straight_;  // stretches that control must go through as a whole
};

}  // namespace

bool constant_of(const Instruction& instruction, std::uint32_t& value) {
  if (instruction.guard.when != Guard::When::always || !instruction.immediate) return false;
  const std::string_view name = instruction.name;
  const bool is_move = name == "MOV" || name == "UMOV";
  // A product of zeros, and the immediate added to it.
  const bool is_sum = (name == "IMAD" || name == "HFMA2") && (instruction.opcode >> 9 & 7) == 2;
  if (!is_move && !is_sum) return false;
  for (const Registers& registers : instruction.read)
    if (registers.file == File::r || registers.file == File::ur) return false;
  value = *instruction.immediate;
  return true;
}

const Registers* copied_by(const Instruction& instruction, Word word) {
  constexpr unsigned kMaskAt = 72, kWholeMask = 15;            // of MOV: which bytes
  constexpr unsigned kNegations[] = {63, 72, 74, 75};          // of IMAD's operands, and what adds a carry
  constexpr unsigned kMov = 0x02, kImad = 0x24, kUmov = 0x82;  // whatever the form is, which bits 9 to 11 say
  if (instruction.guard.when != Guard::When::always || instruction.immediate || instruction.constant) return nullptr;
  if (instruction.read.size() != 1 || instruction.written.size() != 1) return nullptr;
  const Registers& from = instruction.read[0];
  const Registers& to = instruction.written[0];
  const auto is_register = [](const Registers& each) { return each.file == File::r || each.file == File::ur; };
  if (!is_register(from) || !is_register(to) || from.count != to.count) return nullptr;
  const unsigned form = instruction.opcode >> 9 & 7;
  switch (instruction.opcode & 0x1ff) {
    case kMov:
      return word.bits(kMaskAt, 4) == kWholeMask ? &from : nullptr;
    case kUmov:
      return &from;
    case kImad:
      // Zero times zero, and what is added: the third operand.
      if (from.at != (form == 7 ? kAtB : kAtC) || form == 2 || form == 3 || from.count != 1) return nullptr;
      for (const unsigned bit : kNegations)
        if (word.bit(bit) != 0) return nullptr;
      return &from;
    default:
      return nullptr;
  }
}

Reach reach_of(const Kernel& kernel) { return Explorer(kernel).run(); }

}  // namespace nimble::code::sass
