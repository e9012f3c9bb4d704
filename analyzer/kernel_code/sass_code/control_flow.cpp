#include "analyzer/kernel_code/sass_code/control_flow.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "analyzer/kernel_code/sass/decode.h"

namespace nimble::code::sass {
namespace {

constexpr unsigned kBra = 0x947, kBrx = 0x949, kBrxu = 0x1958, kCallRel = 0x944, kCallAbs = 0x943, kCallAbsR = 0x343,
                   kBssy = 0x945, kBsync = 0x941;
constexpr std::size_t kMostInstructions = 1u << 20;
constexpr unsigned kAtCondition = 87;

// A failing assertion ends the program; nothing comes back from it.
bool never_returns(std::string_view name) { return name == "__assertfail"; }

std::string hex(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

class Builder {
 public:
  explicit Builder(const Kernel& kernel) : kernel_(kernel) {}

  ControlFlow run() {
    if (kernel_.instructions() > kMostInstructions) {
      fail("it is too large");
      return std::move(flow_);
    }
    flow_.text = kernel_.text;
    for (const auto& [byte, symbol] : kernel_.in_text)
      flow_.relocated.insert(byte / static_cast<std::uint32_t>(kInstructionBytes));
    flow_.instructions.resize(kernel_.instructions());
    ends_.resize(kernel_.instructions());
    reached_.resize(kernel_.instructions());
    if (explore() && is_straight() && make_blocks() && waits_go_on_behind() && follow_calls()) find_clobbered();
    return std::move(flow_);
  }

 private:
  // Where control goes after an instruction that ends a block.
  struct End {
    bool is = false;
    bool falls_through = false;
    bool returns = false;
    std::vector<std::uint32_t> to;      // instructions
    std::optional<std::uint32_t> call;  // the instruction at which the callee begins
  };

  bool fail(std::string why) {
    if (flow_.error.empty()) flow_.error = std::move(why);
    return false;
  }

  Word word(std::uint32_t at) const { return flow_.word(at); }

  bool is_inside(std::int64_t byte) const {
    return byte >= 0 && byte % static_cast<std::int64_t>(kInstructionBytes) == 0 &&
           static_cast<std::uint64_t>(byte) < kernel_.text.size();
  }

  bool target(std::uint32_t at, std::vector<std::uint32_t>& to) {
    const std::int64_t byte = std::int64_t{at} * 16 + flow_.instructions[at].target.value_or(-1);
    if (!is_inside(byte)) return fail("a branch leaves the code at byte " + hex(std::uint64_t{at} * 16));
    to.push_back(static_cast<std::uint32_t>(byte / 16));
    return true;
  }

  // Everything that can be reached, instruction by instruction; functions are begun where they are called.
  bool explore() {
    std::vector<std::uint32_t> open;
    const auto reach = [&](std::uint32_t at) {
      if (reached_[at]) return;
      reached_[at] = true;
      open.push_back(at);
    };
    leaders_.insert(kernel_.entry / 16);
    reach(kernel_.entry / 16);
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      open.pop_back();
      Instruction& instruction = flow_.instructions[at];
      instruction = decode(word(at), kernel_.arch);
      if (instruction.what == Class::unknown)
        return fail("an instruction that is not known, at byte " + hex(std::uint64_t{at} * 16) + ": " +
                    hex(word(at).high) + " " + hex(word(at).low));
      End& end = ends_[at];
      if (!end_of(at, end)) return false;
      if (end.is) {
        for (const std::uint32_t to : end.to) leaders_.insert(to), reach(to);
        if (end.call) leaders_.insert(*end.call), reach(*end.call);
        if (!end.falls_through && !end.call) continue;
      }
      if (at + 1 == kernel_.instructions()) return fail("it goes on past its end");
      if (end.is) leaders_.insert(at + 1);
      reach(at + 1);
    }
    return true;
  }

  bool is_always(const Instruction& instruction, std::uint32_t at) const {
    return instruction.guard.when == Guard::When::always && word(at).bits(kAtCondition, 3) == 7 &&
           word(at).bit(90) == 0;
  }

  bool end_of(std::uint32_t at, End& end) {
    const Instruction& instruction = flow_.instructions[at];
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
        // To an offset in the section, which is what the target says of the register; RET.ABS (bit 85) is another
        // thing.
        if (word(at).bit(85) != 0 || instruction.target != -(std::int64_t{at} * 16))
          return fail("a return to an address that is not known");
        end.is = end.returns = true;
        end.falls_through = !is_always(instruction, at);
        return true;
      case Class::call:
        return call(at, end);
      case Class::convergence:
        if (instruction.opcode == kBssy) return meet(at);
        end.is = instruction.target.has_value();
        end.falls_through = true;
        return !end.is || target(at, end.to);
      default:
        return true;
    }
  }

  bool meet(std::uint32_t at) {
    std::vector<std::uint32_t> to;
    if (!target(at, to)) return false;
    meet_[word(at).bits(16, 4)].insert(to.front());
    return true;
  }

  bool jump(std::uint32_t at, End& end) {
    const auto known = kernel_.indirect.find(at * 16);
    if (known == kernel_.indirect.end())
      return fail("a branch to an address that is not known, at byte " + hex(std::uint64_t{at} * 16));
    end.falls_through = !is_always(flow_.instructions[at], at);
    for (const std::uint32_t byte : known->second) {
      if (!is_inside(byte)) return fail("a branch leaves the code at byte " + hex(std::uint64_t{at} * 16));
      end.to.push_back(byte / 16);
    }
    return true;
  }

