// What is proven of kernels that nvcc compiled (kernels.cu, gpu_kernels.cu), of the repository's own, and of
// hand-written PTX that takes apart what compilers leave whole.
#include "analyzer/kernel_code/ptx_flow/flow.h"

#include <map>

#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::code {
namespace {

using test::kernel;
using test::proven;
using test::ptx_file;
using test::spoken;

constexpr char kFollows[] = "? it may follow an address that it loads from memory";

void expect(const std::string& file, const std::map<std::string, std::string>& expected) {
  const std::string text = ptx_file(file);
  const PtxModule module = read_ptx(text);
  ASSERT_EQ(module.error, "");
  std::map<std::string, std::string> found;
  for (const PtxFunction& function : module.functions)
    if (function.entry) found[std::string(function.name)] = spoken(prove_kernel(module, function));
  EXPECT_EQ(found, expected);
}

TEST(PtxFlow, KernelsOfOrdinaryCode) {
  expect("kernels", {
                        {"scale", "0:w 8:r"},
                        {"with_unused", "0:w 8:r[16:8!=0]"},
                        {"accumulate", "0:rw 8:r"},
                        {"struct_by_value", "16:r 32:w 40:rw"},
                        {"behind_flags", "0:r[32:4==1] 8:r[36:2!=7] 16:rw 24:r[38:1!=0]"},
                        {"array_of_pointers", "0:w 8:r 16:r"},
                        {"indexed_array_of_pointers", "0,8,16,24:w 32:r"},
                        {"pointer_arithmetic", "0:w 8,16:r"},
                        {"loop", "0:w 8:r"},
                        {"ping_pong", "0,8:rw"},
                        {"choose", "0:w 8,16:r"},
                        {"choose_target", "0,8:w 16:r"},
                        {"gather", "0:w 8:r 16:r 24:r"},
                        {"scatter", "0:rw 8:r 16:r"},
                        {"histogram", "0:rw 8:r"},
                        {"compact", "0:w 8:rw 16:r"},
                        {"calls", "0:w 8:r"},
                        {"calls_for_pointer", "0:w 8:r"},
                        {"calls_with_struct", "0:w 16:r"},
                        {"local_array", "0:w 8:r"},
                        {"pointers_in_local_array", "0:w 8,16,24:r"},
                        {"address_as_numbers", "0:w 8:r"},
                        {"difference", "0:w 8:r"},
                        {"pointer_table", kFollows},
                        {"pointer_table_written", kFollows},
                        {"linked_list", kFollows},
                        {"publishes", "0:w"},
                        {"reads_global", "0:w a_global:r"},
                        {"writes_global", "0:r a_global:w"},
                        {"global_pointer", kFollows},
                    });
}

TEST(PtxFlow, KernelsOfGpuCode) {
  expect("gpu_kernels", {
                            {"restricted", "0:w 8:r"},
                            {"vectors", "0:w 8:r 16:r 24:r"},
                            {"halves", "0:w 8:r 16:r"},
                            {"half_atomics", "0:rw 8:r"},
                            {"transpose", "0:w 8:r"},
                            {"dynamic_shared", "0:w 8:r"},
                            {"pointers_in_shared", "0:w 8,16:r"},
                            {"loaded_pointers_in_shared", kFollows},
                            {"shared_atomics", "0:rw 8:r"},
                            {"shared_or_global", "0:w 8:r"},
                            {"shuffled_pointers", "0:w 8,16:r"},
                            {"converted", "0:w 8:r"},
                            {"assembly", "0:w 8:r"},
                            {"async_copies", "0:w 8:r"},
                            {"tensor_cores", "0:w 8:r 16:r"},
                            {"mathematics", "0:w 8:r 16:r"},
                            {"asserts", "0:w 8:r"},
                            {"whole_parameter", "16:w 24:r"},
                            {"prints", "? it calls vprintf"},
                            {"allocates", "? it calls malloc"},
                            {"texture", "? an instruction that is not understood: tex.1d.v4.f32.s32"},
                            {"surface", "? an instruction that is not understood: sust.b.1d.b32.trap"},
                            {"reads_constant", "0:w a_constant:r"},
                            {"reads_managed", "? it reaches the managed variable a_managed"},
                            {"calls_pointer", "? it calls through a pointer"},
                            {"syncs_grid", "? an unknown name: %envreg2"},
                            {"other_blocks_memory", "? an instruction that is not understood: mapa.u64"},
                        });
}

TEST(PtxFlow, KernelsOfDigits) {
  expect("digits", {
                       {"digits_normalize", "0:r 8:w"},
                       {"_Z12conv_forwardILi1EEvPKfS1_S1_Pfiiii", "0:r 8:r 16:r 24:w"},
                       {"_Z12conv_forwardILi3EEvPKfS1_S1_Pfiiii", "0:r 8:r 16:r 24:w"},
                       {"_Z12conv_forwardILi5EEvPKfS1_S1_Pfiiii", "0:r 8:r 16:r 24:w"},
                       {"_Z18conv_backward_dataILi1EEvPKfS1_Pfiiii", "0:r 8:r 16:w"},
                       {"_Z18conv_backward_dataILi3EEvPKfS1_Pfiiii", "0:r 8:r 16:w"},
                       {"_Z18conv_backward_dataILi5EEvPKfS1_Pfiiii", "0:r 8:r 16:w"},
                       {"_Z21conv_backward_weightsILi1EEvPKfS1_Pf9ConvSizesi", "0:r 8:r 16:w"},
                       {"_Z21conv_backward_weightsILi3EEvPKfS1_Pf9ConvSizesi", "0:r 8:r 16:w"},
                       {"_Z21conv_backward_weightsILi5EEvPKfS1_Pf9ConvSizesi", "0:r 8:r 16:w"},
                       {"_Z18conv_backward_biasPKfPfiiii", "0:r 8:w"},
                       {"digits_sum_slices", "0:r 8:w"},
                       {"digits_relu_forward", "0:rw"},
                       {"digits_relu_backward", "0:r 8:w"},
                       {"digits_pool2_forward", "0:r 8:w 16:w"},
                       {"digits_pool2_backward", "0:r 8:r 16:w"},
                       {"digits_pool3_forward", "0:r 8:w 16:w"},
                       {"digits_pool3_backward", "0:r 8:r 16:w"},
                       {"digits_add4", "0:r 8:r 16:r 24:r 32:w"},
                       {"digits_flatten_forward", "0:r 8:w"},
                       {"digits_flatten_backward", "0:r 8:w"},
                       {"digits_softmax_loss", "0:r 8:r 16:w 24:w"},
                       {"digits_mean", "0:r 8:w"},
                       {"digits_sgd", "0:rw 8:rw 16:r"},
                   });
}

TEST(PtxFlow, KernelsOfTheIntegrationPrograms) {
  expect("programs", {{"_Z3mixILi1EEvPKjS1_Pjij", "0:r 8:r 16:w"},
                      {"_Z3mixILi3EEvPKjS1_Pjij", "0:r 8:r 16:w"},
                      {"_Z4postILi1EEvPjj", "0:w"},
                      {"_Z4spanILi3EEvPjS0_iij", "0:w"},
                      {"_Z5awaitILi1EEvPKjjPj", "0:r 16:w"},
                      {"_Z6updateILi1EEvPjPKji", "0:rw 8:r"},
                      {"_Z7span_toILi3EEvPjPKS0_j", "0:w 8:r"}});
}

TEST(PtxFlow, NumbersThatAreAddedAreToldInWordsOf4Bytes) {
  using Numbers = std::map<std::vector<std::uint32_t>, std::vector<std::uint32_t>>;
  const auto numbers = [](const char* kernel) {
    Numbers found;
    for (const AddressGroup& group : test::prove(ptx_file("programs"), kernel).extents.groups)
      found[group.at] = group.numbers;
    return found;
  };
  EXPECT_EQ(numbers("_Z3mixILi1EEvPKjS1_Pjij"), (Numbers{{{0}, {}}, {{8}, {24}}, {{16}, {}}})) << "not the salt";
  EXPECT_EQ(numbers("_Z4spanILi3EEvPjS0_iij"), (Numbers{{{0}, {16}}})) << "nor where it ends";
}

TEST(PtxFlow, KernelsInTheStyleOfTriton) { expect("triton", {{"add_kernel", "0:r 8:r 16:w"}}); }

TEST(PtxFlow, WhatAKernelHandsOnIsTold) {
  EXPECT_EQ(test::prove(ptx_file("kernels"), "publishes").stored, std::vector<std::uint32_t>{8});
  EXPECT_EQ(test::prove(ptx_file("kernels"), "scale").stored, std::vector<std::uint32_t>{16}) << "a factor, in part";
  EXPECT_TRUE(test::prove(ptx_file("kernels"), "gather").stored.empty());
}

TEST(PtxFlow, SelfContainednessIsTheKernelsOwn) {
  const std::string text = ptx_file("kernels") + "";
  for (const char* name : {"scale", "calls", "pointer_table", "linked_list"})
    EXPECT_TRUE(test::prove(text, name).self_contained) << name;
  for (const char* name : {"reads_global", "writes_global", "global_pointer"})
    EXPECT_FALSE(test::prove(text, name).self_contained) << name;
  const std::string gpu = ptx_file("gpu_kernels");
  for (const char* name : {"transpose", "asserts", "mathematics"})
    EXPECT_TRUE(test::prove(gpu, name).self_contained) << name;
  for (const char* name : {"prints", "allocates", "texture", "surface", "reads_constant", "reads_managed",
                           "calls_pointer", "syncs_grid", "other_blocks_memory"}) {
    const PtxProof proof = test::prove(gpu, name);
    EXPECT_FALSE(proof.self_contained) << name;
    EXPECT_FALSE(proof.why_not_self_contained.empty()) << name;
  }
}

// ---- hand-written: what an address can come from ----

TEST(PtxFlow, AWordThatIsPutTogetherFromHalves) {
  EXPECT_EQ(proven("ld.param.v2.u32 {%r1,%r2}, [p0]; mov.b64 %rd1, {%r1,%r2}; ld.global.u32 %r3, [%rd1];"), "0:r");
  EXPECT_EQ(proven("ld.param.u32 %r1, [p1]; ld.param.u32 %r2, [p1+4]; cvt.u64.u32 %rd1, %r1; cvt.u64.u32 %rd2, %r2;"
                   "shl.b64 %rd3, %rd2, 32; or.b64 %rd4, %rd3, %rd1; st.global.u32 [%rd4], 0;"),
            "8:w");
  EXPECT_EQ(proven("ld.param.u32 %r1, [p1]; ld.param.u32 %r2, [p1+4]; cvt.u64.u32 %rd1, %r1; cvt.u64.u32 %rd2, %r2;"
                   "mad.lo.s64 %rd4, %rd2, 4294967296, %rd1; st.global.u32 [%rd4], 0;"),
            "8:w");
  // Halves of two words, as where a structure is packed: it may be either's.
  EXPECT_EQ(proven("ld.param.u32 %r1, [p0+4]; ld.param.u32 %r2, [p1]; mov.b64 %rd1, {%r1,%r2}; ld.u32 %r3, [%rd1];"),
            "0,8:r");
}

TEST(PtxFlow, AnAddressFromMemoryInHalves) {
  const std::string base = "ld.param.u64 %rd9, [p0]; ld.param.u64 %rd8, [p1];";
  EXPECT_EQ(proven(base + "ld.global.v2.u32 {%r1,%r2}, [%rd9]; mov.b64 %rd1, {%r1,%r2}; st.global.u32 [%rd1], 0;"),
            kFollows);
  EXPECT_EQ(
      proven(base + "ld.global.u32 %r1, [%rd9]; ld.global.u32 %r2, [%rd9+4]; cvt.u64.u32 %rd1, %r1;"
                    "cvt.u64.u32 %rd2, %r2; shl.b64 %rd2, %rd2, 32; or.b64 %rd3, %rd2, %rd1; ld.u32 %r3, [%rd3];"),
      kFollows);
  EXPECT_EQ(proven(base + "ld.global.u64 %rd1, [%rd9]; mov.b64 {%r1,%r2}, %rd1; add.s32 %r1, %r1, 4;"
                          "mov.b64 %rd2, {%r1,%r2}; ld.u32 %r3, [%rd2];"),
            kFollows);
  // It might be an index, it might be the pointer: 64 bits, and not scaled.
  EXPECT_EQ(proven(base + "ld.global.u64 %rd1, [%rd9]; add.s64 %rd2, %rd8, %rd1; ld.global.u8 %rs1, [%rd2];"),
            kFollows);
  EXPECT_EQ(proven(base + "ld.global.u64 %rd1, [%rd9]; sub.s64 %rd2, %rd8, %rd1; ld.global.u8 %rs1, [%rd2];"),
            kFollows);
  EXPECT_EQ(proven(base + "ld.global.u64 %rd1, [%rd9]; mul.lo.s64 %rd1, %rd1, -1; add.s64 %rd2, %rd8, %rd1;"
                          "ld.global.u8 %rs1, [%rd2];"),
            kFollows);
  EXPECT_EQ(proven(base + "ld.global.f64 %fd1, [%rd9]; mov.b64 %rd1, %fd1; ld.u8 %rs1, [%rd1];"), kFollows);
  EXPECT_EQ(proven(base + "atom.global.exch.b64 %rd1, [%rd9], 0; ld.u8 %rs1, [%rd1];"), kFollows);
  // Scaled, it is an index; also where a sign is extended by shifts.
  EXPECT_EQ(proven(base + "ld.global.u64 %rd1, [%rd9]; shl.b64 %rd3, %rd1, 2; add.s64 %rd2, %rd8, %rd3;"
                          "ld.global.u32 %r1, [%rd2];"),
            "0:r 8:r");
  EXPECT_EQ(proven(base + "ld.global.u64 %rd1, [%rd9]; shl.b64 %rd2, %rd1, 32; shr.s64 %rd3, %rd2, 30;"
                          "add.s64 %rd4, %rd8, %rd3; ld.global.u32 %r1, [%rd4];"),
            "0:r 8:r");
}

TEST(PtxFlow, WhatMayBeAMereNumberProvesNothing) {
  constexpr char kNumber[] = "? an address that may be just a number";
  // Each time the other one is a pointer as all are.
  const std::string base =
      "ld.param.u64 %rd9, [p0]; ld.param.u64 %rd8, [p1]; ld.global.u64 %rd1, [%rd9];"
      "ld.global.u32 %r1, [%rd9]; ld.param.u32 %r9, [p6];";
  const std::string uses = "selp.b64 %rd7, %rd2, %rd8, %p1; st.global.u32 [%rd7], 0;";
  EXPECT_EQ(proven(base + "mov.u64 %rd2, 0;" + uses), "0:r 8:w") << "null";
  for (const char* link : {
           "shl.b64 %rd2, %rd1, 16; shr.s64 %rd2, %rd2, 16;",   // 16 bits of a tag
           "shl.b64 %rd3, %rd1, 16; shr.u64 %rd2, %rd3, 16;",   //
           "shr.u64 %rd3, %rd9, 16; shl.b64 %rd2, %rd3, 4;",    //
           "cvt.u64.u32 %rd3, %r1; shl.b64 %rd2, %rd3, 8;",     // in units of 256 bytes
           "mul.wide.u32 %rd2, %r1, 16;",                       //
           "cvt.u64.u32 %rd3, %r9; shl.b64 %rd2, %rd3, %r1;",   //
           "cvt.u64.u32 %rd3, %r1; shr.u64 %rd2, %rd3, %r9;",   //
           "mad.lo.s64 %rd2, %rd1, 16, 4096;",                  //
           "cvt.u64.u32 %rd2, %r1; add.s64 %rd2, %rd2, 4096;",  //
           "cvt.u64.u32 %rd2, %r1; neg.s64 %rd2, %rd2;",        //
           "cvt.u64.u32 %rd2, %r1; min.u64 %rd2, %rd2, %rd8;",  //
           "cvt.s64.s32 %rd2, %r1; and.b64 %rd2, %rd2, %rd8;",  //
           "cvt.u64.u32 %rd2, %r9; shl.b64 %rd2, %rd2, 32;",    // half of one
           "mov.u64 %rd2, 140000000000000;",                    // in the code itself
           "and.b64 %rd3, %rd1, %rd9; cvt.s64.s32 %rd4, %r9; and.b64 %rd3, %rd3, %rd4; not.b64 %rd4, %rd4;"
           "and.b64 %rd2, %rd8, %rd4; or.b64 %rd2, %rd2, %rd4;",
           "mov.u64 %rd2, %clock64;",  //
       })
    EXPECT_EQ(proven(base + link + uses), kNumber) << link;
  EXPECT_EQ(proven(base + "selp.b64 %rd7, 140000000000000, %rd8, %p1; st.global.u32 [%rd7], 0;"), kNumber);
  EXPECT_EQ(proven(base + "cvt.u64.u32 %rd2, %r1; mov.u64 %rd8, %rd2; st.global.u32 [%rd8], 0;"), kNumber);
  // As an offset from a pointer it is one.
  for (const char* sum : {"add.s64 %rd2, %rd8, %rd3;", "sub.s64 %rd2, %rd8, %rd3;", "mad.wide.u32 %rd2, %r1, 4, %rd8;",
                          "mad.lo.s64 %rd2, %rd3, 12, %rd8;", "add.s64 %rd2, %rd8, 4096;", "and.b64 %rd2, %rd8, -16;",
                          "or.b64 %rd2, %rd8, 4;", "add.s64 %rd3, %rd3, 1; add.s64 %rd2, %rd3, %rd8;"})
    EXPECT_EQ(proven(base + "cvt.u64.u32 %rd3, %r1;" + sum + "st.global.u32 [%rd2], 0;"), "0:r 8:w") << sum;
  // By way of a function, and of the thread's own memory.
  const std::string store =
      ".func put(.param .b64 a)\n{ .reg .b64 %rd<4>; ld.param.b64 %rd1, [a]; st.u32 [%rd1], 0; ret; }";
  const std::string call = "{ .param .b64 b; st.param.b64 [b], %rd8; call put, (b); }";
  EXPECT_EQ(proven(base + call, store), "0:r 8:w");
  EXPECT_EQ(
      proven(base + call + "cvt.u64.u32 %rd2, %r1; { .param .b64 c; st.param.b64 [c], %rd2; call put, (c); }", store),
      kNumber);
  const std::string depot = ".local .align 8 .b8 depot[64]; mov.u64 %rd5, depot; st.local.u64 [%rd5], %rd8;" + base;
  EXPECT_EQ(proven(depot + "ld.local.u64 %rd2, [%rd5]; st.global.u32 [%rd2], 0;"), "0:r 8:w");
  EXPECT_EQ(proven(depot + "cvt.u64.u32 %rd3, %r1; st.local.u64 [%rd5], %rd3; ld.local.u64 %rd2, [%rd5];"
                           "st.global.u32 [%rd2], 0;"),
            kNumber);
}

TEST(PtxFlow, AnAddressThatIsStoredInPieces) {
  const auto stored = [](const std::string& body) {
    return test::prove(kernel("ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2];" + body), "k")
        .stored;
  };
  using Words = std::vector<std::uint32_t>;
  EXPECT_EQ(stored("st.global.u64 [%rd1], %rd2;"), Words{8});
  EXPECT_EQ(stored("mov.b64 {%r1,%r2}, %rd2; st.global.v2.u32 [%rd1], {%r1,%r2};"), Words{8});
  EXPECT_EQ(stored("cvt.u32.u64 %r1, %rd2; st.global.u32 [%rd1], %r1; shr.u64 %rd4, %rd2, 32; cvt.u32.u64 %r2, %rd4;"
                   "st.global.u32 [%rd1+4], %r2;"),
            Words{8});
  EXPECT_EQ(stored("shr.u64 %rd4, %rd2, 8; st.global.u8 [%rd1], %rd4;"), Words{8});
  EXPECT_EQ(stored("shl.b64 %rd4, %rd2, 16; or.b64 %rd4, %rd4, 5; st.global.u64 [%rd1], %rd4;"), Words{8});
  EXPECT_EQ(stored("ld.param.v2.u32 {%r1,%r2}, [p1]; st.global.v2.u32 [%rd1], {%r1,%r2};"), Words{8});
  EXPECT_EQ(stored("ld.global.u32 %r1, [%rd2]; add.s32 %r1, %r1, 1; st.global.u32 [%rd1], %r1;"), Words{})
      << "what lies in memory is no parameter";
}

TEST(PtxFlow, MemoryOfThreadsAndBlocksKeepsWhatIsStoredThere) {
  const std::string base = ".local .align 8 .b8 depot[64]; .shared .align 8 .b8 block[64]; ld.param.u64 %rd1, [p0];";
  EXPECT_EQ(proven(base + "mov.u64 %rd2, depot; st.local.u64 [%rd2+8], %rd1; ld.local.u64 %rd3, [%rd2+8];"
                          "st.global.u32 [%rd3], 0;"),
            "0:w");
  // Words that no one mixes up are told apart; through an address that changes, none is.
  const std::string two = base +
                          "ld.param.u64 %rd9, [p1]; ld.param.u32 %r9, [p6]; mov.u64 %rd2, depot;"
                          "cvta.local.u64 %rd5, %rd2; add.u64 %rd6, %rd5, 8; st.u64 [%rd6], %rd1;";
  const std::string moving = "mul.wide.u32 %rd10, %r9, 8; add.s64 %rd11, %rd2, %rd10;";
  EXPECT_EQ(proven(two + "st.local.u64 [%rd2], %rd9; ld.local.u64 %rd3, [%rd2+8]; st.global.u32 [%rd3], 0;"), "0:w");
  EXPECT_EQ(proven(two + moving + "st.local.u64 [%rd11], %rd9; ld.local.u64 %rd3, [%rd2+8]; st.global.u32 [%rd3], 0;"),
            "0,8:w");
  EXPECT_EQ(proven(two + moving + "st.local.u64 [%rd2], %rd9; ld.local.u64 %rd3, [%rd11]; st.global.u32 [%rd3], 0;"),
            "0,8:w");
  EXPECT_EQ(proven(two + "st.local.u64 [%rd2+20], %rd9; ld.local.u64 %rd3, [%rd2+8]; st.global.u32 [%rd3], 0;"),
            "0,8:w");
  EXPECT_EQ(proven(two + "mov.b64 {%r1,%r2}, %rd9; st.local.v2.u32 [%rd2+8], {%r1,%r2}; ld.local.u64 %rd3, [%rd2+8];"
                         "st.global.u32 [%rd3], 0;"),
            "0,8:w");
  // A register that is moved on is no fixed place.
  EXPECT_EQ(proven(two + "st.local.u64 [%rd2], %rd9; mov.u64 %rd12, %rd2; add.u64 %rd12, %rd12, 8;"
                         "ld.local.u64 %rd3, [%rd12]; st.global.u32 [%rd3], 0;"),
            "0,8:w");
  EXPECT_EQ(proven(base + "mov.u64 %rd2, depot; cvta.local.u64 %rd4, %rd2; mov.b64 {%r1,%r2}, %rd1;"
                          "st.v2.u32 [%rd4], {%r1,%r2}; ld.u64 %rd3, [%rd4]; st.global.u32 [%rd3], 0;"),
            "0:w");
  EXPECT_EQ(proven(base + "st.shared.u64 [block], %rd1; mov.u32 %r1, block; ld.shared.u64 %rd3, [%r1+8];"
                          "st.global.u32 [%rd3], 0;"),
            "0:w");
  // A generic address of shared memory that went through 32 bits.
  EXPECT_EQ(proven(base + "mov.u32 %r1, block; add.s32 %r1, %r1, 8; cvt.u64.u32 %rd2, %r1; cvta.shared.u64 %rd4, %rd2;"
                          "st.u64 [%rd4], %rd1; ld.shared.u64 %rd3, [block]; st.global.u32 [%rd3], 0;"),
            "0:w");
  EXPECT_EQ(proven(base + "atom.shared.exch.b64 %rd5, [block], %rd1; ld.shared.u64 %rd3, [block];"
                          "st.global.u32 [%rd3], 0;"),
            "0:w");
  // What an asynchronous copy brought comes from memory.
  EXPECT_EQ(proven(base + "mov.u32 %r1, block; cp.async.ca.shared.global [%r1], [%rd1], 8; ld.shared.u64 %rd3, [%r1];"
                          "st.global.u32 [%rd3], 0;"),
            kFollows);
  EXPECT_EQ(proven(base + "mov.u32 %r1, block; cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16;"
                          "cp.async.commit_group; cp.async.wait_group 0;"),
            "0:r");
  EXPECT_EQ(proven(base + "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 64; cp.async.bulk.commit_group;"),
            "0:w");
  EXPECT_EQ(
      proven(base + "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 64, [%r2];"),
      "0:r");
}

TEST(PtxFlow, EveryWayOfTouchingMemoryCounts) {
  const std::string base = "ld.param.u64 %rd1, [p2]; cvta.to.global.u64 %rd1, %rd1;";
  const std::pair<const char*, const char*> cases[] = {
      {"ld.volatile.global.u32 %r1, [%rd1];", "16:r"},
      {"ld.acquire.gpu.global.u32 %r1, [%rd1];", "16:r"},
      {"ld.global.nc.L1::no_allocate.v2.f32 {_, %f1}, [%rd1+-8];", "16:r"},
      {"ldu.global.f32 %f1, [%rd1];", "16:r"},
      {"st.release.sys.global.u32 [%rd1], %r1;", "16:w"},
      {"st.u8 [%rd1+3], 0;", "16:w"},
      {"st.global.v4.f32 [%rd1], {%f1, %f2, 0f3F800000, %f3};", "16:w"},
      {"atom.global.add.u32 %r1, [%rd1], 1;", "16:rw"},
      {"atom.global.cas.b64 %rd2, [%rd1], %rd3, %rd4;", "16:rw"},
      {"red.global.add.f32 [%rd1], %f1;", "16:rw"},
      {"red.relaxed.gpu.global.add.noftz.f16x2 [%rd1], %r1;", "16:rw"},
      {"discard.global.L2 [%rd1], 128;", "16:w"},
      {"wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {%f1,%f2}, %r1;", "16:w"},
      {"mbarrier.arrive.b64 %rd2, [%rd1];", "16:rw"},
      {"prefetch.global.L2 [%rd1];", ""},
  };
  for (const auto& [line, expected] : cases) EXPECT_EQ(proven(base + line), expected) << line;
}

TEST(PtxFlow, WhatIsNotKnownIsNotGuessed) {
  const std::string base = "ld.param.u64 %rd1, [p0]; ld.param.u32 %r1, [p6];";
  for (const char* line : {
           "frobnicate.b64 %rd2, %rd1;",
           "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3];",
           "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2,%r3}], "
           "[%r4];",
           "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 16;",
           "multimem.red.global.add.f32 [%rd1], %f1;",
           "ld.global.b128 %rd2, [%rd1];",
           "ld.global.u32 %r2, [4096];",
           "st.global.u32 [%rd31], 0;",  // a register that nothing was put into
           "st.u32 [nowhere], 0;",
           "cvt.u64.u32 %rd2, %r1; st.global.u32 [%rd2], 0;",  // a 32-bit number as an address
           "ld.param.u64 %rd2, [p6]; st.global.u32 [%rd2], 0;",
           "ld.local.u32 %r2, [%rd1];",
           "ld.const.u32 %r2, [%rd1];",
           "st.param.u32 [p6], %r1;",
           "call (%r2), outside, (%r1);",
           "call %rd1, (%r1);",
           ".maxnreg 3;",
           "mov.u64 %rd2, %envreg3;",
           "alloca.u64 %rd2, 16;",
           "tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2;",
           "ld.global.u32 %r2, [%rd1",
       })
    EXPECT_EQ(proven(base + line).substr(0, 1), "?") << line;
}

TEST(PtxFlow, BothEndsOfASumCount) {
  // Which of two 64-bit words is the pointer cannot be told.
  EXPECT_EQ(proven("ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; add.s64 %rd3, %rd1, %rd2; st.u32 [%rd3], 0;"),
            "0,8:w");
  EXPECT_EQ(
      proven("ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd4, [p2]; sub.s64 %rd3, %rd1, %rd2;"
             "sub.s64 %rd5, %rd4, %rd3; st.u32 [%rd5], 0;"),
      "0,8,16:w");
}

TEST(PtxFlow, RegistersOfInnerScopesAreTheirOwn) {
  EXPECT_EQ(
      proven("ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1];"
             "{ .reg .b64 %rd<4>; ld.param.u64 %rd1, [p2]; st.global.u32 [%rd1], 0; } ld.global.u32 %r1, [%rd1];"),
      "0:r 16:w");
}

TEST(PtxFlow, FunctionsThatCallThemselves) {
  const std::string walk =
      ".func walk(.param .b64 a, .param .b32 n)\n{ .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<2>;\n"
      "ld.param.b64 %rd1, [a]; ld.param.b32 %r1, [n]; st.u32 [%rd1], %r1; add.s64 %rd2, %rd1, 4; sub.s32 %r2, %r1, 1;\n"
      "setp.eq.s32 %p1, %r2, 0; @%p1 bra $done;\n"
      "{ .param .b64 b; st.param.b64 [b], %rd2; .param .b32 m; st.param.b32 [m], %r2; call walk, (b, m); }\n$done: "
      "ret; }";
  EXPECT_EQ(proven("ld.param.u64 %rd1, [p3]; { .param .b64 b; .param .b32 m; st.param.b64 [b], %rd1;"
                   "st.param.b32 [m], 7; call walk, (b, m); }",
                   walk),
            "24:w");
}

}  // namespace
}  // namespace nimble::code
