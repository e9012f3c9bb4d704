#include "analyzer/kernel_code/sass_code/returns.h"

#include <optional>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace nimble::code::sass {
namespace {

constexpr unsigned kLepc = 0x34e;     // puts its own address into a pair
constexpr unsigned kAbsoluteAt = 85;  // RET.ABS: to an address in a pair, plus a constant

class Returns {
 public:
  Returns(const ControlFlow& flow, const Values& values) : flow_(flow), values_(values) {}

  bool come_back() {
    for (std::uint32_t function = 1; function < flow_.functions.size(); ++function)
      for (const std::uint32_t block : flow_.functions[function].returns)
        if (!returns_to_callers(function, flow_.blocks[block].end - 1)) return false;
    return true;
  }

 private:
  // What a value is a copy of: what instructions write, and what functions begin with.
  struct Sources {
    std::vector<ValueId> written, entries;
  };

  bool find_sources(ValueId value, Sources& sources) const {
    std::vector<ValueId> open{value};
    std::unordered_set<ValueId> seen{value};
    const auto go_on = [&](ValueId next) {
      if (seen.insert(next).second) open.push_back(next);
    };
    while (!open.empty()) {
      const ValueId id = open.back();
      open.pop_back();
      const Value& each = values_.all()[id];
      if (each.kind == Value::Kind::initial) return false;
      if (each.kind == Value::Kind::written) {
        if (const auto copied = copy_of(id))
          go_on(*copied);
        else
          sources.written.push_back(id);
      } else if (values_.begins_function(id) != kNoBlock) {
        sources.entries.push_back(id);
      } else {
        for (const ValueId from : values_.choices(id)) go_on(from);
      }
    }
    return true;
  }

  // What a move moves.
  std::optional<ValueId> copy_of(ValueId id) const {
    const std::uint32_t at = values_.all()[id].instruction;
    const Instruction& instruction = flow_.instructions[at];
    const std::string_view name = instruction.name;
    if (instruction.immediate || instruction.constant || instruction.read.size() != 1 || instruction.read[0].count != 1)
      return std::nullopt;
    const bool is_move = name == "MOV" || name == "UMOV" || name == "R2UR";
    // Zero times zero, and what is added: the third operand.
    const unsigned form = instruction.opcode >> 9 & 7;
    const bool is_sum = name == "IMAD" && instruction.read[0].at == (form == 7 ? kAtB : kAtC) && form != 2 && form != 3;
    if (!is_move && !is_sum) return std::nullopt;
    return values_.read(at)[0];
  }

  bool returns_to_callers(std::uint32_t function, std::uint32_t at) const {
    const bool is_absolute = flow_.word(at).bit(kAbsoluteAt) != 0;
    for (const Registers& registers : flow_.instructions[at].read) {
      if (registers.file != File::r || registers.at != kAtA) continue;
      const auto halves = values_.read(at, registers);
      // The upper half of an offset is zero; of an address it is where the code lies.
      for (std::size_t half = 0; half < (is_absolute ? 2u : 1u); ++half) {
        Sources sources;
        if (half >= halves.size() || !find_sources(halves[half], sources) || !sources.written.empty()) return false;
        for (const ValueId entry : sources.entries)
          if (values_.begins_function(entry) != function || !is_place_after_call(function, entry, at, half))
            return false;
      }
      return true;
    }
    return false;
  }

  // Whether that half of what the return at `at` goes by leads to after the call, at each call.
  bool is_place_after_call(std::uint32_t function, ValueId entry, std::uint32_t at, std::size_t half) const {
    const auto callers = values_.callers(function);
    const auto from = values_.choices(entry);
    if (from.size() != callers.size()) return false;
    for (std::size_t i = 0; i < callers.size(); ++i) {
      Sources sources;
      if (!find_sources(from[i], sources) || !sources.entries.empty()) return false;
      const std::int64_t after_call = std::int64_t{flow_.blocks[callers[i]].end} * kInstructionBytes;
      for (const ValueId source : sources.written)
        if (place_of(source, at, half) != after_call) return false;
    }
    return true;
  }

  // Where in the text the return at `at` goes by that.
  std::optional<std::int64_t> place_of(ValueId source, std::uint32_t at, std::size_t half) const {
    const std::uint32_t from = values_.all()[source].instruction;
    const Instruction& instruction = flow_.instructions[from];
    if (flow_.word(at).bit(kAbsoluteAt) == 0) {
      std::uint32_t value = 0;
      return constant_of(instruction, value) ? std::optional<std::int64_t>(value) : std::nullopt;
    }
    const auto written = values_.written(from);
    if (instruction.opcode != kLepc || half >= written.size() || written[half] != source) return std::nullopt;
    // A target counts from after the instruction; here that is the constant.
    return std::int64_t{from} * kInstructionBytes + flow_.instructions[at].target.value_or(0) -
           static_cast<std::int64_t>(kInstructionBytes);
  }

  const ControlFlow& flow_;
  const Values& values_;
};

}  // namespace

bool calls_come_back(const ControlFlow& flow, const Values& values) { return Returns(flow, values).come_back(); }

}  // namespace nimble::code::sass
