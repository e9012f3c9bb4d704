// Reads the data file.
#include "dataset.h"

#include <charconv>
#include <fstream>
#include <numeric>
#include <string>

#include "error.h"
#include "random.h"

namespace digits {
namespace {

constexpr int kMaxPixel = 16;

// Parses the number that starts at `at` and moves `at` past it. False if there is none, or if it is out of range.
bool take_number(const char*& at, const char* end, int highest, int& value) {
  const auto [stop, error] = std::from_chars(at, end, value);
  at = stop;
  return error == std::errc() && value >= 0 && value <= highest;
}

void parse_line(const std::string& line, Dataset& data) {
  const char* at = line.data();
  const char* end = at + line.size();
  int value = 0;
  for (int i = 0; i < kPixels; ++i) {
    if (!take_number(at, end, kMaxPixel, value) || at == end || *at++ != ',')
      throw Error("pixel " + std::to_string(i) + " is no number from 0 to 16 followed by a comma");
    data.pixels.push_back(static_cast<std::uint8_t>(value));
  }
  if (!take_number(at, end, kClasses - 1, value) || at != end)
    throw Error("the line does not end with a digit's label");
  data.labels.push_back(value);
}

void append(const Dataset& from, int image, Dataset& to) {
  const auto pixels = from.pixels.begin() + static_cast<std::ptrdiff_t>(image) * kPixels;
  to.pixels.insert(to.pixels.end(), pixels, pixels + kPixels);
  to.labels.push_back(from.labels[image]);
}

}  // namespace

Dataset read_dataset(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw Error("cannot read the data file " + file.string());
  Dataset data;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    try {
      parse_line(line, data);
    } catch (const Error& error) {
      throw Error(file.string() + ":" + std::to_string(number) + ": " + error.what());
    }
  }
  if (data.size() < 10) throw Error(file.string() + " holds " + std::to_string(data.size()) + " images: too few");
  return data;
}

Split split_dataset(const Dataset& all) {
  std::vector<int> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  Random(1).shuffle(order);
  const int train = all.size() * 4 / 5;
  Split split;
  for (int i = 0; i < all.size(); ++i) append(all, order[i], i < train ? split.train : split.test);
  return split;
}

}  // namespace digits
