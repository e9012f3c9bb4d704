// Reads the members of one JSON object, and says which one is wrong.
//
// A Fields refers to an object and to a place in a file, and owns neither: it lives as long as the statement that
// reads. Every member function raises InputError, naming file, line and field, if a member is missing (and has no
// default), has another type, or is outside the range that the caller gives. Not shared between threads.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "analyzer/base/errors.h"

namespace nimble::analyzer {

struct FilePlace {
  const std::string& file;
  std::uint64_t line;
};

class Fields {
 public:
  // `prefix` is put before a member's name in messages: "args.", "rules[3].", or nothing.
  Fields(const nlohmann::json& object, const char* prefix, const FilePlace& place)
      : object_(object), prefix_(prefix), place_(place) {}

  [[noreturn]] void fail(const char* name, const std::string& message) const {
    throw InputError(place_.file, place_.line, std::string(prefix_) + name, message);
  }

  bool has(const char* name) const { return object_.find(name) != object_.end(); }

  const nlohmann::json& member(const char* name) const {
    auto found = object_.find(name);
    if (found == object_.end()) fail(name, "is missing");
    return *found;
  }

  std::uint64_t number(const char* name, std::uint64_t max = std::numeric_limits<std::uint64_t>::max()) const {
    return number_of(member(name), name, max);
  }
  std::uint64_t number_or(const char* name, std::uint64_t fallback, std::uint64_t max) const {
    auto found = object_.find(name);
    return found == object_.end() ? fallback : number_of(*found, name, max);
  }

  std::int64_t signed_or(const char* name, std::int64_t fallback, std::int64_t min, std::int64_t max) const {
    auto found = object_.find(name);
    if (found == object_.end()) return fallback;
    bool fits = found->is_number_unsigned() ? found->get<std::uint64_t>() <= static_cast<std::uint64_t>(max)
                                            : found->is_number_integer() && found->get<std::int64_t>() >= min;
    if (!fits) fail(name, "must be an integer from " + std::to_string(min) + " to " + std::to_string(max));
    return found->get<std::int64_t>();
  }

  double real_or(const char* name, double fallback) const {
    auto found = object_.find(name);
    if (found == object_.end()) return fallback;
    if (!found->is_number()) fail(name, "must be a number");
    return found->get<double>();
  }

  // A time or a duration in microseconds: not negative. 0 if it is missing.
  double microseconds(const char* name) const {
    const double value = real_or(name, 0);
    if (value < 0) fail(name, "must not be negative");
    return value;
  }

  bool flag(const char* name) const { return flag_of(member(name), name); }
  bool flag_or(const char* name, bool fallback) const {
    auto found = object_.find(name);
    return found == object_.end() ? fallback : flag_of(*found, name);
  }

  const std::string& text(const char* name) const { return text_of(member(name), name); }
  std::string text_or(const char* name, const char* fallback) const {
    auto found = object_.find(name);
    return found == object_.end() ? std::string(fallback) : text_of(*found, name);
  }

  const nlohmann::json& list(const char* name) const {
    const nlohmann::json& value = member(name);
    if (!value.is_array()) fail(name, "must be a list");
    return value;
  }

  const nlohmann::json& object(const char* name) const {
    const nlohmann::json& value = member(name);
    if (!value.is_object()) fail(name, "must be an object");
    return value;
  }

  // An element of a list that `name` leads to; `name` is only for the message.
  std::uint64_t number_of(const nlohmann::json& value, const char* name, std::uint64_t max) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > max)
      fail(name, "must be an integer from 0 to " + std::to_string(max));
    return value.get<std::uint64_t>();
  }
  const std::string& text_of(const nlohmann::json& value, const char* name) const {
    if (!value.is_string()) fail(name, "must be text");
    return value.get_ref<const std::string&>();
  }

 private:
  bool flag_of(const nlohmann::json& value, const char* name) const {
    if (!value.is_boolean()) fail(name, "must be true or false");
    return value.get<bool>();
  }

  const nlohmann::json& object_;
  const char* prefix_;
  FilePlace place_;
};

}  // namespace nimble::analyzer
