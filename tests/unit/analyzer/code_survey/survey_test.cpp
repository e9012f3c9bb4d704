// Files with code in them, gone through from end to end.
#include "analyzer/code_survey/survey.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>

#include "analyzer/base/errors.h"
#include "tests/unit/analyzer/kernel_code/fatbin_support.h"
#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::analyzer {
namespace {

using code::FatbinEntry;
using code::test::write_fatbin;

class Survey : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  std::vector<ImageFindings> survey(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    std::vector<ImageFindings> all;
    SurveyTasks tasks = tasks_;
    tasks.found = [&](const ImageFindings& image) { all.push_back(image); };
    survey_file(path_, tasks);
    return all;
  }
  std::string refusal(const std::string& bytes) {
    try {
      survey(bytes);
    } catch (const InputError& error) {
      return error.what();
    }
    return {};
  }

  const std::string path_ = testing::TempDir() + "nimble_survey." + std::to_string(getpid());
  SurveyTasks tasks_{[](const CodeTarget&) { return true; },
                     [](const std::string&) { return true; },
                     {},
                     [](std::uint64_t, std::uint64_t, std::uint64_t) {}};
};

std::string kernel(const std::string& body) { return code::test::kernel(body); }

const char kCopy[] =
    "ld.param.u64 %rd1,[p0]; ld.param.u64 %rd2,[p1]; ld.global.u32 %r1,[%rd2]; st.global.u32 [%rd1],%r1;";
const char kSet[] = "ld.param.u64 %rd1,[p0]; st.global.u32 [%rd1],0;";

TEST_F(Survey, TellsWhatEachKernelTouches) {
  std::uint64_t last = 0;
  tasks_.progress = [&](std::uint64_t kernels, std::uint64_t done, std::uint64_t size) {
    EXPECT_GE(kernels, last);
    EXPECT_LE(done, size);
    last = kernels;
  };
  const auto found = survey(code::test::ptx_file("kernels"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, "PTX");
  EXPECT_TRUE(found[0].unread.empty());
  ASSERT_GE(found[0].kernels.size(), 30u);
  std::string before;
  for (const KernelFindings& each : found[0].kernels) {
    EXPECT_LT(before, each.name);
    before = each.name;
    ASSERT_EQ(each.findings.size(), 1u);
    ASSERT_EQ(each.findings[0].targets.size(), 1u);
    EXPECT_EQ(each.findings[0].targets[0].target.text(), "compute_90");
    if (each.name == "scale") {
      EXPECT_EQ(code::test::spoken(each.findings[0].proof), "0:w 8:r");
    }
  }
}

TEST_F(Survey, PutsThePartsOfAFatbinTogether) {
  const std::string fatbin = write_fatbin({{1, 80, kernel(kCopy), FatbinEntry::Packing::zstd},
                                           {1, 90, kernel(kCopy), FatbinEntry::Packing::lz4, 0x100000},
                                           {1, 100, kernel(kSet), FatbinEntry::Packing::plain, 0x200000}});
  const auto found = survey("host code " + fatbin + fatbin);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].at, 10u);
  EXPECT_EQ(found[1].at, 10 + fatbin.size());
  for (const ImageFindings& image : found) {
    ASSERT_EQ(image.kernels.size(), 1u);
    ASSERT_EQ(image.kernels[0].findings.size(), 2u);
    EXPECT_EQ(image.kernels[0].findings[0].targets.size(), 2u);
    EXPECT_EQ(image.kernels[0].findings[0].targets[1].target.text(), "compute_90a");
    EXPECT_EQ(image.kernels[0].findings[1].targets[0].target.text(), "compute_100f");
  }
}

TEST_F(Survey, LooksOnlyAtWhatIsAskedFor) {
  const std::string fatbin =
      write_fatbin({{1, 80, kernel(kCopy)}, {1, 90, kernel(kSet)}, {8, 90, "LTO"}, {2, 80, "no ELF"}});
  tasks_.wants_target = [](const CodeTarget& target) { return target.arch == 90; };
  const auto found = survey(fatbin);
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(found[0].kernels.size(), 1u);
  EXPECT_EQ(found[0].kernels[0].findings[0].targets.size(), 1u);
  ASSERT_EQ(found[0].unread.size(), 1u);
  tasks_.wants_kernel = [](const std::string& name) { return name == "other"; };
  EXPECT_TRUE(survey(fatbin)[0].kernels.empty());
}

TEST_F(Survey, SaysWhatItCouldNotRead) {
  std::string damaged = write_fatbin({{1, 90, kernel(kCopy), FatbinEntry::Packing::zstd}});
  damaged[80] ^= 0x55;  // where the compressed data begins
  const auto found = survey(write_fatbin({{8, 90, "LTO"}, {2, 90, "no ELF"}, {1, 90, "no PTX"}}) + damaged +
                            write_fatbin({{1, 90, kernel(kCopy)}}).substr(0, 200));
  ASSERT_EQ(found.size(), 3u);
  ASSERT_EQ(found[0].unread.size(), 3u);
  EXPECT_EQ(found[0].unread[0].what + ": " + found[0].unread[0].why,
            "a part for sm_90: it is neither machine code nor PTX");
  EXPECT_EQ(found[0].unread[1].what + ": " + found[0].unread[1].why, "sm_90: no ELF file");
  ASSERT_EQ(found[1].unread.size(), 1u);
  ASSERT_EQ(found[2].unread.size(), 1u);
  EXPECT_EQ(found[2].unread[0].what + ": " + found[2].unread[0].why, "fatbin: it goes on past the end of the file");
}

TEST_F(Survey, LooksAtABoundedNumberOfKernels) {
  std::string ptx = ".version 9.0\n.target sm_90\n.address_size 64\n";
  for (int i = 0; i < (1 << 16) + 2; ++i) ptx += ".entry k" + std::to_string(i) + "(){}\n";
  tasks_.wants_kernel = [](const std::string& name) { return name == "k0" || name == "k65536"; };
  const auto found = survey(ptx);
  ASSERT_EQ(found[0].kernels.size(), 1u);
  EXPECT_EQ(found[0].kernels[0].name, "k0");
  ASSERT_EQ(found[0].unread.size(), 1u);
  EXPECT_EQ(found[0].unread[0].why, "2 kernels beyond the first 65536");
}

TEST_F(Survey, RefusesAFileWithoutCode) {
  EXPECT_NE(refusal("nothing").find("holds no code for a GPU"), std::string::npos);
  EXPECT_NE(refusal("").find("holds no code for a GPU"), std::string::npos);
  EXPECT_THROW(survey_file(path_ + ".gone", tasks_), InputError);
  EXPECT_THROW(survey_file(testing::TempDir(), tasks_), InputError);
}

TEST_F(Survey, ThrowsWhatItsTasksThrow) {
  tasks_.progress = [](std::uint64_t, std::uint64_t, std::uint64_t) { throw std::runtime_error("stop"); };
  EXPECT_THROW(survey(code::test::ptx_file("kernels")), std::runtime_error);
}

TEST_F(Survey, DamagedFilesEndNothing) {
  const std::string whole = "host" + write_fatbin({{1, 90, code::test::ptx_file("kernels"), FatbinEntry::Packing::lz4},
                                                   {1, 90, kernel(kCopy)}});
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    std::string bytes = whole;
    for (int k = 0; k < 1 + i % 20; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (i % 5 == 0) bytes.resize(random() % bytes.size());
    refusal(bytes);
  }
}

}  // namespace
}  // namespace nimble::analyzer
