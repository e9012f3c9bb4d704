// The data file, the weights file, and the small parts that need no device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "examples/digits/error.h"
#include "examples/digits/inference.h"
#include "examples/digits/random.h"
#include "examples/digits/weights.h"
#include "test_data.h"

namespace digits::test {
namespace {

class Files : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / (std::string("digits_") + test.name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  std::filesystem::path folder_;
};

template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string data_line(const std::string& label) {
  std::string line;
  for (int i = 0; i < kPixels; ++i) line += "7,";
  return line + label + "\n";
}

TEST_F(Files, TheDataIsWholeAndSplit) {
  const Dataset all = all_images();
  ASSERT_EQ(all.size(), 1797);
  EXPECT_EQ(all.pixels.size(), 1797u * kPixels);
  EXPECT_EQ(*std::max_element(all.pixels.begin(), all.pixels.end()), 16);

  const Split split = split_dataset(all);
  EXPECT_EQ(split.train.size(), 1437);
  EXPECT_EQ(split.test.size(), 360);
  // Each image went to one side: the sums of the pixels agree.
  const auto sum = [](const Dataset& data) {
    long total = 0;
    for (const std::uint8_t pixel : data.pixels) total += pixel;
    return total;
  };
  EXPECT_EQ(sum(split.train) + sum(split.test), sum(all));
  EXPECT_EQ(std::set<std::int32_t>(split.test.labels.begin(), split.test.labels.end()).size(), 10u);
}

TEST_F(Files, DataErrorsNameTheLine) {
  const std::string good = data_line("3");
  const auto error = [&](const std::string& text) {
    const std::filesystem::path file = write("data.csv", text);
    return error_of([&] { read_dataset(file); });
  };
  const std::string at_2 = (folder_ / "data.csv").string() + ":2: ";
  EXPECT_EQ(error(good + "17," + good), at_2 + "pixel 0 is no number from 0 to 16 followed by a comma");
  EXPECT_EQ(error(good + "7,x\n"), at_2 + "pixel 1 is no number from 0 to 16 followed by a comma");
  EXPECT_EQ(error(good + "7,7\n"), at_2 + "pixel 1 is no number from 0 to 16 followed by a comma");
  EXPECT_EQ(error(good + data_line("10")), at_2 + "the line does not end with a digit's label");
  EXPECT_EQ(error(good + data_line("1,")), at_2 + "the line does not end with a digit's label");
  EXPECT_EQ(error(good + data_line("-1")), at_2 + "the line does not end with a digit's label");
  EXPECT_NE(error(good).find("holds 1 images: too few"), std::string::npos);
  EXPECT_EQ(error_of([&] { read_dataset(folder_ / "none.csv"); }),
            "cannot read the data file " + (folder_ / "none.csv").string());
}

TEST_F(Files, WeightsComeBackAsTheyWere) {
  const Parameters parameters = initial_parameters(3);
  save_weights(parameters, folder_ / "weights.bin");
  EXPECT_EQ(load_weights(folder_ / "weights.bin"), parameters);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "weights.bin.part"));
  EXPECT_EQ(weights_digest(parameters), weights_digest(initial_parameters(3)));
  EXPECT_NE(weights_digest(parameters), weights_digest(initial_parameters(4)));
}

TEST_F(Files, BrokenWeightsAreRefused) {
  const Parameters parameters = initial_parameters(3);
  const std::string good = encode_weights(parameters);
  const auto why = [](const std::string& bytes) {
    const std::string what = error_of([&] { decode_weights(bytes, "w.bin"); });
    const std::string start = "w.bin is no weights file for this network: ";
    EXPECT_EQ(what.substr(0, start.size()), start);
    return what.substr(std::min(start.size(), what.size()));
  };
  EXPECT_EQ(why(""), "it is cut short");
  EXPECT_EQ(why("DIGITSW0" + good.substr(8)), "it does not start with DIGITSW1");
  EXPECT_EQ(why(good + "x"), "there is more after the last tensor");
  for (std::size_t length = 8; length < good.size(); length += 997)
    EXPECT_EQ(why(good.substr(0, length)), "it is cut short");

  std::string huge = good;
  huge.replace(8, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(why(huge), "it has 4294967295 tensors, not 28");
  huge = good;
  huge.replace(12, 4, "\xff\xff\xff\x7f");
  EXPECT_EQ(why(huge), "tensor 0 has 2147483647 values, not 144");

  Parameters infinite = parameters;
  infinite[2][1] = INFINITY;
  EXPECT_EQ(why(encode_weights(infinite)), "tensor 2 has a value that is not finite");
}

TEST_F(Files, WeightsThatCannotBeWrittenOrReadAreErrors) {
  const std::filesystem::path nowhere = folder_ / "no" / "weights.bin";
  EXPECT_EQ(error_of([&] { save_weights(initial_parameters(1), nowhere); }),
            "cannot write " + nowhere.string() + ".part");
  EXPECT_EQ(error_of([&] { load_weights(nowhere); }), "cannot read the weights file " + nowhere.string());
}

TEST(Random, IsSplitMix64) {
  Random random(0);
  EXPECT_EQ(random.next(), 0xe220a8397b1dcdafu);
  EXPECT_EQ(random.next(), 0x6e789e6aa1b965f4u);
  for (int i = 0; i < 1000; ++i) {
    const float value = random.uniform();
    EXPECT_GE(value, -1.0f);
    EXPECT_LT(value, 1.0f);
  }
}

TEST(Percentile, IsAValueOfTheList) {
  EXPECT_EQ(percentile({5}, 0.99), 5);
  EXPECT_EQ(percentile({3, 1, 2}, 0.5), 2);
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  EXPECT_EQ(percentile(values, 0), 0);
  EXPECT_EQ(percentile(values, 0.9), 90);
  EXPECT_EQ(percentile(values, 1), 100);
}

}  // namespace
}  // namespace digits::test
