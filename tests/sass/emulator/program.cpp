#include "tests/sass/emulator/program.h"

#include <algorithm>

#include "analyzer/kernel_code/sass/decode.h"

namespace nimble::code::emulator {
namespace {

constexpr std::uint8_t kParamCbank = 0x0a;
constexpr unsigned kBraDiv = 0x1947, kLepc = 0x34e;

bool is_register(const sass::Registers& registers) {
  return registers.file == sass::File::r || registers.file == sass::File::ur;
}

Source register_at(const Op& op, unsigned at) {
  Source source;
  for (const sass::Registers& registers : op.instruction.read) {
    if (registers.at != at || !is_register(registers)) continue;
    source.kind = registers.file == sass::File::ur ? Source::Kind::ur : Source::Kind::r;
    source.first = registers.first;
    source.count = registers.count;
  }
  return source;
}

Predicate predicate_at(const Op& op, unsigned at, unsigned negated) {
  Predicate predicate;
  predicate.negated = op.word.bit(negated) != 0;
  predicate.number = static_cast<std::uint8_t>(op.word.bits(at, 3));
  for (const sass::Registers& registers : op.instruction.read)
    if (registers.at == at && !is_register(registers)) predicate.uniform = registers.file == sass::File::up;
  return predicate;
}

Predicate written_at(const Op& op, unsigned at) {
  Predicate predicate;
  for (const sass::Registers& registers : op.instruction.written) {
    if (registers.at != at || is_register(registers)) continue;
    predicate.number = static_cast<std::uint8_t>(registers.first);
    predicate.uniform = registers.file == sass::File::up;
  }
  return predicate;
}

// Operands of arithmetic: the form of the opcode says where the second and the third are. Which bit negates an operand,
// and which takes its absolute value, depends on the operand's position.
void read_operands(Op& op) {
  const sass::Word word = op.word;
  op.a = register_at(op, sass::kAtA);
  op.a.negated = word.bit(72) != 0;
  op.a.absolute = word.bit(73) != 0;
  Source at32 = register_at(op, sass::kAtB), at64 = register_at(op, sass::kAtC);
  const unsigned form = op.instruction.opcode >> 9 & 7;
  if (op.instruction.immediate || form == 2 || form == 4) {
    at32 = {};
    at32.kind = Source::Kind::immediate;
    at32.immediate = static_cast<std::uint32_t>(word.bits(32, 32));
  } else {
    if ((form == 3 || form == 5) && op.instruction.constant) at32.kind = Source::Kind::constant;
    at32.negated = word.bit(63) != 0;
    at32.absolute = word.bit(62) != 0;
  }
  at64.negated = word.bit(75) != 0;
  at64.absolute = word.bit(74) != 0;
  // Of these three the form does not tell, for they have two operands.
  const bool has_two = op.what == Do::sel || op.what == Do::mov;
  const bool is_swapped = (form == 2 || form == 3 || form == 7) && !has_two;
  op.b = is_swapped ? at64 : at32;
  op.c = is_swapped ? at32 : at64;
}

Do what_of(const sass::Instruction& instruction) {
  using enum Do;
  switch (instruction.what) {
    case sass::Class::unknown:
    case sass::Class::texture:
    case sass::Class::surface:
    case sass::Class::tensor_memory:
      return unknown;
    case sass::Class::work_id:
      return work;
    case sass::Class::bulk_copy:
      return bulk;
    case sass::Class::tensor_map:
      return tensor;
    case sass::Class::barrier_object:
      return std::string_view(instruction.name) == "SYNCS" ? (instruction.read.size() == 0 ? nothing : syncs) : unknown;
    case sass::Class::matrix_shared:
      return garbage;
    case sass::Class::nothing:
    case sass::Class::cache:
      return nothing;
    case sass::Class::barrier:
      return std::string_view(instruction.name) == "BAR" ? bar : nothing;
    case sass::Class::constant_load:
      return ldc;
    case sass::Class::load:
      return std::string_view(instruction.name) == "LDSM" ? ldsm : load;
    case sass::Class::store:
      return std::string_view(instruction.name) == "STSM" ? stsm : store;
    case sass::Class::atomic:
      return atomic;
    case sass::Class::async_copy:
      return ldgsts;
    case sass::Class::space_query:
      return qspc;
    case sass::Class::exit:
      return exit;
    case sass::Class::trap:
      return unknown;
    case sass::Class::call:
      return instruction.target ? call : unknown;
    case sass::Class::return_:
      return ret;
    default:
      break;
  }
  static const std::map<std::string_view, Do> kNames = {
      {"MOV", mov},         {"SEL", sel},     {"IADD3", iadd3},      {"IADD", iadd},    {"VIADD", viadd},
      {"IMAD", imad},       {"LEA", lea},     {"LOP3", lop3},        {"SHF", shf},      {"PRMT", prmt},
      {"ISETP", isetp},     {"PLOP3", plop3}, {"IMNMX", mnmx},       {"VIMNMX", mnmx},  {"VIADDMNMX", viaddmnmx},
      {"VIMNMX3", vimnmx3}, {"IABS", iabs},   {"POPC", popc},        {"FLO", flo},      {"BREV", brev},
      {"SGXT", sgxt},       {"BMSK", bmsk},   {"P2R", p2r},          {"R2P", r2p},      {"CS2R", cs2r},
      {"S2R", s2r},         {"SHFL", shfl},   {"VOTE", vote},        {"MATCH", match},  {"REDUX", redux},
      {"CREDUX", redux},    {"R2UR", r2ur},   {"ELECT", elect},      {"FADD", fadd},    {"FMUL", fmul},
      {"FFMA", ffma},       {"FSEL", fsel},   {"FSETP", fsetp},      {"FMNMX", fmnmx},  {"MUFU", mufu},
      {"I2F", i2f},         {"I2FP", i2f},    {"F2I", f2i},          {"F2F", f2f},      {"FCHK", fchk},
      {"DADD", dadd},       {"DMUL", dmul},   {"DFMA", dfma},        {"DSETP", dsetp},  {"HFMA2", hfma2},
      {"BRA", bra},         {"BRX", brx},     {"BRXU", brx},         {"BSSY", bssy},    {"BSYNC", bsync},
      {"BREAK", brk},       {"BMOV", bmov},   {"WARPSYNC", nothing}, {"YIELD", nothing}};
  std::string_view name = instruction.name;
  if (instruction.opcode == kBraDiv) return bra_div;
  if (instruction.opcode == kLepc) return lepc;
  if (const auto found = kNames.find(name); found != kNames.end()) return found->second;
  if (name.starts_with('U'))
    if (const auto found = kNames.find(name.substr(1)); found != kNames.end()) return found->second;
  if (name == "VOTEU") return vote;
  if (name == "S2UR") return s2r;
  const bool is_number = instruction.what == sass::Class::number || instruction.what == sass::Class::integer;
  return is_number ? garbage : unknown;
}

Op make_op(sass::Word word, unsigned arch) {
  Op op;
  op.word = word;
  op.instruction = sass::decode(word, arch);
  op.what = what_of(op.instruction);
  read_operands(op);
  for (const sass::Registers& registers : op.instruction.written) {
    op.once |= registers.file == sass::File::ur || registers.file == sass::File::up;
    if (!is_register(registers) || registers.at != sass::kAtResult) continue;
    op.to = registers.first;
    op.to_count = static_cast<std::uint8_t>(registers.count);
    op.to_uniform = registers.file == sass::File::ur;
  }
  op.p81 = written_at(op, 81);
  op.p84 = written_at(op, 84);
  op.p87 = predicate_at(op, 87, 90);
  op.p77 = predicate_at(op, 77, 80);
  op.p68 = predicate_at(op, 68, 71);
  return op;
}

class Loader {
 public:
  Loader(const Elf& elf, std::string_view kernel) : elf_(elf), kernel_(kernel) {}

