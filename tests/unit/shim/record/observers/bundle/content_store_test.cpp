#include "shim/record/observers/bundle/content_store.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace nimble::shim {
namespace {

std::vector<std::uint8_t> bytes_of(std::size_t size, std::uint8_t value) { return std::vector(size, value); }

TEST(ContentStore, KeepsAPieceOnceAndZerosNotAtAll) {
  ContentStore store(1 << 20);
  std::vector<std::uint8_t> long_one = bytes_of(2 * kBundlePiece + 100, 7);
  const BundleContent first = store.keep(long_one);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0], first[1]);
  EXPECT_NE(first[0], first[2]);
  EXPECT_EQ(store.keep(long_one), first);
  EXPECT_EQ(store.bytes(), kBundlePiece + 100);
  EXPECT_EQ(store.keep(bytes_of(100, 0)), BundleContent{kNone});
}

TEST(ContentStore, PortionsOfAnySizeMakeTheSamePieces) {
  ContentStore store(1 << 20);
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < 3 * kBundlePiece + 5; ++i) bytes.push_back(static_cast<std::uint8_t>(i * i >> 7));
  const BundleContent whole = store.keep(bytes);
  BundleContent portioned;
  ContentStore::Writer writer(store, portioned);
  std::size_t at = 0;
  for (std::size_t step = 1; at < bytes.size(); step = step * 3 + 1) {
    const std::size_t count = std::min(step, bytes.size() - at);
    writer.add({bytes.data() + at, count});
    at += count;
  }
  writer.finish();
  EXPECT_EQ(portioned, whole);
}

TEST(ContentStore, RefusesWhatIsMoreThanTheLimit) {
  ContentStore store(1000);
  store.keep(bytes_of(1000, 1));
  store.keep(bytes_of(1000, 1));
  store.keep(bytes_of(1 << 20, 0));
  EXPECT_THROW(store.keep(bytes_of(1, 2)), ContentLimit);
}

TEST(ContentStore, WritesOnlyWhatIsNamed) {
  ContentStore store(1 << 20);
  store.keep(bytes_of(10, 1));
  BundleContent second = store.keep(bytes_of(20, 2)), again = second;
  const std::string path = testing::TempDir() + "content_store_test.bin";
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  std::vector<BundlePiece> pieces;
  EXPECT_TRUE(store.write(file, second, pieces));
  EXPECT_TRUE(store.write(file, again, pieces));
  std::fclose(file);
  EXPECT_EQ(second, BundleContent{0});
  EXPECT_EQ(again, BundleContent{0});
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].offset, 0u);
  EXPECT_EQ(pieces[0].bytes, 20u);
  std::ifstream written(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(written), {}), std::string(20, '\2'));
}

}  // namespace
}  // namespace nimble::shim
