// Images in files: found wherever they lie, and nothing that only looks like one.
#include "analyzer/kernel_code/file_images.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "tests/unit/analyzer/kernel_code/fatbin_support.h"
#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::code {
namespace {

using Kind = FileImage::Kind;

struct Found {
  Kind kind;
  std::uint64_t at;
  std::string bytes, error;
  bool operator==(const Found&) const = default;
};

class ImagesInFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  std::vector<Found> find(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    FileImages file;
    EXPECT_EQ(file.open(path_), 0);
    EXPECT_EQ(file.size(), bytes.size());
    std::vector<Found> all;
    for (FileImage image; file.next(image);) all.push_back({image.kind, image.at, image.bytes, image.error});
    EXPECT_EQ(file.error(), 0);
    EXPECT_EQ(file.position(), bytes.size());
    return all;
  }

  const std::string path_ = testing::TempDir() + "nimble_images_in_file." + std::to_string(getpid());
  const std::string fatbin_ = test::write_fatbin({{1, 90, std::string(500, 'x')}});
};

// A cubin as far as its size goes: a header, and after it nothing.
std::string cubin(std::uint16_t machine = 190) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = machine;
  header.e_shoff = 200;
  header.e_shentsize = 64;
  header.e_shnum = 1;
  std::string bytes(264, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

TEST_F(ImagesInFile, AFileThatIsOne) {
  EXPECT_EQ(find(fatbin_), (std::vector<Found>{{Kind::fatbin, 0, fatbin_, ""}}));
  EXPECT_EQ(find(cubin()), (std::vector<Found>{{Kind::cubin, 0, cubin(), ""}}));
  const std::string ptx = test::kernel("");
  EXPECT_EQ(find(ptx), (std::vector<Found>{{Kind::ptx, 0, ptx, ""}}));
}

TEST_F(ImagesInFile, EmbeddedOnesInTheOrderOfTheFile) {
  std::string file = cubin(EM_X86_64) + "code ";
  const std::uint64_t first = file.size();
  file += fatbin_ + fatbin_ + std::string(3, '\0');
  const std::uint64_t third = file.size();
  file += cubin() + "the end";
  EXPECT_EQ(find(file), (std::vector<Found>{{Kind::fatbin, first, fatbin_, ""},
                                            {Kind::fatbin, first + fatbin_.size(), fatbin_, ""},
                                            {Kind::cubin, third, cubin(), ""}}));
}

// The file is searched piece by piece, of a MiB.
TEST_F(ImagesInFile, WhereverThePiecesEnd) {
  for (const std::string& image : {fatbin_, cubin()}) {
    for (const std::uint64_t before : {80u, 65u, 64u, 63u, 62u, 17u, 16u, 15u, 8u, 7u, 4u, 3u, 1u, 0u}) {
      for (const std::size_t after : {std::size_t{0}, std::size_t{3} << 19}) {
        const std::uint64_t at = (std::uint64_t{1} << 20) - before;
        const auto found = find(std::string(at, '\1') + image + std::string(after, '\2') + image);
        ASSERT_EQ(found.size(), 2u) << before << " " << after;
        EXPECT_EQ(found[0].at, at);
        EXPECT_EQ(found[0].bytes, image);
        EXPECT_EQ(found[1].at, at + image.size() + after);
        EXPECT_EQ(found[1].bytes, image);
      }
    }
  }
}

TEST_F(ImagesInFile, WhatOnlyLooksLikeOne) {
  EXPECT_TRUE(find("").empty());
  EXPECT_TRUE(find("no code").empty());
  EXPECT_TRUE(find(cubin(EM_X86_64)).empty());
  EXPECT_TRUE(find(".version of something\n" + std::string(1, '\0')).empty());
  std::string other_version = fatbin_;
  other_version[4] = 2;
  EXPECT_TRUE(find(other_version).empty());
  std::string many;
  for (int i = 0; i < 300000; ++i) many += ELFMAG;
  EXPECT_TRUE(find(many).empty());
}

TEST_F(ImagesInFile, OneThatIsCutOffIsNotPassedOver) {
  const auto found = find("before " + fatbin_ + fatbin_.substr(0, 100));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].error, "");
  EXPECT_EQ(found[1].error, "it goes on past the end of the file");
  EXPECT_EQ(found[1].bytes, "");
  // And what lies inside of it is found.
  std::string huge = fatbin_.substr(0, 16);
  const std::uint64_t bytes = UINT64_MAX - 100;
  std::memcpy(huge.data() + 8, &bytes, sizeof bytes);
  const auto inside = find(huge + fatbin_);
  ASSERT_EQ(inside.size(), 2u);
  EXPECT_EQ(inside[0].error, "it goes on past the end of the file");
  EXPECT_EQ(inside[1].bytes, fatbin_);
}

TEST_F(ImagesInFile, PtxInAnImageOfTheSimulatedDriver) {
  const std::string ptx = test::kernel("");
  const auto image = [&](std::uint64_t at, std::uint64_t bytes) {
    std::string file = "SIMCUDA1" + std::string(48, '\0') + ptx;
    std::memcpy(file.data() + 40, &at, sizeof at);
    std::memcpy(file.data() + 48, &bytes, sizeof bytes);
    return file;
  };
  EXPECT_EQ(find(image(56, ptx.size())), (std::vector<Found>{{Kind::ptx, 56, ptx, ""}}));
  EXPECT_TRUE(find(image(0, 0)).empty());
  EXPECT_TRUE(find(image(UINT64_MAX, 1)).empty());
  EXPECT_EQ(find(image(56, ptx.size() + 1))[0].error, "it goes on past the end of the file");
}

TEST_F(ImagesInFile, ThatCannotBeRead) {
  FileImages file;
  EXPECT_EQ(file.open(path_), ENOENT);
  FileImages folder;
  EXPECT_EQ(folder.open(testing::TempDir()), EISDIR);
  FileImages device;
  EXPECT_EQ(device.open("/dev/null"), ESPIPE);
  // One that becomes shorter while it is read.
  std::ofstream(path_, std::ios::binary) << std::string(std::size_t{3} << 20, '\0') << fatbin_;
  FileImages shorter;
  ASSERT_EQ(shorter.open(path_), 0);
  std::filesystem::resize_file(path_, 10);
  FileImage image;
  EXPECT_FALSE(shorter.next(image));
  EXPECT_EQ(shorter.error(), EIO);
}

TEST_F(ImagesInFile, DamagedFilesEndNothing) {
  std::mt19937 random(1);
  const std::string whole = cubin(EM_X86_64) + fatbin_ + cubin() + fatbin_;
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole;
    for (int k = 0; k < 1 + i % 20; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    for (const Found& each : find(bytes)) EXPECT_NE(each.bytes.empty(), each.error.empty());
  }
}

}  // namespace
}  // namespace nimble::code
