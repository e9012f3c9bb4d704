// The shape of PTX: tokens, the table of contents, bodies.
#include "analyzer/kernel_code/ptx/body.h"
#include "analyzer/kernel_code/ptx/lexer.h"
#include "analyzer/kernel_code/ptx/module.h"
#include "analyzer/kernel_code/ptx_flow/opcodes.h"
#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::code {
namespace {

std::vector<std::string> tokens(std::string_view text) {
  PtxLexer lexer(text);
  std::vector<std::string> result;
  while (lexer.peek()) result.emplace_back(lexer.take().spelled);
  return result;
}

TEST(PtxLexer, NamesHoldDotsAndDoubleColons) {
  using List = std::vector<std::string>;
  EXPECT_EQ(tokens("ld.global.L2::128B.v4.f32 {%f1, _}, [ %rd1 + -16 ];"),
            (List{"ld.global.L2::128B.v4.f32", "{", "%f1", ",", "_", "}", ",", "[", "%rd1", "+", "-", "16", "]", ";"}));
  EXPECT_EQ(tokens("$L__BB0_2: ret; a:b"), (List{"$L__BB0_2", ":", "ret", ";", "a", ":", "b"}));
  EXPECT_EQ(tokens("a // b ; c\n/* d { */ e \"f;\" /"), (List{"a", "e", "f;", "/"}));
  EXPECT_EQ(tokens(""), List{});
  EXPECT_EQ(tokens("/* never ends"), List{});
  EXPECT_EQ(tokens("\"never ends"), List{"never ends"});
}

TEST(PtxModule, HoldsWhatTheTextDeclares) {
  const std::string text =
      "// a comment with { in it\n.version 9.0\n.target sm_103f, debug\n.address_size 64\n"
      ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
      ".visible .global .attribute(.managed) .align 4 .f32 managed;\n"
      ".global .align 8 .u64 table[2] = {f, generic(managed)};\n.const .align 4 .b8 c[400];\n"
      ".extern .shared .align 16 .b8 dynamic[];\n.weak .global .align 4 .u32 w = 3;\n"
      ".func (.reg .b32 out) f (.reg .b32 in) { mov.b32 out, in; ret; }\n"
      ".weak .entry k ( .param .u8 a, .param .u64 .ptr .global .align 16 b, .param .align 16 .b8 c2[24], .param .u16 d,"
      " .param .f32 e[3] ) .maxntid 128, 1, 1 .minnctapersm 2 { .reg .b32 %r<2>; { mov.u32 %r1, 1; } ret; }\n"
      ".section .debug_str { .b8 1, 2 }\n.file 1 \"x{.cu\"\n";
  const PtxModule module = read_ptx(text);
  ASSERT_EQ(module.error, "");
  EXPECT_EQ(module.arch, 103u);
  EXPECT_EQ(module.variant, "f");
  EXPECT_EQ(module.variables.size(), 5u);
  EXPECT_EQ(module.variables[module.variable_of.at("table")].space, PtxSpace::global);
  EXPECT_EQ(module.variables[module.variable_of.at("c")].space, PtxSpace::constant);
  EXPECT_EQ(module.variables[module.variable_of.at("dynamic")].space, PtxSpace::shared);
  ASSERT_NE(module.find("vprintf"), nullptr);
  EXPECT_FALSE(module.find("vprintf")->defined);
  EXPECT_TRUE(module.find("f")->defined);
  EXPECT_TRUE(module.find("f")->params[0].in_register);
  const PtxFunction* kernel = module.find("k");
  ASSERT_NE(kernel, nullptr);
  EXPECT_TRUE(kernel->entry);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> layout;
  for (const PtxParam& param : kernel->params) layout.emplace_back(param.offset, param.size);
  EXPECT_EQ(layout,
            (std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 1}, {8, 8}, {16, 24}, {40, 2}, {44, 12}}));
}

TEST(PtxModule, WhatItDoesNotKnowIsAnError) {
  const std::string head = ".version 9.0\n.target sm_90\n";
  for (const char* text :
       {".alias a, b;", ".entry k(.param .u64 a) { ret;", ".entry (", ".func f(.param .b8 a[99999999]) {}",
        ".global .u32 a, b;", ".target gfx90a\n", ".entry k() {} .entry k() {}", "mov.u32 %r1, 2;",
        ".global .u32 a = {1, 2", ".pragma \"x\"", ".entry k(.param a) {}"})
    EXPECT_NE(read_ptx(head + text).error, "") << text;
  EXPECT_EQ(read_ptx(head).error, "");
}

TEST(PtxBody, ResolvesNamesInTheirScopes) {
  PtxFunction function;
  function.defined = true;
  function.body =
      ".reg .b64 %rd<3>; .reg .pred %p<2>; .reg.b32 x; .local .align 8 .b8 depot[16];\n"
      "$start: @!%p1 bra $start;\n{ .reg .b64 %rd<2>; mov.u64 %rd1, depot; } add.s64 %rd1, %rd2, -4; mov.u64 %rd3, "
      "%tid.x;";
  const PtxBody body = read_ptx_body(function);
  ASSERT_EQ(body.error, "");
  ASSERT_EQ(body.instructions.size(), 4u);
  const auto symbol = [&](std::size_t instruction, std::size_t operand) {
    return body.symbols[body.instructions[instruction].operands[operand].symbol];
  };
  EXPECT_NE(body.instructions[1].operands[0].symbol, body.instructions[2].operands[0].symbol);
  EXPECT_EQ(symbol(1, 0).kind, PtxSymbol::Kind::reg);
  EXPECT_EQ(symbol(1, 1).kind, PtxSymbol::Kind::local);
  EXPECT_EQ(body.instructions[2].operands[2].value, -4);
  EXPECT_EQ(symbol(3, 0).kind, PtxSymbol::Kind::outside);  // %rd<3> ends at %rd2
}

TEST(PtxOpcodes, AreWhatTheirPartsSay) {
  EXPECT_EQ(ptx_class(PtxOpcode("ld.global.nc.v4.f32")), PtxClass::load);
  EXPECT_EQ(ptx_class(PtxOpcode("st.async.b32")), PtxClass::unknown);
  EXPECT_EQ(ptx_class(PtxOpcode("what.is.this")), PtxClass::unknown);
  EXPECT_EQ(PtxOpcode("cvt.u64.u32").type(0), "u64");
  EXPECT_EQ(PtxOpcode("cvt.u64.u32").last_type(), "u32");
  EXPECT_EQ(PtxOpcode("ld.shared::cluster.u32").space(), PtxSpace::shared);
  EXPECT_EQ(PtxOpcode("ld.u32").space(), PtxSpace::generic);
  EXPECT_TRUE(is_special_register("%ctaid.x"));
  EXPECT_FALSE(is_special_register("%envreg1"));
  EXPECT_FALSE(is_special_register("%rd1"));
}

}  // namespace
}  // namespace nimble::code
