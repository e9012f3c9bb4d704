// A value in a schedule's JSON and the path to it, for errors. Internal to the reader of schedules.
//
// A Field refers to the value and to the file's name, and owns neither. Not shared between threads. Errors: members
// that read throw ScheduleError, naming file and path, if the value is not of the requested kind; has() and is_null()
// do not throw.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "replayer/schedule/schedule_reader.h"

namespace nimble {

inline constexpr std::uint32_t kMostParamBytes = 32768;  // CUDA's limit on kernel parameters

class Field {
 public:
  Field(const nlohmann::json& value, std::string path, const std::string& source)
      : value_(value), path_(std::move(path)), source_(source) {}

  [[noreturn]] void fail(const std::string& problem) const {
    throw ScheduleError(fmt::format("{}: {}: {}", source_, path_.empty() ? "top level" : path_, problem));
  }

  Field at(const char* key) const {
    if (!value_.is_object()) fail("is not an object");
    const auto found = value_.find(key);
    if (found == value_.end()) fail(fmt::format("has no \"{}\"", key));
    return {*found, path_.empty() ? key : path_ + "." + key, source_};
  }
  bool has(const char* key) const { return value_.is_object() && value_.contains(key); }
  bool is_null() const { return value_.is_null(); }

  std::uint64_t number(std::uint64_t most) const {
    if (!value_.is_number_unsigned()) fail("is not a whole number");
    const auto number = value_.get<std::uint64_t>();
    if (number > most) fail(fmt::format("is {}, more than {}", number, most));
    return number;
  }
  std::uint32_t number32(std::uint64_t most = std::numeric_limits<std::uint32_t>::max()) const {
    return static_cast<std::uint32_t>(number(most));
  }
  // An index into a list of `count`.
  std::uint32_t index(std::size_t count) const {
    if (!value_.is_number_unsigned()) fail("is not an index");
    const auto number = value_.get<std::uint64_t>();
    if (number >= count) fail(fmt::format("is {}, but there are only {}", number, count));
    return static_cast<std::uint32_t>(number);
  }
  bool boolean() const {
    if (!value_.is_boolean()) fail("is not true or false");
    return value_.get<bool>();
  }
  // Text of two hexadecimal digits for each byte.
  std::vector<std::uint8_t> bytes() const {
    const std::string digits = text();
    if (digits.size() % 2 != 0 || digits.size() > 2 * std::size_t{kMostParamBytes})
      fail("is not a text of two hexadecimal digits for each byte");
    std::vector<std::uint8_t> result(digits.size() / 2);
    for (std::size_t i = 0; i < result.size(); ++i) {
      const char* const end = digits.data() + 2 * i + 2;
      const auto read = std::from_chars(digits.data() + 2 * i, end, result[i], 16);
      if (read.ec != std::errc() || read.ptr != end) fail("is not a text of two hexadecimal digits for each byte");
    }
    return result;
  }

  std::string text() const {
    if (!value_.is_string()) fail("is not a text");
    return value_.get<std::string>();
  }
  std::size_t size() const {
    if (!value_.is_array()) fail("is not a list");
    if (value_.size() > kMostItems) fail("is too long");
    return value_.size();
  }
  Field operator[](std::size_t i) const { return {value_[i], fmt::format("{}[{}]", path_, i), source_}; }

  // The position of the text in a list of names.
  template <std::size_t n>
  std::size_t one_of(const std::string_view (&names)[n]) const {
    const std::string word = text();
    for (std::size_t i = 0; i < n; ++i) {
      if (names[i] == word) return i;
    }
    fail(fmt::format("is \"{}\", which is unknown", word));
  }

 private:
  // No real file exceeds this; one that does is broken or hostile.
  static constexpr std::size_t kMostItems = 50'000'000;

  const nlohmann::json& value_;
  std::string path_;
  const std::string& source_;
};

}  // namespace nimble
