#include "analyzer/kernel_code/sass_flow/transfer_functions.h"

#include <string_view>

#include "analyzer/kernel_code/sass_code/control_flow.h"

namespace nimble::code::sass {
namespace {

// Opcodes of multiplications: bits 0 to 8, of which bit 7 is the uniform datapath's.
constexpr unsigned kImadWide = 0x025, kImadHi = 0x027, kUimadWide = 0x0a5, kUimadHi = 0x0a6;

// Arithmetic of which nothing is left of the bits that it is given: what it makes is no part of an address. Not what
// only chooses, moves or shuffles them.
bool is_float(std::string_view name) {
  for (const std::string_view each : {"FADD", "FMUL",  "FFMA",  "FADD2", "FMUL2", "FFMA2", "MUFU",  "DADD",  "DMUL",
                                      "DFMA", "HADD2", "HMUL2", "HFMA2", "HMMA",  "IMMA",  "DMMA",  "QMMA",  "OMMA",
                                      "I2F",  "I2FP",  "F2I",   "F2F",   "F2FP",  "FRND",  "UFADD", "UFMUL", "UFFMA"})
    if (name == each) return true;
  return false;
}

class Operation {
 public:
  Operation(const Instruction& instruction, Word word, Contents& contents, const OperandAt& operand,
            const ConstantAt& constant)
      : instruction_(instruction), word_(word), contents_(contents), operand_(operand), constant_(constant) {}

  std::vector<Content> run(unsigned count) {
    std::vector<Content> all;
    for (unsigned i = 0; i < count; ++i) all.push_back(one(i));
    return all;
  }

 private:
  // Where operands stand: the second and third by the form of the opcode.
  enum Operand { kA, kB, kC };
  enum class Kind { registers, immediate, constant };
  struct Place {
    Kind kind = Kind::registers;
    unsigned at = 0;
  };

  Place place(Operand which) const {
    const unsigned form = instruction_.opcode >> 9 & 7;
    if (which == kA) return {Kind::registers, kAtA};
    const bool is_second = which == kB;
    switch (form) {
      case 2:
        return is_second ? Place{Kind::registers, kAtC} : Place{Kind::immediate, 0};
      case 3:
        return is_second ? Place{Kind::registers, kAtC} : Place{Kind::constant, 0};
      case 4:
        return is_second ? Place{Kind::immediate, 0} : Place{Kind::registers, kAtC};
      case 5:
        return is_second ? Place{Kind::constant, 0} : Place{Kind::registers, kAtC};
      case 7:
        return is_second ? Place{Kind::registers, kAtC} : Place{Kind::registers, kAtB};
      default:
        return {Kind::registers, is_second ? kAtB : kAtC};
    }
  }

  Content of(Operand which, unsigned index = 0) const {
    const Place at = place(which);
    if (at.kind == Kind::immediate) return instruction_.immediate == 0u ? kZero : kNumber;
    return at.kind == Kind::constant ? constant_(index) : operand_(at.at, index);
  }
  bool is_zero(Operand which) const {
    const Place at = place(which);
    if (at.kind != Kind::registers) return at.kind == Kind::immediate && instruction_.immediate == 0u;
    for (const Registers& registers : instruction_.read)
      if (registers.at == at.at && (registers.file == File::r || registers.file == File::ur)) return false;
    return true;
  }
  bool is_number(Operand which, std::uint32_t value) const {
    return place(which).kind == Kind::immediate && instruction_.immediate == value;
  }

  Content weak(const Content& a) const { return contents_.weak(a); }
  Content weak(const Content& a, const Content& b) const { return weak(contents_.either(a, b)); }
  Content sum(const Content& a, const Content& b) const { return contents_.sum(a, b); }

  // All that is read, as a number.
  Content number() const {
    Content all = kNumber;
    for (const Registers& registers : instruction_.read)
      if (registers.file == File::r || registers.file == File::ur)
        for (unsigned i = 0; i < registers.count; ++i) all = weak(all, operand_(registers.at, i));
    return instruction_.constant ? weak(all, contents_.either(constant_(0), constant_(1))) : all;
  }

