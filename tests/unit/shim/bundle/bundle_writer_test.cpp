#include "shim/bundle/bundle_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace nimble::shim {
namespace {

class BundleFolderTest : public testing::Test {
 protected:
  BundleFolderTest() {
    std::filesystem::create_directories(root_ / "first");
    std::filesystem::create_directories(root_ / "second" / "bundle");
    std::filesystem::current_path(root_ / "first");
  }
  ~BundleFolderTest() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(root_);
  }

  static std::string save(BundleFolder& folder, const std::vector<std::string>& images) {
    Bundle bundle;
    ContentStore store(1 << 20);
    return folder.write("bundle", bundle, store, images);
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(root_ / name) << text; }
  std::string read(const std::string& name) const {
    std::ifstream file(root_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::filesystem::path before_ = std::filesystem::current_path();
  const std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / ("bundle." + std::to_string(getpid()));
};

TEST_F(BundleFolderTest, IsWhereTheProcessWasWhenItBegan) {
  BundleFolder folder;
  ASSERT_EQ(save(folder, {"one", "two"}), "");
  EXPECT_EQ(folder.path(), "bundle");
  write("second/bundle/manifest.json", read("first/bundle/manifest.json"));
  write("second/bundle/memory.bin", "theirs");
  write("second/bundle/image-0.bin", "theirs");
  std::filesystem::current_path(root_ / "second");
  EXPECT_EQ(save(folder, {"three"}), "");
  EXPECT_EQ(read("first/bundle/image-0.bin"), "three");
  EXPECT_FALSE(std::filesystem::exists(root_ / "first/bundle/image-1.bin"));
  write("trace", "[\n");
  EXPECT_EQ(folder.add_trace((root_ / "trace").string()), "");
  EXPECT_EQ(read("first/bundle/trace.json"), "[\n");
  EXPECT_EQ(read("second/bundle/image-0.bin"), "theirs");
  EXPECT_EQ(read("second/bundle/memory.bin"), "theirs");
  EXPECT_FALSE(std::filesystem::exists(root_ / "second/bundle/trace.json"));
}

TEST_F(BundleFolderTest, WhatOthersPutThereMeanwhileStays) {
  BundleFolder folder;
  ASSERT_EQ(save(folder, {"one"}), "");
  write("first/bundle/image-1.bin", "theirs");
  EXPECT_NE(save(folder, {"one", "two"}).find("image-1.bin"), std::string::npos);
  EXPECT_EQ(read("first/bundle/image-1.bin"), "theirs");
  EXPECT_EQ(read("first/bundle/image-0.bin"), "one");
}

}  // namespace
}  // namespace nimble::shim
