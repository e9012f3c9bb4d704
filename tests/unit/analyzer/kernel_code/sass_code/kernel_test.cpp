// Parameters as a kernel's file tells them: those of the PTX that the same source gives.
#include "analyzer/kernel_code/sass_code/kernel.h"

#include <map>
#include <utility>

#include "analyzer/kernel_code/sass_flow/flow.h"
#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::code::sass {
namespace {

using Layout = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // offset, size

Layout layout_of(const std::vector<PtxParam>& params) {
  Layout all;
  for (const PtxParam& each : params) all.emplace_back(each.offset, each.size);
  return all;
}

std::map<std::string, Layout> layouts_in(const std::string& file) {
  const std::string bytes = test::read_file(std::string(NIMBLE_TEST_CUBINS) + "/" + file);
  const Elf elf(bytes);
  EXPECT_EQ(elf.error(), nullptr);
  std::map<std::string, Layout> found;
  for (const ElfSymbol& symbol : elf.symbols())
    if (symbol.kernel) found[std::string(symbol.name)] = layout_of(prove_kernel(elf, symbol.name).params);
  return found;
}

std::map<std::string, Layout> layouts_in_ptx(const std::string& name) {
  const std::string text = test::ptx_file(name);
  const PtxModule module = read_ptx(text);
  EXPECT_EQ(module.error, "");
  std::map<std::string, Layout> found;
  for (const PtxFunction& each : module.functions)
    if (each.entry) found[std::string(each.name)] = layout_of(each.params);
  return found;
}

class Parameters : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (std::string(NIMBLE_TEST_CUBINS).empty()) GTEST_SKIP() << "there is no nvcc";
  }
  std::string file(const std::string& name) const { return name + "_" + std::to_string(GetParam()) + ".cubin"; }
};

TEST_P(Parameters, AreThoseOfThePtx) {
  const auto found = layouts_in(file("kernels"));
  EXPECT_GE(found.size(), 30u);
  EXPECT_EQ(found, layouts_in_ptx("kernels"));
}

// All kernels of this file, whether or not they are understood.
TEST_P(Parameters, AreToldOfWhatIsNotUnderstood) {
  if (GetParam() == 90 || GetParam() == 100) {
    EXPECT_EQ(layouts_in(file("gpu_kernels")), layouts_in_ptx("gpu_kernels"));
  }
}

TEST_P(Parameters, OfManySizes) {
  auto found = layouts_in(file("params"));
  const Layout sizes{{0, 1}, {2, 2}, {8, 8}, {16, 1}, {20, 12}, {32, 1}, {40, 8}, {48, 1}};
  EXPECT_EQ(found["sizes"], sizes);
  EXPECT_EQ(found["large"], (Layout{{0, 20008}, {20008, 4}}));
  EXPECT_EQ(found["none"], Layout());
  // Aligned as the constant bank is, which begins at another address on each family.
  const Layout aligned = found["aligned"];
  ASSERT_EQ(aligned.size(), 4u);
  EXPECT_EQ(aligned[0], (std::pair{0u, 8u}));
  EXPECT_EQ(aligned[1].second, 64u);
  EXPECT_EQ(aligned[2], (std::pair{aligned[1].first + 64, 1u}));
  EXPECT_EQ(aligned[3], (std::pair{aligned[1].first + 128, 64u}));
}

// Its shared memory takes no bytes in the file.
TEST_P(Parameters, OfCodeThatIsYetToBeLinked) {
  if (GetParam() == 90) {
    EXPECT_EQ(layouts_in("params_to_link.cubin"), layouts_in(file("params")));
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, Parameters, testing::Values(75, 80, 90, 100, 120),
                         [](const auto& with) { return "sm_" + std::to_string(with.param); });

}  // namespace
}  // namespace nimble::code::sass
