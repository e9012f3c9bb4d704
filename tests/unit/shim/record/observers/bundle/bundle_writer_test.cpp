#include "shim/record/observers/bundle/bundle_writer.h"

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

TEST_F(BundleFolderTest, IfSomethingIsInTheWayItHasAnotherName) {
  const auto taken = [&](const std::string& expected) {
    BundleFolder folder;
    EXPECT_EQ(save(folder, {"one"}), "");
    EXPECT_EQ(folder.path(), expected);
    folder.let_go();
    return folder.why_other();
  };
  write("first/bundle", "theirs");
  EXPECT_EQ(taken("bundle.nimble"), "is not a folder");
  EXPECT_EQ(read("first/bundle"), "theirs");
  std::filesystem::remove(root_ / "first/bundle");
  std::filesystem::create_directory_symlink(root_ / "second", root_ / "first/bundle");
  EXPECT_EQ(taken("bundle.nimble"), "is a link");
  EXPECT_FALSE(std::filesystem::exists(root_ / "second/manifest.json"));
  std::filesystem::remove(root_ / "first/bundle");
  std::filesystem::create_directory(root_ / "first/bundle");
  write("first/bundle/memory.bin", "theirs");
  EXPECT_EQ(taken("bundle.nimble"), "holds a memory.bin that was not written by Nimble");
  EXPECT_EQ(read("first/bundle/memory.bin"), "theirs");
  std::filesystem::remove(root_ / "first/bundle/memory.bin");
  write("first/bundle/notes", "theirs");
  EXPECT_EQ(taken("bundle"), "") << "a file that no bundle has is not in the way";
  EXPECT_EQ(read("first/bundle/notes"), "theirs");
}

TEST_F(BundleFolderTest, AFolderInUseIsLeftAlone) {
  BundleFolder first, second, third;
  ASSERT_EQ(save(first, {"one"}), "");
  ASSERT_EQ(save(second, {"two"}), "");
  EXPECT_EQ(second.path(), "bundle.nimble");
  EXPECT_EQ(second.why_other(), "is being written by another process");
  EXPECT_EQ(read("first/bundle/image-0.bin"), "one");
  first.let_go();
  ASSERT_EQ(save(third, {"three"}), "");
  EXPECT_EQ(third.path(), "bundle");
  EXPECT_EQ(third.why_other(), "");
  EXPECT_EQ(read("first/bundle/image-0.bin"), "three");
}

TEST_F(BundleFolderTest, NothingIsLeftOfTheBundleBefore) {
  write("trace", "[\n{\"ph\":\"M\",\"name\":\"nimble.trace\"}");
  BundleFolder before, now;
  ASSERT_EQ(save(before, {"one", "two"}), "");
  ASSERT_EQ(before.add_trace((root_ / "trace").string()), "");
  before.let_go();
  ASSERT_EQ(save(now, {"three"}), "");
  EXPECT_EQ(now.path(), "bundle");
  EXPECT_EQ(read("first/bundle/image-0.bin"), "three");
  EXPECT_FALSE(std::filesystem::exists(root_ / "first/bundle/image-1.bin"));
  EXPECT_FALSE(std::filesystem::exists(root_ / "first/bundle/trace.json"));
}

TEST_F(BundleFolderTest, ATraceIsCopiedOnce) {
  write("trace", "[\n");
  BundleFolder folder;
  ASSERT_EQ(save(folder, {}), "");
  EXPECT_NE(folder.add_trace((root_ / "nothing").string()), "");
  EXPECT_NE(folder.add_trace((root_ / "second").string()).find("is not a file"), std::string::npos);
  ASSERT_EQ(folder.add_trace((root_ / "trace").string()), "");
  EXPECT_EQ(folder.add_trace((root_ / "first/bundle/trace.json").string()), "") << "it is that already";
  EXPECT_EQ(read("first/bundle/trace.json"), "[\n");
}

}  // namespace
}  // namespace nimble::shim
