// Under which conditions memory is touched: what one branch leads to and what more lead to, and programs at random, run
// by an interpreter of their few instructions.
#include "analyzer/kernel_code/ptx_flow/guards.h"

#include <algorithm>
#include <random>
#include <set>

#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::code {
namespace {

using test::kernel;
using test::proven;

// p6 is at 48, p7 at 52. "$a" and so on are labels.
TEST(PtxGuards, WhatOneBranchLeadsToHasItsCondition) {
  const std::string flag =
                        "ld.param.u64 %rd1, [p0]; ld.param.u32 %r1, [p6]; ld.param.u32 %r2, [p7];"
                        "setp.eq.s32 %p1, %r1, 0; setp.ne.s32 %p2, %r2, 5;",
                    load = "ld.global.u32 %r9, [%rd1];";
  const std::pair<std::string, const char*> cases[] = {
      {"@%p1 bra $a; " + load + "$a: ", "0:r[48:4!=0]"},
      {"@!%p1 bra $a; " + load + "$a: ", "0:r[48:4==0]"},
      {"@%p1 " + load, "0:r[48:4==0]"},
      {"@!%p1 " + load, "0:r[48:4!=0]"},
      {"@%p2 ret; " + load, "0:r[52:4==5]"},
      {"@%p1 bra $a; bra.uni $b; $a: " + load + "$b: ", "0:r[48:4==0]"},
      {"@%p1 bra $a; ret; $a: " + load, "0:r[48:4==0]"},
      {"@%p1 bra $a; @%p2 bra $a; " + load + "$a: ", "0:r[48:4!=0][52:4==5]"},
      {"@%p1 bra $a; @%p2 bra $b; ret; $b: " + load + "$a: ", "0:r[48:4!=0][52:4!=5]"},
      {"@%p1 bra $a; { .reg .b32 %q; " + load + "} $a: ", "0:r[48:4!=0]"},
      {"@%p1 bra $a; ld.global.u32 %r8, [%rd1+4]; $a: @!%p1 " + load, "0:r[48:4!=0]"},
      // Whoever touches it without one, or under another, takes it away.
      {load + "@%p1 bra $a; " + load + "$a: ", "0:r"},
      {"@%p1 bra $a; " + load + "$a: " + load, "0:r"},
      {"@%p1 bra $a; " + load + "$a: @%p2 " + load, "0:r"},
      {"@%p1 " + load + "@!%p1 " + load, "0:r"},
      // More than one way leads there.
      {"@%p1 bra $a; bra $b; $a: $b: " + load, "0:r"},
      {"@%p1 bra $a; @%p2 bra $a; ret; $a: " + load, "0:r"},
      {"@%p1 bra $a; mov.u32 %r3, 1; $a: " + load, "0:r"},
      {"bra $b; $a: " + load + "ret; $b: @%p1 bra $a;", "0:r"},
      {"@%p1 bra $a; $b: " + load + "setp.lt.s32 %p3, %r9, %r2; @%p3 bra $b; $a: ", "0:r"},
      {"@%p1 bra $a; ret; $a: " + load + "ret; $t: .branchtargets $a, $t;", "0:r"},
      {"@%p1 bra $a; ret; { $a: " + load + "ret; } { $a: ret; }", "0:r"},
  };
  for (const auto& [body, expected] : cases) EXPECT_EQ(proven(flag + body), expected) << body;
}

TEST(PtxGuards, OnlyTestsOfAParameterForANumberAreConditions) {
  const auto of = [](const std::string& test) {
    return proven("ld.param.u64 %rd1, [p0];" + test + "@%p1 bra $a; ld.global.u32 %r9, [%rd1]; $a: ");
  };
  EXPECT_EQ(of("ld.param.s32 %r1, [p6]; setp.ne.s32 %p1, %r1, -1;"), "0:r[48:4==4294967295]");
  EXPECT_EQ(of("ld.param.b64 %rd2, [p1]; setp.eq.b64 %p1, %rd2, 0;"), "0:r[8:8!=0]");
  EXPECT_EQ(of("ld.param.u8 %rs1, [p6+1]; setp.eq.s16 %p1, %rs1, 0;"), "0:r[49:1!=0]");
  EXPECT_EQ(of("ld.param.v2.u32 {%r1, %r2}, [p1]; setp.eq.u32 %p1, %r2, 3;"), "0:r[12:4!=3]");
  EXPECT_EQ(of("mov.b64 %rd3, p6; ld.param.u16 %rs1, [%rd3+2]; setp.eq.s16 %p1, %rs1, 1;"), "0:r[50:2!=1]");
  for (const char* test : {
           "ld.param.u32 %r1, [p6]; setp.lt.s32 %p1, %r1, 1;",
           "ld.param.u32 %r1, [p6]; setp.eq.u32 %p1, %r1, %r2;",
           "ld.param.u32 %r1, [p6]; setp.eq.and.u32 %p1, %r1, 0, %p2;",
           "ld.param.u32 %r1, [p6]; setp.eq.u32 %p1|%p2, %r1, 0;",
           "ld.param.u32 %r1, [p6]; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p1, %r1, 1;",
           "ld.param.u32 %r1, [p6]; add.u32 %r1, %r1, 1; setp.eq.u32 %p1, %r1, 0;",
           "ld.param.u32 %r1, [p6]; @%p2 setp.eq.u32 %p1, %r1, 0;",
           "@%p2 ld.param.u32 %r1, [p6]; setp.eq.u32 %p1, %r1, 0;",
           "ld.param.s8 %rs1, [p6]; setp.eq.s16 %p1, %rs1, 0;",
           "ld.param.b8 %rs1, [p6]; setp.eq.s16 %p1, %rs1, 0;",
           "ld.param.u8 %rs1, [p6]; setp.eq.s16 %p1, %rs1, 256;",
           "ld.param.f32 %f1, [p6]; setp.eq.f32 %p1, %f1, 0f00000000;",
           "mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0;",
           "setp.eq.u32 %p1, %r1, 0; ld.param.u32 %r1, [p6];",
       })
    EXPECT_EQ(of(test), "0:r") << test;
}

// A program of branches, of which the interpreter knows the instructions and prove() the text. Words 0 to 4 of the
// parameters are pointers; p6 and p7 are what it tests.
struct Program {
  enum class Op { load, branch, ret };
  struct Instruction {
    Op op = Op::load;
    int what = 0;  // a word, or a label
    int predicate = -1;
    bool negated = false;
  };
  struct Test {
    bool second = false;  // of p7
    std::uint32_t value = 0;
    bool equal = true;
  };
  std::vector<Test> tests;
  std::vector<Instruction> instructions;
  std::vector<std::size_t> labels;  // before which instruction

