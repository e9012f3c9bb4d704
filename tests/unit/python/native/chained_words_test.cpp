#include "python/native/chained_words.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

namespace nimble::python {
namespace {

struct Storage {
  std::uint64_t count = 1, data = 2, context = 3;
};
struct Extra {
  std::uint64_t history = 4;
};
struct Tensor {
  std::uint64_t count = 1;
  Storage* storage = nullptr;
  Extra* extra = nullptr;
  std::uint64_t sizes[5] = {1, 2, 3, 4, 5};
};
struct Object {
  std::uint64_t count = 1, type = 7;
  Tensor* tensor = nullptr;
};

// Of a tensor more words than are compared at once.
std::vector<Block> layout() {
  return {{0, 0, {8, 16}}, {0, 16, {8, 16, 24, 32, 40, 48, 56}}, {1, 8, {8, 16}}, {1, 16, {0}}};
}

class ChainedWordsTest : public testing::Test {
 protected:
  ChainedWordsTest() {
    for (int i = 0; i < 3; ++i) {
      objects_[i].tensor = &tensors_[i];
      tensors_[i].storage = &storages_[i];
      if (i != 1) tensors_[i].extra = &extra_;
      words_.add(&objects_[i]);
    }
  }

  bool is_same(std::size_t number) const { return words_.is_same(number, &objects_[number]); }

  Extra extra_;
  Storage storages_[4];
  Tensor tensors_[4];
  Object objects_[4];
  ChainedWords words_{layout()};
};

TEST_F(ChainedWordsTest, WhatHasNotChangedIsTheSame) {
  EXPECT_EQ(words_.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(is_same(i)) << i;
}

TEST_F(ChainedWordsTest, AnotherObjectIsNotTheSameAlthoughItLeadsToTheSame) {
  Object other = objects_[0];
  EXPECT_FALSE(words_.is_same(0, &other));
  EXPECT_FALSE(words_.is_same(1, &objects_[0]));
}

TEST_F(ChainedWordsTest, EachWordThatIsComparedCounts) {
  std::uint64_t* words[] = {&objects_[0].type,  &tensors_[0].sizes[0], &tensors_[0].sizes[4],
                            &storages_[0].data, &storages_[0].context, &extra_.history};
  for (std::uint64_t* word : words) {
    ++*word;
    EXPECT_FALSE(is_same(0)) << word - words[0];
    --*word;
    EXPECT_TRUE(is_same(0));
  }
}

TEST_F(ChainedWordsTest, OthersDoNotCount) {
  ++objects_[0].count;
  ++tensors_[0].count;
  ++storages_[0].count;
  EXPECT_TRUE(is_same(0));
}

TEST_F(ChainedWordsTest, WhatAChangedPointerLeadsToIsNotRead) {
  {
    auto storage = std::make_unique<Storage>();
    tensors_[0].storage = storage.get();
    auto* nowhere = reinterpret_cast<Storage*>(8);
    words_.add(&objects_[0]);
    EXPECT_TRUE(words_.is_same(3, &objects_[0]));
    tensors_[0].storage = nowhere;
  }
  EXPECT_FALSE(words_.is_same(3, &objects_[0]));
  objects_[0].tensor = reinterpret_cast<Tensor*>(8);
  EXPECT_FALSE(words_.is_same(0, &objects_[0]));
}

TEST_F(ChainedWordsTest, ANullPointerLeadsToNothingUntilItIsSet) {
  EXPECT_TRUE(is_same(1));
  tensors_[1].extra = &extra_;
  EXPECT_FALSE(is_same(1));
  tensors_[0].extra = nullptr;
  EXPECT_FALSE(is_same(0));
}

TEST_F(ChainedWordsTest, AnotherObjectIsAlikeIfAllButItsPointersIsEqual) {
  objects_[3].tensor = &tensors_[3];
  tensors_[3].storage = &storages_[3];
  tensors_[3].extra = &extra_;
  for (const Object* object : {&objects_[0], &objects_[2], &objects_[3]}) EXPECT_TRUE(words_.is_alike(0, object));
  std::uint64_t* words[] = {&objects_[3].type, &tensors_[3].sizes[0], &tensors_[3].sizes[4], &storages_[3].data};
  for (std::uint64_t* word : words) {
    ++*word;
    EXPECT_FALSE(words_.is_alike(0, &objects_[3]));
    EXPECT_FALSE(words_.is_alike(2, &objects_[3]));
    --*word;
    EXPECT_TRUE(words_.is_alike(0, &objects_[3]));
  }
  EXPECT_FALSE(words_.is_alike(1, &objects_[3]));  // which leads to nothing there
  EXPECT_TRUE(words_.is_alike(1, &objects_[1]));
  tensors_[3].extra = nullptr;
  EXPECT_TRUE(words_.is_alike(1, &objects_[3]));
  EXPECT_FALSE(words_.is_alike(0, &objects_[3]));
}

TEST_F(ChainedWordsTest, NumbersThatAreNotThereMayBeFetched) {
  for (const std::size_t number : {0U, 2U, 3U, 1000U}) words_.prefetch(number);
}

TEST(ChainedWords, BlocksThatCannotBeReadAreRefused) {
  const std::vector<Block> wrong[] = {
      {},
      {{0, 0, {}}},
      {{0, 0, {8}}, {1, 8, {8}}},   // its own parent
      {{0, 0, {8}}, {0, 16, {8}}},  // the pointer is not compared
      std::vector<Block>(ChainedWords::kMostBlocks + 1, Block{0, 8, {8}}),
  };
  for (const auto& blocks : wrong) EXPECT_THROW(ChainedWords{blocks}, std::invalid_argument);
}

}  // namespace
}  // namespace nimble::python