  bool call(std::uint32_t at, End& end) {
    const Instruction& instruction = flow_.instructions[at];
    end.is = true;
    if (instruction.opcode == kCallRel) {
      std::vector<std::uint32_t> to;
      if (!target(at, to)) return false;
      end.call = to.front();
      if (!is_always(instruction, at)) return fail("a call under a condition");
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
    if (!never_returns(name)) return fail("it calls " + std::string(name.substr(0, 200)));
    end.falls_through = !is_always(instruction, at);
    return true;
  }

  // The symbol of which the address was loaded from bank 4 into the registers that are called, a few instructions ago.
  std::string_view named_by(std::uint32_t at) {
    const Registers* called = nullptr;
    for (const Registers& registers : flow_.instructions[at].read)
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
        if (!index) return {};
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
      if (const auto leader = leaders_.upper_bound(from); leader != leaders_.end() && *leader <= to)
        return fail("a call through a pointer, at byte " + hex(std::uint64_t{to} * 16));
    return true;
  }

  bool make_blocks() {
    block_of_.assign(kernel_.instructions(), kNoBlock);
    for (std::uint32_t at = 0; at < kernel_.instructions(); ++at) {
      if (!reached_[at]) continue;
      const bool begins = leaders_.contains(at) || at == 0 || !reached_[at - 1] || ends_[at - 1].is;
      if (begins) {
        flow_.blocks.emplace_back();
        flow_.blocks.back().begin = at;
      }
      block_of_[at] = static_cast<std::uint32_t>(flow_.blocks.size() - 1);
      flow_.blocks.back().end = at + 1;
    }
    for (std::uint32_t block = 0; block < flow_.blocks.size(); ++block) {
      const std::uint32_t last = flow_.blocks[block].end - 1;
      const End& end = ends_[last];
      for (const std::uint32_t to : end.to) lead(block, block_of_[to]);
      if (!end.is || end.falls_through) lead(block, block_of_[last + 1]);
    }
    return true;
  }

  // Threads that wait for each other go on where the place to meet was named, which is after the wait: so it is at all
  // 85 000 of sm_75, sm_90 and sm_100 in libtorch_cuda that were looked at.
  bool waits_go_on_behind() {
    for (const Block& block : flow_.blocks)
      for (std::uint32_t at = block.begin; at < block.end; ++at)
        if (flow_.instructions[at].opcode == kBsync && !meet_[word(at).bits(16, 4)].contains(at + 1))
          return fail("a wait that goes on elsewhere");
    return true;
  }

  void lead(std::uint32_t from, std::uint32_t to) { flow_.blocks[to].from.push_back({from, false}); }

  // Functions: what is reached from where one begins, without going into those that it calls.
  bool follow_calls() {
    std::map<std::uint32_t, std::uint32_t> function_at;  // by block
    std::vector<std::vector<std::uint32_t>> next(flow_.blocks.size());
    for (std::uint32_t block = 0; block < flow_.blocks.size(); ++block)
      for (const Block::From& from : flow_.blocks[block].from) next[from.block].push_back(block);
    const auto function = [&](std::uint32_t block) {
      const auto [found, is_new] = function_at.emplace(block, flow_.functions.size());
      if (is_new) flow_.functions.push_back({block, {}, {}});
      return found->second;
    };
    function(block_of_[kernel_.entry / 16]);
    std::vector<std::uint32_t> owner(flow_.blocks.size(), kNoBlock);
    for (std::uint32_t f = 0; f < flow_.functions.size(); ++f) {
      std::vector<std::uint32_t> open{flow_.functions[f].entry};
      while (!open.empty()) {
        const std::uint32_t block = open.back();
        open.pop_back();
        if (owner[block] == f) continue;
        if (owner[block] != kNoBlock) return fail("functions that share code");
        owner[block] = f;
        flow_.blocks[block].function = f;
        for (const std::uint32_t to : next[block]) open.push_back(to);
        const std::uint32_t last = flow_.blocks[block].end - 1;
        if (ends_[last].returns) flow_.functions[f].returns.push_back(block);
        if (!ends_[last].call) continue;
        flow_.blocks[block].callee = function(block_of_[*ends_[last].call]);
        open.push_back(block_of_[last + 1]);
      }
    }
    if (!flow_.functions.front().returns.empty()) return fail("the kernel returns");
    for (std::uint32_t block = 0; block < flow_.blocks.size(); ++block) {
      if (flow_.blocks[block].callee != kNoBlock)
        flow_.blocks[block_of_[flow_.blocks[block].end]].from.push_back({block, true});
    }
    return true;
  }

  void find_clobbered() {
    for (const Block& block : flow_.blocks)
      for (std::uint32_t at = block.begin; at < block.end; ++at)
        for (const Registers& registers : flow_.instructions[at].written)
          for (std::uint32_t i = 0; i < registers.count; ++i)
            flow_.functions[block.function].clobbered.set(variable_of(registers.file, registers.first + i));
    for (bool changed = true; changed;) {
      changed = false;
      for (const Block& block : flow_.blocks) {
        if (block.callee == kNoBlock) continue;
        VariableSet& own = flow_.functions[block.function].clobbered;
        const VariableSet with = own | flow_.functions[block.callee].clobbered;
        changed |= with != own;
        own = with;
      }
    }
  }

  static constexpr std::uint32_t kLookBack = 256;  // instructions

  const Kernel& kernel_;
  ControlFlow flow_;
  std::vector<End> ends_;
  std::vector<bool> reached_;
  std::set<std::uint32_t> leaders_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> straight_;  // stretches that control must go through as a whole
  std::vector<std::uint32_t> block_of_;
  std::map<std::uint64_t, std::set<std::uint32_t>> meet_;  // by barrier
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

ControlFlow control_flow(const Kernel& kernel) { return Builder(kernel).run(); }

}  // namespace nimble::code::sass