  Program run() {
    program_.arch = elf_.arch();
    const ElfSymbol* entry = nullptr;
    for (const ElfSymbol& symbol : elf_.symbols())
      if (symbol.kernel && symbol.name == kernel_) entry = &symbol;
    if (!entry) return fail("no such kernel");
    const Bytes text = elf_.sections()[entry->section].bytes;
    program_.entry = static_cast<std::uint32_t>(entry->value / sass::kInstructionBytes);
    for (std::uint64_t at = 0; at + sass::kInstructionBytes <= text.size(); at += sass::kInstructionBytes)
      program_.ops.push_back(
          make_op({*read_at<std::uint64_t>(text, at), *read_at<std::uint64_t>(text, at + 8)}, program_.arch));
    find_params();
    if (const ElfSection* const bank = elf_.section(".nv.constant2." + std::string(kernel_)))
      copy(bank->bytes, program_.bank2);
    if (const ElfSection* const bank = elf_.section(".nv.constant3")) copy(bank->bytes, program_.bank3);
    for (const ElfSection& table : elf_.sections()) {
      if (table.info >= elf_.sections().size() || table.name.find(".merc") != std::string_view::npos) continue;
      bool good = true;
      if (table.info == entry->section && table.name.starts_with(".rel") && !elf_.relocations(table, good).empty())
        return fail("relocations in its code");
      if (elf_.sections()[table.info].name == ".nv.constant4" && table.name.starts_with(".rel"))
        for (const ElfRelocation& each : elf_.relocations(table, good)) add_variable(each);
    }
    return std::move(program_);
  }

 private:
  Program fail(std::string why) {
    program_.error = std::move(why);
    return std::move(program_);
  }

  static void copy(Bytes from, std::vector<std::uint8_t>& to) {
    for (std::uint64_t at = 0; at < from.size(); ++at) to.push_back(*code::read_at<std::uint8_t>(from, at));
  }

  void find_params() {
    const ElfSection* const section = elf_.section(".nv.info." + std::string(kernel_));
    if (!section) return;
    for (const NvInfo& info : Elf::infos(section->bytes)) {
      if (info.attribute != kParamCbank || info.bytes.size() < 8) continue;
      program_.params_at = *read_at<std::uint16_t>(info.bytes, 4);
      program_.param_bytes = *read_at<std::uint16_t>(info.bytes, 6);
    }
  }

  void add_variable(const ElfRelocation& relocation) {
    const ElfSymbol& symbol = elf_.symbols()[relocation.symbol];
    program_.bank4[static_cast<std::uint32_t>(relocation.at)] = static_cast<std::uint32_t>(program_.variables.size());
    program_.variables.push_back({symbol.name, symbol.size});
  }

  const Elf& elf_;
  const std::string_view kernel_;
  Program program_;
};

}  // namespace

Program load_program(const Elf& elf, std::string_view kernel) { return Loader(elf, kernel).run(); }

}  // namespace nimble::code::emulator
