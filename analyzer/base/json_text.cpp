#include "analyzer/base/json_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace nimble::analyzer {
namespace {

// Bytes of the valid UTF-8 sequence at the start of `text`; 0 where there is none.
std::size_t utf8_length(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byte(0);
  std::size_t length = first < 0x80                    ? 1
                       : first >= 0xc2 && first < 0xe0 ? 2
                       : (first & 0xf0) == 0xe0        ? 3
                       : first >= 0xf0 && first < 0xf5 ? 4
                                                       : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) >= 0xa0) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) >= 0x90) return 0;
  return length;
}

}  // namespace

void JsonText::separate() {
  if (needs_comma_) out_ += ',';
  if (wants_newline_)
    out_ += '\n';
  else if (needs_comma_)
    out_ += ' ';
  needs_comma_ = wants_newline_ = false;
}

JsonText& JsonText::open(char bracket) {
  separate();
  out_ += bracket;
  return *this;
}

JsonText& JsonText::close(char bracket) {
  if (wants_newline_) out_ += '\n';
  wants_newline_ = false;
  out_ += bracket;
  needs_comma_ = true;
  return *this;
}

JsonText& JsonText::raw(std::string_view json) {
  separate();
  while (json.ends_with('\n')) json.remove_suffix(1);
  out_ += json;
  needs_comma_ = true;
  return *this;
}

JsonText& JsonText::key(std::string_view name) {
  text(name);
  out_ += ": ";
  needs_comma_ = false;
  return *this;
}

JsonText& JsonText::text(std::string_view value) {
  separate();
  out_ += '"';
  for (std::size_t i = 0; i < value.size();) {
    auto c = static_cast<unsigned char>(value[i]);
    std::size_t length = utf8_length(value.substr(i));
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += value[i];
    } else if (c < 0x20 || c == 0x7f || length == 0) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out_ += escape;
    } else {
      out_.append(value.substr(i, length));
    }
    i += length == 0 ? 1 : length;
  }
  out_ += '"';
  needs_comma_ = true;
  return *this;
}

JsonText& JsonText::number(std::uint64_t value) {
  separate();
  char digits[24];
  out_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  needs_comma_ = true;
  return *this;
}

JsonText& JsonText::real(double value) {
  if (!std::isfinite(value)) return null();
  separate();
  char digits[352];
  out_.append(digits, std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed, 3).ptr);
  needs_comma_ = true;
  return *this;
}

JsonText& JsonText::boolean(bool value) {
  separate();
  out_ += value ? "true" : "false";
  needs_comma_ = true;
  return *this;
}

JsonText& JsonText::null() {
  separate();
  out_ += "null";
  needs_comma_ = true;
  return *this;
}

JsonText& JsonText::newline() {
  wants_newline_ = true;
  return *this;
}

}  // namespace nimble::analyzer