  explicit Program(std::mt19937& random) {
    const auto below = [&](std::size_t count) { return static_cast<int>(random() % count); };
    for (int i = 0; i < 3; ++i) tests.push_back({below(2) == 0, static_cast<std::uint32_t>(below(3)), below(2) == 0});
    const int count = 4 + below(12), places = 1 + below(4);
    for (int i = 0; i < places; ++i) labels.push_back(below(count + 1));
    for (int i = 0; i < count; ++i) {
      Instruction& each = instructions.emplace_back();
      const int kind = below(8);
      each.op = kind < 4 ? Op::load : kind < 7 ? Op::branch : Op::ret;
      each.what = below(each.op == Op::load ? 5 : places);
      if (below(kind < 4 ? 4 : 5) != 0 || kind == 7) each.predicate = below(tests.size());
      if (kind < 4 && below(3) != 0) each.predicate = -1;
      each.negated = below(2) == 0;
    }
  }

  std::string text() const {
    std::string body = "ld.param.u32 %r20, [p6]; ld.param.u32 %r21, [p7];\n";
    for (int word = 0; word < 5; ++word)
      body += "ld.param.u64 %rd" + std::to_string(word) + ", [p" + std::to_string(word) + "];\n";
    for (std::size_t i = 0; i < tests.size(); ++i)
      body += std::string("setp.") + (tests[i].equal ? "eq" : "ne") + ".u32 %p" + std::to_string(i) + ", %r2" +
              (tests[i].second ? "1, " : "0, ") + std::to_string(tests[i].value) + ";\n";
    for (std::size_t i = 0; i <= instructions.size(); ++i) {
      for (std::size_t label = 0; label < labels.size(); ++label)
        if (labels[label] == i) body += "$L" + std::to_string(label) + ":\n";
      if (i == instructions.size()) break;
      const Instruction& each = instructions[i];
      if (each.predicate >= 0)
        body += std::string(each.negated ? "@!%p" : "@%p") + std::to_string(each.predicate) + " ";
      if (each.op == Op::load) body += "ld.global.u32 %r1, [%rd" + std::to_string(each.what) + "];\n";
      if (each.op == Op::branch) body += "bra $L" + std::to_string(each.what) + ";\n";
      if (each.op == Op::ret) body += "ret;\n";
    }
    return body;
  }

  // The words through which it loads. It need not end.
  std::set<std::uint32_t> run(std::uint32_t first, std::uint32_t second) const {
    std::set<std::uint32_t> loaded;
    std::size_t at = 0;
    for (int steps = 0; steps < 200 && at < instructions.size(); ++steps) {
      const Instruction& each = instructions[at++];
      if (each.predicate >= 0) {
        const Test& test = tests[each.predicate];
        const bool is = ((test.second ? second : first) == test.value) == test.equal;
        if (is == each.negated) continue;
      }
      if (each.op == Op::load) loaded.insert(8 * each.what);
      if (each.op == Op::branch) at = labels[each.what];
      if (each.op == Op::ret) break;
    }
    return loaded;
  }
};

TEST(PtxGuards, NoProgramTouchesWhatItsConditionsExclude) {
  std::mt19937 random(7);
  std::size_t excluded = 0, untouched = 0;
  for (int i = 0; i < 3000; ++i) {
    const Program program(random);
    const std::string text = program.text();
    const PtxProof proof = test::prove(kernel(text), "k");
    ASSERT_TRUE(proof.understood) << proof.why << "\n" << text;
    for (std::uint32_t flags = 0; flags < 16; ++flags) {
      const std::uint32_t first = flags % 4, second = flags / 4;
      const std::set<std::uint32_t> loaded = program.run(first, second);
      for (const PtxAccess& access : proof.accesses) {
        const bool may = std::ranges::all_of(access.when, [&](const PtxCondition& each) {
          return ((each.at == 48 ? first : second) == each.value) == each.equal;
        });
        excluded += may ? 0 : 1;
        untouched += loaded.contains(access.at[0]) ? 0 : 1;
        ASSERT_TRUE(may || !loaded.contains(access.at[0]))
            << access.at[0] << " with " << first << ", " << second << "\n"
            << text;
      }
    }
  }
  EXPECT_GT(excluded, untouched / 10) << "of " << untouched;
}

}  // namespace
}  // namespace nimble::code
