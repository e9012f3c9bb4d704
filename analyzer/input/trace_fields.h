// Reads and checks the fields that events of several kinds in a trace have. Internal to
// analyzer/input/trace_reader*.cpp; shim/record/trace/trace_text.h writes them.
//
// Free functions without state; any thread. Errors: InputError, as for Fields, which names the field.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/base/json_fields.h"
#include "analyzer/input/trace_reader.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

inline constexpr std::uint64_t kMaxId = kNone - 1;
inline constexpr std::uint64_t kMaxAddress = std::numeric_limits<std::uint64_t>::max();

// The place of a name in a list of names.
template <std::size_t N>
std::optional<std::uint8_t> index_of(const std::string_view (&names)[N], std::string_view name) {
  auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<std::uint8_t>(found - std::begin(names));
}

// The id of one of `defined` things that were defined before.
inline std::uint32_t read_id(const Fields& args, const char* name, std::size_t defined) {
  std::uint64_t value = args.number(name, kMaxId);
  if (value >= defined) args.fail(name, std::to_string(value) + " was not defined before");
  return static_cast<std::uint32_t>(value);
}

// 0xff for what is not a hexadecimal digit.
inline std::uint8_t hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<std::uint8_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<std::uint8_t>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<std::uint8_t>(c - 'A' + 10);
  return 0xff;
}

// Packed parameters, two hexadecimal digits for each byte.
inline std::vector<std::uint8_t> read_params(const Fields& args, const char* name, const std::string& text) {
  if (text.size() % 2 != 0) args.fail(name, "has an odd number of hexadecimal digits");
  if (text.size() / 2 > kMaxParamBytes) args.fail(name, "is longer than " + std::to_string(kMaxParamBytes) + " bytes");
  std::vector<std::uint8_t> result(text.size() / 2);
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::uint8_t high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
    if (high == 0xff || low == 0xff) args.fail(name, "is not hexadecimal");
    result[i] = static_cast<std::uint8_t>(high << 4 | low);
  }
  return result;
}

// Packed parameters must be as many bytes as the function takes.
inline void check_params(const Fields& args, const char* name, const TraceFunction& function,
                         const std::vector<std::uint8_t>& params) {
  const auto& known = function.params;
  std::uint64_t expected = known && !known->empty() ? std::uint64_t{known->back().offset} + known->back().size : 0;
  if (params.size() != expected)
    args.fail(name,
              "holds " + std::to_string(params.size()) + " bytes, the function takes " + std::to_string(expected));
}

inline void read_mode(const Fields& args, const char* name, const nlohmann::json& item, bool& reads, bool& writes) {
  const std::string& mode = args.text_of(item, name);
  reads = mode == "r" || mode == "rw";
  writes = mode == "w" || mode == "rw";
  if (!reads && !writes) args.fail(name, "a mode must be \"r\", \"w\" or \"rw\"");
}

// `[[address, bytes, "r"], ...]`
inline void read_accesses(const Fields& args, std::vector<TraceAccess>& list) {
  for (const nlohmann::json& item : args.list("accesses")) {
    if (!item.is_array() || item.size() != 3) args.fail("accesses", "must be a list of [address, bytes, mode]");
    TraceAccess access;
    access.address = args.number_of(item[0], "accesses", kMaxAddress);
    access.bytes = args.number_of(item[1], "accesses", kMaxAddress - access.address);
    read_mode(args, "accesses", item[2], access.reads, access.writes);
    list.push_back(access);
  }
}

}  // namespace nimble::analyzer
