#include "analyzer/kernel_code/ptx/lexer.h"

#include <array>

namespace nimble::code {
namespace {

enum : std::uint8_t { kSpace = 1, kName = 2, kDigit = 4, kNested = 8 };

constexpr std::array<std::uint8_t, 256> classes() {
  std::array<std::uint8_t, 256> result{};
  for (int c = 'a'; c <= 'z'; ++c) result[c] = kName;
  for (int c = 'A'; c <= 'Z'; ++c) result[c] = kName;
  for (int c = '0'; c <= '9'; ++c) result[c] = kName | kDigit;
  for (const char c : {'_', '$', '%', '.'}) result[static_cast<unsigned char>(c)] = kName;
  for (const char c : {' ', '\t', '\r', '\n', '\f', '\v', '\0'}) result[static_cast<unsigned char>(c)] = kSpace;
  for (const char c : {'{', '}', '"', '/'}) result[static_cast<unsigned char>(c)] = kNested;
  return result;
}

constexpr std::array<std::uint8_t, 256> kClasses = classes();

bool is(char c, unsigned what) { return (kClasses[static_cast<unsigned char>(c)] & what) != 0; }

}  // namespace

// At a slash: skips the comment that begins here, if there is one.
bool PtxLexer::skip_comment() {
  const std::string_view rest = text_.substr(at_, 2);
  if (rest == "//") {
    at_ = std::min(text_.find('\n', at_), text_.size());
  } else if (rest == "/*") {
    const std::size_t end = text_.find("*/", at_ + 2);
    at_ = end == std::string_view::npos ? text_.size() : end + 2;
  } else {
    return false;
  }
  return true;
}

void PtxLexer::skip_space() {
  while (at_ < text_.size()) {
    if (is(text_[at_], kSpace))
      ++at_;
    else if (text_[at_] != '/' || !skip_comment())
      return;
  }
}

void PtxLexer::advance() {
  skip_space();
  begin_ = at_;
  token_ = {};
  if (at_ >= text_.size()) return;
  const char first = text_[at_];
  if (first == '"') {
    const std::size_t end = std::min(text_.find('"', at_ + 1), text_.size());
    token_ = {PtxToken::Kind::text, text_.substr(at_ + 1, end - at_ - 1)};
    at_ = std::min(end + 1, text_.size());
    return;
  }
  if (!is(first, kName)) {
    token_ = {PtxToken::Kind::mark, text_.substr(at_++, 1)};
    return;
  }
  // Names of caches and scopes contain double colons: ld.global.L2::cache_hint. A single one ends a label.
  while (at_ < text_.size()) {
    if (is(text_[at_], kName)) {
      ++at_;
    } else if (text_[at_] == ':' && at_ + 2 < text_.size() && text_[at_ + 1] == ':' && is(text_[at_ + 2], kName)) {
      at_ += 2;
    } else {
      break;
    }
  }
  token_ = {is(first, kDigit) ? PtxToken::Kind::number : PtxToken::Kind::word, text_.substr(begin_, at_ - begin_)};
}

PtxToken PtxLexer::take() {
  const PtxToken token = token_;
  taken_ = at_;
  advance();
  return token;
}

bool PtxLexer::take(std::string_view what) {
  if (!token_.is(what)) return false;
  take();
  return true;
}

void PtxLexer::skip_line() {
  at_ = std::min(text_.find('\n', taken_), text_.size());
  advance();
}

bool PtxLexer::skip_past(std::string_view what) {
  while (token_)
    if (take().is(what)) return true;
  return false;
}

bool PtxLexer::skip_block(std::string_view& inside) {
  at_ = taken_;
  int depth = 1;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (!is(c, kNested)) {
      ++at_;
      continue;
    }
    if (c == '/' && skip_comment()) continue;
    ++at_;
    if (c == '"') at_ = std::min(text_.find('"', at_), text_.size() - 1) + 1;
    if (c == '{') ++depth;
    if (c == '}' && --depth == 0) {
      inside = text_.substr(taken_, at_ - 1 - taken_);
      taken_ = at_;
      advance();
      return true;
    }
  }
  return false;
}

}  // namespace nimble::code
