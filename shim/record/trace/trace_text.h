// Pieces of trace text that several kinds of event use. Internal to shim/record/trace/; analyzer/input/trace_fields.h
// reads them back.
//
// Each appends to the caller's string. No state; any thread; no errors.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "nimble/internal/trace.h"

namespace nimble::shim {

// The end of a complete trace.
inline constexpr std::string_view kTraceEnd =
    R"json({"ph":"M","pid":1,"tid":0,"name":"nimble.end","args":{"dropped":0}})json"
    "\n]\n";

// A JSON string with its quotes. Invalid UTF-8 is replaced; never throws.
inline std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

template <class... Args>
void append(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

inline void append_hex(std::string& out, const std::uint8_t* bytes, std::size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(kDigits[bytes[i] >> 4]);
    out.push_back(kDigits[bytes[i] & 15]);
  }
}

// `[[address, bytes, "r"], ...]`
inline void append_accesses(std::string& out, const TraceAccess* list, std::size_t count) {
  out.push_back('[');
  for (std::size_t i = 0; i < count; ++i) {
    append(out, R"({}[{},{},"{}{}"])", i ? "," : "", list[i].address, list[i].bytes, list[i].reads ? "r" : "",
           list[i].writes ? "w" : "");
  }
  out.push_back(']');
}

}  // namespace nimble::shim
