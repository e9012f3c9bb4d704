// Images: which of their parts speaks for a kernel, and how sure that is.
#include "analyzer/kernel_code/image.h"

#include "analyzer/kernel_code/elf.h"
#include "tests/unit/analyzer/kernel_code/fatbin_support.h"
#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::code {
namespace {

using test::write_fatbin;
using Packing = FatbinEntry::Packing;

std::string ptx(unsigned arch, const std::string& body, const std::string& before = "") {
  std::string text = test::kernel(body, before);
  text.replace(text.find("sm_90"), 5, "sm_" + std::to_string(arch));
  return text;
}

constexpr char kReads[] = "ld.param.u64 %rd1, [p0]; ld.global.u32 %r1, [%rd1];";
constexpr char kWrites[] = "ld.param.u64 %rd1, [p0]; st.global.u32 [%rd1], 1;";

KernelFacts facts(const std::string& bytes, const char* name = "k", std::vector<unsigned> archs = {90}) {
  return Image(bytes).kernel(name, archs);
}

std::string modes(const KernelFacts& of) {
  if (!of.accesses) return "? " + of.why_not_proven;
  PtxProof proof;
  proof.understood = true;
  proof.accesses = *of.accesses;
  return test::spoken(proof);
}

TEST(Image, PtxAloneIsWhatRuns) {
  const KernelFacts of = facts(ptx(80, kReads));
  EXPECT_EQ(modes(of), "0:r");
  EXPECT_EQ(of.origin, Origin::same);
  EXPECT_TRUE(of.self_contained);
  ASSERT_EQ(of.params.size(), 8u);
  EXPECT_EQ(of.params[7], (std::pair<std::uint32_t, std::uint32_t>{52, 4}));
  EXPECT_EQ(facts(ptx(80, kReads), "other").why, "its image has no PTX for it");
}

TEST(Image, TheNewestPtxThatTheDeviceTakesIsCompiled) {
  const std::string bytes = write_fatbin({{1, 80, ptx(80, kReads), Packing::zstd, 0},
                                          {1, 90, ptx(90, kWrites), Packing::lz4, 0},
                                          {1, 120, ptx(120, kReads), Packing::plain, 0}});
  EXPECT_EQ(modes(facts(bytes, "k", {80})), "0:r");
  EXPECT_EQ(modes(facts(bytes, "k", {90})), "0:w");
  EXPECT_EQ(modes(facts(bytes, "k", {103})), "0:w");
  EXPECT_EQ(modes(facts(bytes, "k", {120})), "0:r");
  EXPECT_FALSE(facts(bytes, "k", {75}).self_contained);
  EXPECT_FALSE(facts(bytes, "k", {75}).accesses);
  // Devices that differ: what holds on all of them.
  EXPECT_EQ(modes(facts(bytes, "k", {90, 103})), "0:w");
  EXPECT_EQ(modes(facts(bytes, "k", {80, 90})), "? it differs from device to device");
  EXPECT_FALSE(facts(bytes, "k", {}).accesses);
}

TEST(Image, PtxThatFollowsMemoryIsKnownTo) {
  constexpr char kFollows[] =
      "ld.param.u64 %rd1, [p0]; ld.global.u64 %rd2, [%rd1]; st.global.u32 [%rd2], 1; ld.global.u32 %r1, [%rd1];";
  EXPECT_TRUE(facts(ptx(80, kFollows)).follows_memory);
  EXPECT_FALSE(facts(ptx(80, kReads)).follows_memory);
  // Whatever else is not understood before.
  EXPECT_TRUE(facts(ptx(80, std::string("mov.u64 %rd3, 4096; st.global.u32 [%rd3], 1;") + kFollows)).follows_memory);
  // On one of two devices is enough.
  const std::string bytes = write_fatbin({{1, 80, ptx(80, kReads)}, {1, 90, ptx(90, kFollows)}});
  EXPECT_TRUE(facts(bytes, "k", {80, 90}).follows_memory);
  EXPECT_FALSE(facts(bytes, "k", {80}).follows_memory);
}

TEST(Image, TwoTextsOfOneArchitectureAreNoProof) {
  const std::string bytes =
      write_fatbin({{1, 90, ptx(90, kReads)}, {1, 90, ptx(90, kWrites), Packing::plain, 0x100000}});
  EXPECT_FALSE(facts(bytes).accesses);
  EXPECT_FALSE(facts(bytes).self_contained);
}

TEST(Image, AFatbinThatSaysOneTargetAndHoldsAnotherIsNoProof) {
  EXPECT_FALSE(facts(write_fatbin({{1, 90, ptx(80, kReads)}})).accesses);
}

TEST(Image, WhatCannotBeReadIsNotKnown) {
  for (const std::string& bytes :
       {std::string(), std::string("nonsense"), write_fatbin({}), write_fatbin({{7, 90, "?"}}),
        write_fatbin({{1, 90, "no PTX"}}), write_fatbin({{2, 90, "no ELF"}}),
        write_fatbin({{1, 90, ptx(90, kReads)}}).substr(0, 200)}) {
    const KernelFacts of = facts(bytes);
    EXPECT_FALSE(of.self_contained);
    EXPECT_FALSE(of.accesses);
    EXPECT_FALSE(of.why.empty());
    EXPECT_FALSE(Image(bytes).whole().self_contained);
  }
}

TEST(Image, BytesAreFetchedWhenTheyAreNeeded) {
  int fetched = 0;
  bool gone = false;
  Image image([&]() -> std::optional<std::string> {
    ++fetched;
    return gone ? std::nullopt : std::optional(ptx(90, kReads));
  });
  EXPECT_EQ(fetched, 0);
  const unsigned archs[] = {90};
  EXPECT_EQ(modes(image.kernel("k", archs)), "0:r");
  EXPECT_EQ(modes(image.kernel("k", archs)), "0:r");
  EXPECT_EQ(fetched, 1);
  gone = true;
  EXPECT_EQ(image.kernel("other", archs).why, "its image is gone");
  EXPECT_EQ(modes(image.kernel("k", archs)), "0:r");
}

TEST(Image, InMemoryItsHeadersTellHowLargeItIs) {
  const std::string fatbin = write_fatbin({{1, 90, ptx(90, kReads)}}), padded = fatbin + "more";
  EXPECT_EQ(image_in_memory(padded.data()), fatbin);
  struct {
    std::uint32_t magic = kFatbinWrapperMagic, version = 1;
    const char* data;
  } wrapper;
  wrapper.data = padded.data();
  EXPECT_EQ(image_in_memory(&wrapper), fatbin);
  wrapper.version = 2;
  EXPECT_EQ(image_in_memory(&wrapper), std::nullopt);
  const std::string text = ptx(90, kReads);
  EXPECT_EQ(image_in_memory(text.c_str()), text);
  EXPECT_EQ(image_in_memory(nullptr), std::nullopt);
  EXPECT_EQ(image_in_memory("some other text, which is no image"), std::nullopt);
}

class ImageOfNvcc : public testing::Test {
 protected:
  void SetUp() override {
    if (std::string_view(NIMBLE_TEST_CUBINS).empty())
      GTEST_SKIP() << "no nvcc on this machine: machine code is not covered here";
  }
  static std::string file(const std::string& name) { return test::read_file(NIMBLE_TEST_CUBINS "/" + name); }
  // A cubin in which the kernel's machine code cannot be understood.
  static std::string spoiled(const std::string& name, const std::string& kernel) {
    std::string bytes = file(name);
    const Elf elf(bytes);
    const ElfSection* const text = elf.section(".text." + kernel);
    EXPECT_NE(text, nullptr);
    if (text)
      bytes.replace(static_cast<std::size_t>(text->bytes.data() - bytes.data()), text->bytes.size(), text->bytes.size(),
                    '\xff');
    return bytes;
  }
};

// all of cubins.cu with a variable: machine code for 8.0 and 9.0, PTX for 9.0.
TEST_F(ImageOfNvcc, PtxSpeaksForTheMachineCodeBesideIt) {
  for (const char* mode : {"none.fatbin", "speed.fatbin", "balance.fatbin", "size.fatbin"}) {
    const std::string bytes = file(mode);
    const KernelFacts plain = facts(bytes, "plain");
    EXPECT_EQ(modes(plain), "0:w 8:r") << mode;
    EXPECT_EQ(plain.origin, Origin::same) << mode;
    // The machine code alone could not tell it from the kernel that uses the variable.
    EXPECT_TRUE(plain.self_contained) << mode << ": " << plain.why;
    EXPECT_TRUE(facts(bytes, "asserts").self_contained) << mode;
    EXPECT_FALSE(facts(bytes, "writes_variable").self_contained) << mode;
    EXPECT_FALSE(facts(bytes, "prints").self_contained) << mode;
    EXPECT_FALSE(facts(bytes, "calls_pointer").self_contained) << mode;
  }
}

TEST_F(ImageOfNvcc, PtxOfAnotherArchitectureIsLessSure) {
  const std::string bytes =
      write_fatbin({{2, 80, spoiled("kernels_80.cubin", "scale")}, {1, 90, test::ptx_file("kernels")}});
  const KernelFacts scale = facts(bytes, "scale", {80});
  EXPECT_EQ(modes(scale), "0:w 8:r");
  EXPECT_EQ(scale.origin, Origin::other);
  EXPECT_FALSE(scale.self_contained) << "the variable may be reached, as far as the machine code tells";
}

TEST_F(ImageOfNvcc, WhereNoMachineCodeIsForJustThisDeviceItsPtxMayRunToo) {
  // 8.6 runs code for 8.0, and takes no PTX for 9.0; 10.0 runs no code for 9.0, and takes its PTX.
  EXPECT_EQ(facts(file("size.fatbin"), "plain", {86}).origin, Origin::same);
  EXPECT_EQ(facts(file("size.fatbin"), "plain", {100}).origin, Origin::same);
  // Machine code that was made through 8.0, with PTX of 8.0 and of 9.0.
  const std::string through = spoiled("older.cubin", "plain");
  const auto with = [&](unsigned arch) {
    std::string text = ptx(arch, kReads);
    text.replace(text.find("entry k("), 8, "entry plain(");
    return test::EntryToWrite{1, arch, text};
  };
  EXPECT_EQ(facts(write_fatbin({{2, 90, through}, with(80)}), "plain").origin, Origin::same);
  EXPECT_EQ(facts(write_fatbin({{2, 90, through}, with(90)}), "plain").origin, Origin::other);
  EXPECT_EQ(facts(write_fatbin({{2, 90, through}, with(90), with(80)}), "plain").origin, Origin::same);
}

TEST_F(ImageOfNvcc, ConstantVariablesAreToldFromOthers) {
  for (const char* kernel : {"plain", "reads_constant"}) {
    const KernelFacts found = facts(file("constant.cubin"), kernel);
    EXPECT_TRUE(found.constants && !found.self_contained) << kernel;
    EXPECT_EQ(found.why, "it has constant variables (.nv.constant3)") << kernel;
  }
  EXPECT_FALSE(facts(file("constant.cubin"), "prints").constants) << "it calls out, too";
  EXPECT_FALSE(facts(file("all.cubin"), "plain").constants);
  EXPECT_FALSE(Image(file("constant.cubin")).whole().self_contained);
  // Which of two is loaded only the driver knows; each has to be as good.
  const std::string constant = file("constant.cubin"), all = file("all.cubin"), older = file("older.cubin");
  const KernelFacts both = facts(write_fatbin({{2, 90, constant}, {2, 90, all}}), "plain");
  EXPECT_TRUE(both.constants && !both.self_contained);
  const KernelFacts devices = facts(write_fatbin({{2, 90, constant}, {2, 80, older}}), "plain", {80, 90});
  EXPECT_TRUE(devices.constants && !devices.self_contained);
  EXPECT_FALSE(facts(write_fatbin({{2, 90, constant}, {2, 90, file("variable.cubin")}}), "plain").constants);
}

TEST_F(ImageOfNvcc, MachineCodeIsWhatRunsWhereTheDriverCompilesNoPtx) {
  const KernelFacts plain = facts(file("all.cubin"), "plain");
  EXPECT_TRUE(plain.self_contained);
  EXPECT_EQ(modes(plain), "0:w 8:r");
  EXPECT_EQ(plain.origin, Origin::same);
  ASSERT_FALSE(plain.params.empty());
  EXPECT_EQ(plain.params[1], (std::pair<std::uint32_t, std::uint32_t>{8, 8}));
  EXPECT_FALSE(facts(file("all.cubin"), "prints").self_contained);
  EXPECT_FALSE(facts(file("all.cubin"), "prints").accesses);
  // It knows better than PTX of another architecture; where the driver may compile that, it does not count.
  EXPECT_EQ(facts(file("size.fatbin"), "plain", {80}).origin, Origin::same);
  EXPECT_EQ(facts(file("size.fatbin"), "plain", {86}).origin, Origin::same);
}

TEST_F(ImageOfNvcc, InstructionsThatNoTestHasRunProveNothing) {
  const KernelFacts untried = facts(file("untried.cubin"), "takes_tensor_memory", {100});
  EXPECT_EQ(modes(untried), "? its machine code has matrix operands in tensor memory");
  EXPECT_EQ(modes(facts(file("untried.cubin"), "plain", {100})), "0:w");
  EXPECT_EQ(modes(facts(file("gpu_kernels_90.cubin"), "async_copies")), "0:w 8:r");
}

TEST_F(ImageOfNvcc, WhatFollowsMemoryIsKnownTo) {
  const std::string bytes = file("kernels_90.cubin");
  for (const char* kernel : {"linked_list", "pointer_table", "global_pointer"}) {
    // A list may be empty.
    EXPECT_EQ(facts(bytes, kernel).accesses.has_value(), kernel == std::string_view("linked_list")) << kernel;
    EXPECT_EQ(facts(bytes, kernel).extents.doubts.size(), kernel == std::string_view("linked_list") ? 1u : 0u);
    EXPECT_TRUE(facts(bytes, kernel).follows_memory) << kernel;
  }
  EXPECT_FALSE(facts(bytes, "gather").follows_memory);
  EXPECT_TRUE(facts(test::ptx_file("kernels"), "linked_list").follows_memory);
  EXPECT_FALSE(facts(test::ptx_file("kernels"), "gather").follows_memory);
}

}  // namespace
}  // namespace nimble::code
