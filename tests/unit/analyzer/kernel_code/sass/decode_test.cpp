#include "analyzer/kernel_code/sass/decode.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <regex>
#include <sstream>

#include "analyzer/kernel_code/sass/opcode_table.h"
#include "tests/unit/analyzer/kernel_code/sass/sample.h"

namespace nimble::code::sass {
namespace {

const std::vector<Sampled>& sample() {
  static const std::vector<Sampled> all = read_sample(NIMBLE_TEST_SASS "/sample.tsv");
  return all;
}

std::string name_of(File file, unsigned number) {
  constexpr const char* kNames[] = {"R", "UR", "P", "UP"};
  return kNames[static_cast<unsigned>(file)] + std::to_string(number);
}

// Life ranges have no columns for uniform registers from 63 on.
constexpr unsigned kLastUniformColumn = 62;

template <class List>
std::set<std::string> names(const List& list) {
  std::set<std::string> all;
  for (const Registers& registers : list)
    for (unsigned i = 0; i < registers.count; ++i)
      if (registers.file != File::ur || registers.first + i <= kLastUniformColumn)
        all.insert(name_of(registers.file, registers.first + i));
  return all;
}

std::string text(const std::set<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += name + " ";
  return all;
}

// Leaves of `read` what the disassembler tells, where it tells no more than that.
void one_reads_no_more(const Sampled& one, std::set<std::string>& read) {
  for (const std::string& name : one.read) EXPECT_TRUE(read.contains(name)) << one.text << " reads " << name;
  read = one.read;
}

bool is_flow(Class what) {
  return what == Class::branch || what == Class::call || what == Class::return_ || what == Class::exit ||
         what == Class::convergence;
}

// What life ranges do not tell: opcodes that read or write all predicates under a mask.
bool goes_by_mask(const std::string& name) { return name == "R2P" || name == "P2R" || name == "UP2UR"; }

TEST(Decode, TellsTheRegistersThatLifeRangesTell) {
  std::size_t compared = 0;
  for (const Sampled& one : sample()) {
    const Instruction found = decode(one.word, one.arch);
    ASSERT_NE(found.what, Class::unknown) << "sm_" << one.arch << " " << one.text;
    if (is_flow(found.what) || goes_by_mask(name_in(one.text))) continue;
    std::set<std::string> read = names(found.read);
    if (found.guard.when == Guard::When::if_true || found.guard.when == Guard::When::if_false)
      read.insert(name_of(found.guard.file, found.guard.predicate));
    EXPECT_EQ(text(names(found.written)), text(one.written)) << "sm_" << one.arch << " " << one.text;
    // Of these the table says more than is read.
    if (found.what == Class::texture || found.what == Class::tensor_memory) one_reads_no_more(one, read);
    EXPECT_EQ(text(read), text(one.read)) << "sm_" << one.arch << " " << one.text;
    ++compared;
  }
  EXPECT_GT(compared, 1500u);
}

// Life ranges are of straight code: of control flow the text tells, which names the first register of a group.
TEST(Decode, TellsTheRegistersOfControlFlowThatTheTextTells) {
  const std::regex named(R"((?:^|[^A-Za-z0-9_.])(U?[RP][0-9]+))");
  std::size_t compared = 0;
  for (const Sampled& one : sample()) {
    const Instruction found = decode(one.word, one.arch);
    if (!is_flow(found.what)) continue;
    std::set<std::string> mine, theirs;
    for (const Registers& registers : found.read) mine.insert(name_of(registers.file, registers.first));
    if (found.guard.when == Guard::When::if_true || found.guard.when == Guard::When::if_false)
      mine.insert(name_of(found.guard.file, found.guard.predicate));
    for (std::sregex_iterator at(one.text.begin(), one.text.end(), named), end; at != end; ++at)
      theirs.insert((*at)[1]);
    EXPECT_EQ(text(mine), text(theirs)) << "sm_" << one.arch << " " << one.text;
    EXPECT_EQ(found.written.size(), 0u) << one.text;
    ++compared;
  }
  EXPECT_GT(compared, 50u);
}

// By hand, and not from the table: what each name is.
std::optional<Class> class_by_hand(const std::string& name) {
  static const std::map<Class, std::string> kNames = {
      {Class::number,
       "FADD FMUL FFMA FADD2 FMUL2 FFMA2 FMNMX FMNMX3 FSEL FSET FRND FCHK MUFU F2F F2FP F2I F2IP I2F I2FP I2IP DADD "
       "DMUL "
       "DFMA HADD2 HMUL2 HFMA2 HMNMX2 HSET2 HMMA IMMA DMMA QMMA OMMA MOVM IDP POPC FLO BREV BMSK SGXT IABS UFADD UFMUL "
       "UFFMA UFSEL UFSET UF2FP UF2I UF2IP UI2F UI2FP UI2IP UFRND UFMNMX UPOPC UFLO UBREV UBMSK USGXT UIABS VABSDIFF "
       "UF2F VABSDIFF4 CREDUX REDUX MATCH VOTE VOTEU P2R UP2UR B2R BMOV CS2R CS2UR S2R S2UR LEPC FSWZADD"},
      {Class::integer,
       "IADD IADD3 IMAD LEA LOP3 SHF SHL SHR PRMT SEL MOV IMNMX VIADD VIADDMNMX VIMNMX VIMNMX3 UIADD3 UIMAD ULEA ULOP3 "
       "USHF UPRMT USEL UMOV UIMNMX UVIADD UVIMNMX R2UR SHFL RPCMOV"},
      {Class::predicate, "ISETP FSETP DSETP HSETP2 PLOP3 UISETP UFSETP UPLOP3 R2P ELECT PSETP UR2UP"},
      {Class::constant_load, "LDC ULDC LDCU"},
      {Class::load, "LDG LDGMC LD LDL LDS LDSM"},
      {Class::store, "STG ST STL STS STSM STAS"},
      {Class::atomic, "ATOM ATOMG REDG RED ATOMS REDAS"},
      {Class::async_copy, "LDGSTS"},
      {Class::bulk_copy, "UBLKCP UBLKRED"},
      {Class::tensor_map, "UTMALDG UTMASTG UTMAREDG UTMAPF"},
      {Class::matrix_shared, "HGMMA IGMMA QGMMA BGMMA"},
      {Class::tensor_memory, "LDTM STTM UTCCP UTCATOMSWS UTCHMMA UTCQMMA UTCOMMA UTCIMMA"},
      {Class::texture, "TEX TLD TLD4 TXD"},
      {Class::surface, "SULD SUST"},
      {Class::barrier_object, "SYNCS ARRIVES UTCBAR"},
      {Class::cache, "CCTL UBLKPF UTMACCTL"},
      {Class::space_query, "QSPC"},
      {Class::work_id, "UGETNEXTWORKID"},
      {Class::barrier, "BAR MEMBAR FENCE LDGDEPBAR ERRBAR CGAERRBAR UCGABAR_ARV UCGABAR_WAIT WARPGROUP UTMACMDFLUSH"},
      {Class::nothing,
       "NOP NANOSLEEP PMTRIG USETMAXREG USETSHMSZ YIELD UVIRTCOUNT ENDCOLLECTIVE PREEXIT ACQBULK DEPBAR"},
      {Class::convergence, "WARPSYNC BSSY BSYNC BREAK"},
      {Class::branch, "BRA BRX BRXU"},
      {Class::call, "CALL"},
      {Class::return_, "RET"},
      {Class::exit, "EXIT"},
      {Class::trap, "BPT"},
  };
  for (const auto& [what, list] : kNames)
    if ((" " + list + " ").find(" " + name + " ") != std::string::npos) return what;
  return std::nullopt;
}

TEST(Decode, TellsNamesAndClasses) {
  for (const Sampled& one : sample()) {
    const Instruction found = decode(one.word, one.arch);
    const std::string name = name_in(one.text);
    EXPECT_NE(("," + std::string(found.name) + ",").find("," + name + ","), std::string::npos)
        << one.text << " is called " << found.name;
    const std::optional<Class> what = class_by_hand(name);
    ASSERT_TRUE(what) << one.text;
    EXPECT_EQ(found.what, *what) << one.text;
  }
}

TEST(Decode, TellsTheConstantsOfTheText) {
  const std::regex constant(R"(c\[(0x[0-9a-f]+)\] ?\[([^\]]*)\])"), offset("(-?)0x([0-9a-f]+)"), index("U?R[0-9]+");
  std::size_t compared = 0;
  for (const Sampled& one : sample()) {
    const Instruction found = decode(one.word, one.arch);
    std::smatch named, at, by;
    if (!std::regex_search(one.text, named, constant)) {
      EXPECT_FALSE(found.constant) << one.text;
      continue;
    }
    ASSERT_TRUE(found.constant) << one.text;
    EXPECT_EQ(found.constant->bank, std::stoul(named[1], nullptr, 16)) << one.text;
    const std::string inner = named[2];
    long long number = 0;
    if (std::regex_search(inner, at, offset)) number = std::stoll(at[2], nullptr, 16) * (at[1].length() > 0 ? -1 : 1);
    EXPECT_EQ(found.constant->offset, number) << one.text;
    EXPECT_EQ(found.constant->index.has_value(), std::regex_search(inner, by, index)) << one.text;
    ++compared;
  }
  EXPECT_GT(compared, 100u);
}

TEST(Decode, TellsTheImmediatesOfTheText) {
  const std::regex number("(-?)0x([0-9a-f]+)");
  std::size_t compared = 0;
  for (const Sampled& one : sample()) {
    const Instruction found = decode(one.word, one.arch);
    // Those of SHFL stand elsewhere; they are no operands of arithmetic.
    if (found.what != Class::integer || !found.immediate || name_in(one.text) == "SHFL") continue;
    std::set<std::uint32_t> theirs;
    for (std::sregex_iterator at(one.text.begin(), one.text.end(), number), end; at != end; ++at) {
      const auto value = static_cast<std::uint32_t>(std::stoull((*at)[2], nullptr, 16));
      theirs.insert((*at)[1].length() != 0 ? 0u - value : value);
    }
    EXPECT_TRUE(theirs.contains(*found.immediate)) << one.text << " has " << *found.immediate;
    ++compared;
  }
  EXPECT_GT(compared, 100u);
  // MOV.64 R2, 0x4; UMOV.64 UR4, 0x10; and one of more than 32 bits.
  EXPECT_EQ(decode({0x0000000004027402, 0x000fc60000000000}, 120).immediate, 4u);
  EXPECT_EQ(decode({0x0000000010047482, 0x000fe20008000000}, 120).immediate, 16u);
  EXPECT_EQ(decode({0x0000000004027402, 0x000fc60000000001}, 120).immediate, std::nullopt);
}

TEST(Decode, TellsTheGuardOfTheText) {
  const std::regex guard(R"(^@(!?)(U?P)([0-9T]))");
  for (const Sampled& one : sample()) {
    const Instruction found = decode(one.word, one.arch);
    std::smatch named;
    if (!std::regex_search(one.text, named, guard)) {
      EXPECT_EQ(found.guard.when, Guard::When::always) << one.text;
    } else if (named[3] == "T") {
      EXPECT_EQ(found.guard.when, named[1].length() > 0 ? Guard::When::never : Guard::When::always) << one.text;
    } else {
      EXPECT_EQ(found.guard.when, named[1].length() > 0 ? Guard::When::if_false : Guard::When::if_true) << one.text;
      EXPECT_EQ(name_of(found.guard.file, found.guard.predicate), named[2].str() + named[3].str()) << one.text;
    }
  }
}

// "[R2.64+UR4+0x10]", "desc[UR6][R2.64+0x10]": what stands in the last brackets of the text.
struct Brackets {
  std::string base, uniform, descriptor;
  long long offset = 0;
  unsigned scale = 1;
};

std::optional<Brackets> brackets_in(const std::string& text) {
  // The last pair of brackets that names no descriptor and no constant.
  static const std::regex kPair(R"((desc|c|gdesc|tmem|idesc)?\[([^\]]*)\])");
  static const std::regex kTerm(R"((-?)(0x[0-9a-f]+|U?R[0-9Z]+)((?:\.[A-Za-z0-9]+)*))");
  std::optional<Brackets> found;
  std::string descriptor;
  for (std::sregex_iterator at(text.begin(), text.end(), kPair), end; at != end; ++at) {
    if ((*at)[1] == "desc") descriptor = (*at)[2];
    if ((*at)[1].length() > 0) continue;
    Brackets one;
    one.descriptor = descriptor;
    const std::string inner = (*at)[2];
    for (std::sregex_iterator term(inner.begin(), inner.end(), kTerm), none; term != none; ++term) {
      const std::string what = (*term)[2], suffix = (*term)[3];
      if (what.starts_with("0x")) one.offset = std::stoll(what, nullptr, 16) * ((*term)[1].length() > 0 ? -1 : 1);
      if (what.starts_with("UR") && what != "URZ") one.uniform = what;
      if (what.starts_with("R") && what != "RZ") one.base = what;
      const std::size_t times = suffix.find(".X");
      if (times != std::string::npos) one.scale = static_cast<unsigned>(std::stoul(suffix.substr(times + 2)));
    }
    found = one;
  }
  return found;
}

TEST(Decode, TellsTheAddressOfTheText) {
  std::size_t compared = 0;
  for (const Sampled& one : sample()) {
    const Instruction found = decode(one.word, one.arch);
    const bool is_plain = found.what == Class::load || found.what == Class::store || found.what == Class::atomic;
    if (!is_plain || found.memory.size() != 1) continue;
    const MemoryOperand& memory = found.memory[0];
    const auto brackets = brackets_in(one.text);
    ASSERT_TRUE(brackets) << one.text;
    EXPECT_EQ(memory.base ? name_of(File::r, memory.base->first) : "", brackets->base) << one.text;
    std::string uniform = memory.uniform ? name_of(File::ur, memory.uniform->first) : "";
    // What is added to an atomic's address may be a descriptor, which the text hides on some.
    const bool is_hidden = one.arch >= 80 && one.arch <= 89 && brackets->descriptor.empty();
    if (found.what == Class::atomic && (uniform == brackets->descriptor || is_hidden)) uniform = brackets->uniform;
    EXPECT_EQ(uniform, brackets->uniform) << one.text;
    if (memory.has_offset) {
      EXPECT_EQ(memory.offset, brackets->offset) << one.text;
    }
    EXPECT_EQ(memory.scale, brackets->scale) << one.text;
    ++compared;
  }
  EXPECT_GT(compared, 200u);
}

TEST(Decode, WidthsOfMemoryAreThoseOfItsModifiers) {
  for (const Sampled& one : sample()) {
    const Instruction found = decode(one.word, one.arch);
    if ((found.what != Class::load && found.what != Class::store) || found.memory.size() != 1) continue;
    const std::string name = name_in(one.text);
    if (name != "LDG" && name != "STG" && name != "LD" && name != "ST" && name != "LDS" && name != "STS") continue;
    const std::string modifiers = one.text.substr(0, one.text.find('[')) + ".";
    unsigned bytes = 4;
    for (const auto& [modifier, size] : std::map<std::string, unsigned>{
             {".U8", 1}, {".S8", 1}, {".U16", 2}, {".S16", 2}, {".64", 8}, {".128", 16}, {".256", 32}})
      if (modifiers.find(modifier + ".") != std::string::npos || modifiers.find(modifier + " ") != std::string::npos)
        bytes = size;
    EXPECT_EQ(found.memory[0].bytes, bytes) << one.text;
  }
}

TEST(Decode, WhatTheTableDoesNotHoldIsUnknown) {
  const Word move{0x0000002e002c7202, 0x000fc00000000f00};  // MOV R44, R46
  EXPECT_EQ(decode(move, 75).what, Class::integer);
  for (const unsigned arch : {0u, 52u, 70u, 74u, 76u, 95u, 130u, 1000u}) {
    const Instruction found = decode(move, arch);
    EXPECT_EQ(found.what, Class::unknown) << arch;
    EXPECT_TRUE(found.unknown_registers) << arch;
  }
  // Between two of one family what both have: sm_87 is between sm_86 and sm_89.
  EXPECT_EQ(decode(move, 87).what, Class::integer);
  EXPECT_EQ(decode({0, 0}, 90).what, Class::unknown);
}

TEST(Decode, AGroupOfRegistersThatGoesBeyondTheLastIsUnknown) {
  // LDG.E.128 R40, [R24.64+0x1000] on sm_89; the destination is in bits 16 to 23.
  Word load{0x0010000a18287981, 0x000fc0000c1e1d00};
  EXPECT_EQ(decode(load, 89).what, Class::load);
  for (const std::uint64_t first : {252u, 253u, 254u}) {
    load.low = (load.low & ~(std::uint64_t{255} << 16)) | first << 16;
    EXPECT_EQ(decode(load, 89).what, Class::unknown) << first;
  }
  load.low |= std::uint64_t{255} << 16;  // to nowhere
  EXPECT_EQ(decode(load, 89).what, Class::load);
  EXPECT_EQ(decode(load, 89).written.size(), 0u);
}

TEST(Decode, AnyBitsDecode) {
  std::mt19937_64 random(7);
  std::size_t unknown = 0;
  constexpr int kTries = 100'000;
  for (int i = 0; i < kTries; ++i) {
    Word word{random(), random()};
    const std::span<const Row> rows = all_rows();
    if (i % 2 == 0) {  // an opcode that there is
      const std::uint16_t opcode = rows[random() % rows.size()].opcode;
      word.low = (word.low & ~std::uint64_t{0xfff}) | (opcode & 0xfff);
      word.high = (word.high & ~(std::uint64_t{1} << 27)) | std::uint64_t{opcode} >> 12 << 27;
    }
    const Instruction found = decode(word, kArchs[random() % std::size(kArchs)]);
    unknown += found.what == Class::unknown;
    for (const auto* list : {&found.read})
      for (const Registers& registers : *list) ASSERT_LE(registers.first + registers.count, 255);
    for (const Registers& registers : found.written) ASSERT_LE(registers.first + registers.count, 255);
  }
  EXPECT_GT(unknown, 0u);
  EXPECT_LT(unknown, static_cast<std::size_t>(kTries));
}

}  // namespace
}  // namespace nimble::code::sass