  // Of an operation whose operands are all alike: each of them, wherever it stands. The opcodes' forms do not say that
  // for all of them: SEL of 64 bits has its second operand where others have a third.
  std::vector<Content> operands(unsigned index) const {
    std::vector<Content> all;
    for (const Registers& registers : instruction_.read)
      if (registers.file == File::r || registers.file == File::ur) all.push_back(operand_(registers.at, index));
    if (instruction_.constant) all.push_back(constant_(index));
    if (instruction_.immediate) all.push_back(*instruction_.immediate == 0u ? kZero : kNumber);
    return all;
  }
  // One of two; what is not there is the register of zeros.
  Content chosen(unsigned index) const {
    const std::vector<Content> all = operands(index);
    Content result = all.size() < 2 ? kZero : Content{};
    for (const Content& each : all) result = contents_.either(result, each);
    return result;
  }
  Content added(unsigned index) const {
    Content result = kZero;
    for (const Content& each : operands(index)) result = sum(result, each);
    return result;
  }

  // What is moved is in one place.
  Content moved(unsigned index) const {
    if (instruction_.constant) return constant_(index);
    Content all{};
    bool any = false;
    for (const Registers& registers : instruction_.read) {
      if (registers.file != File::r && registers.file != File::ur) continue;
      all = contents_.either(all, operand_(registers.at, index));
      any = true;
    }
    if (any) return all;
    if (instruction_.immediate) return *instruction_.immediate == 0u ? kZero : kNumber;
    // The register of zeros; or a number of 64 bits.
    const bool is_register = (instruction_.opcode >> 9 & 7) != 2;
    return is_register ? kZero : kNumber;
  }

  Content lea() const {
    const bool upper = word_.bit(80) != 0, is_shifted = word_.bits(75, 5) != 0;
    // Without a shift the upper half of the third operand and the first is the third; or the first's sign.
    if (upper && !is_shifted) return sum(of(kB), contents_.either(of(kC), weak(of(kA))));
    return sum(of(kB), is_shifted ? weak(of(kA), upper ? of(kC) : kNumber) : of(kA));
  }

  // A product of which one factor is one is the other.
  Content product() const {
    if (is_zero(kA) || is_zero(kB)) return kZero;
    if (is_number(kB, 1)) return of(kA);
    return weak(of(kA), of(kB));
  }

  Content multiply(unsigned index) const {
    switch (instruction_.opcode & 0x1ff) {
      case kImadWide:
      case kUimadWide:
        return index == 0 ? sum(of(kC, 0), product()) : sum(of(kC, 1), weak(product()));
      case kImadHi:
      case kUimadHi:
        return sum(of(kC, 1), weak(weak(of(kA), of(kB)), of(kC, 0)));
      default:
        return sum(of(kC), product());
    }
  }

  Content permuted() const {
    constexpr std::uint32_t kFirst = 0x3210, kSecond = 0x7654;  // all bytes of A, of C
    if (is_number(kB, kFirst)) return of(kA);
    if (is_number(kB, kSecond)) return of(kC);
    return number();
  }

  // How numbers are made that are no computation.
  bool makes_zero() const {
    std::uint32_t value = 1;
    constexpr std::uint64_t kZeroRegister = 255;  // SRZ
    return (constant_of(instruction_, value) && value == 0) ||
           (std::string_view(instruction_.name) == "CS2R" && word_.bits(72, 8) == kZeroRegister);
  }

  Content one(unsigned index) const {
    const std::string_view name = instruction_.name;
    if (makes_zero()) return kZero;
    if (instruction_.what != Class::integer) return is_float(name) ? kNumber : number();
    if (name == "MOV" || name == "UMOV" || name == "R2UR") return moved(index);
    if (name == "SHFL") return operand_(kAtA, 0);
    if (name == "SEL" || name == "USEL" || name == "IMNMX" || name == "VIMNMX" || name == "UIMNMX" || name == "UVIMNMX")
      return chosen(index);
    if (name == "IADD3" || name == "UIADD3" || name == "IADD" || name == "VIADD" || name == "UVIADD" ||
        name == "LOP3" || name == "ULOP3")
      return added(index);
    if (name == "LEA" || name == "ULEA") return lea();
    if (name == "IMAD" || name == "UIMAD") return multiply(index);
    if (name == "PRMT" || name == "UPRMT") return permuted();
    return number();
  }

  const Instruction& instruction_;
  const Word word_;
  Contents& contents_;
  const OperandAt& operand_;
  const ConstantAt& constant_;
};

}  // namespace

std::vector<Content> computed(const Instruction& instruction, Word word, unsigned count, Contents& contents,
                              const OperandAt& operand, const ConstantAt& constant) {
  return Operation(instruction, word, contents, operand, constant).run(count);
}

}  // namespace nimble::code::sass
