// PTX text as tokens. Comments are skipped.
//
// A lexer belongs to one thread; its tokens refer to the text. Never fails: what is not a token of PTX comes as a
// single character, which no parser asks for.
#pragma once

#include <cstdint>
#include <string_view>

namespace nimble::code {

struct PtxToken {
  enum class Kind : std::uint8_t { end, word, number, text, mark };
  Kind kind = Kind::end;
  std::string_view spelled;  // for a text: without its quotes

  bool is(std::string_view what) const { return spelled == what && kind != Kind::text; }
  explicit operator bool() const { return kind != Kind::end; }
};

class PtxLexer {
 public:
  explicit PtxLexer(std::string_view text) : text_(text) { advance(); }

  const PtxToken& peek() const { return token_; }
  PtxToken take();
  // Takes the token if it is this one.
  bool take(std::string_view what);
  // Takes everything up to the end of the line of the last token taken.
  void skip_line();
  // Takes everything up to this token, and the token; false if it does not come. Does not look into nested braces.
  bool skip_past(std::string_view what);
  // Right after an opening brace: the text up to the closing one, which is taken as well. Fast: only looks for braces,
  // comments and quotes. False if there is no closing brace.
  bool skip_block(std::string_view& inside);

 private:
  void advance();
  void skip_space();
  bool skip_comment();

  std::string_view text_;
  std::size_t at_ = 0;     // just past token_
  std::size_t begin_ = 0;  // of token_
  std::size_t taken_ = 0;  // the end of the last token that was taken
  PtxToken token_;
};

}  // namespace nimble::code
