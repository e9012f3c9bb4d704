// Writes JSON text in the order in which it is called: for files that must be the same byte for byte.
//
// A JsonText owns the text so far, and puts commas where they belong. One thread. No errors: text that is not valid
// UTF-8 is written byte by byte as the code point of that number, so that the file is valid whatever a trace contains.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nimble::analyzer {

class JsonText {
 public:
  JsonText& open(char bracket);   // '{' or '['
  JsonText& close(char bracket);  // '}' or ']'
  JsonText& key(std::string_view name);
  JsonText& text(std::string_view value);
  JsonText& number(std::uint64_t value);
  JsonText& real(double value);  // three decimals; null if it is not finite
  JsonText& boolean(bool value);
  JsonText& null();
  JsonText& raw(std::string_view json);  // a value that is JSON already
  JsonText& newline();                   // between elements; the comma goes before it

  const std::string& str() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  void separate();

  std::string out_;
  bool needs_comma_ = false;
  bool wants_newline_ = false;
};

}  // namespace nimble::analyzer
