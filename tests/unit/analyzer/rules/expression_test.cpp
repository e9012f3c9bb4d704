#include "analyzer/rules/expression.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <optional>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "analyzer/rules/shipped_rules.h"

namespace nimble::analyzer {
namespace {

std::string why_not(const std::string& text) {
  try {
    Expression expression(text);
  } catch (const ExpressionError& error) {
    return error.what();
  }
  return "fine";
}

std::optional<std::regex> other_matcher(const std::string& text) {
  try {
    return std::regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error&) {
    return std::nullopt;
  }
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::size_t below(std::size_t bound) { return engine_() % bound; }
  template <class List>
  std::string one_of(const List& list) {
    return std::string(list[below(std::size(list))]);
  }

 private:
  std::mt19937 engine_;
};

constexpr const char* kPieces[] = {
    "a",   "b",    ".",    "\\w",    "\\d",   "\\s",     "\\W", "\\S",         "\\D",    "[ab]", "[^ab]",
    "<",   "\\(",  "\\)",  "\\.",    "\\x61", "\\u0062", "\\n", "\\t",         "\\v",    "\\{",  "[a-c_]",
    "\\_", "\\A",  "\\Q",  "[\\w:]", "::",    "[^\\s]",  "[.]", "[[:alpha:]]", "[\\]a]", " ",    "[^[:digit:]x]",
    "\\0", "[-a]", "[a-]", "[\\b]"};
constexpr const char* kPlaces[] = {"^", "$", "\\b", "\\B"};
constexpr const char* kTimes[] = {"", "", "", "", "*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?", "??", "{1,2}?"};

std::string expression(Random& random, int depth) {
  std::string text;
  for (std::size_t pieces = 1 + random.below(3); pieces > 0; --pieces) {
    const std::size_t kind = random.below(12);
    if (kind == 0) {
      text += random.one_of(kPlaces);
      continue;
    }
    if (kind < 4 && depth > 0) {
      text += kind == 1 ? "(?:" : "(";
      text += expression(random, depth - 1) + (kind == 2 ? "|" + expression(random, depth - 1) : "") + ")";
    } else {
      text += random.one_of(kPieces);
    }
    text += random.one_of(kTimes);
  }
  return text;
}

std::string short_text(Random& random) {
  constexpr std::string_view kCharacters = "aabbc_:<>(). \n\t\v\r\x01{}xQA-]1\x08\xe9";
  std::string text;
  for (std::size_t length = random.below(7); length > 0; --length)
    text += kCharacters[random.below(kCharacters.size())];
  return text;
}

// Short texts: the other matcher recurses with each character, and takes exponential time.
TEST(Expression, MatchesWhatAnotherMatcherDoes) {
  Random random(1);
  int compared = 0, matched = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::string text = expression(random, 1);
    const std::optional<std::regex> other = other_matcher(text);
    ASSERT_EQ(other.has_value(), why_not(text) == "fine") << text << ": " << why_not(text);
    if (!other) continue;
    const Expression ours(text);
    for (int i = 0; i < 12; ++i) {
      const std::string name = short_text(random);
      const bool expected = std::regex_match(name, *other);
      ASSERT_EQ(ours.matches(name), expected) << text << " on " << ::testing::PrintToString(name);
      ++compared;
      matched += expected;
    }
  }
  EXPECT_GT(compared, 20'000);
  EXPECT_GT(matched, 2'000);
}

std::vector<std::string> shipped() {
  std::vector<std::string> result;
  const std::string text = shipped_rules_text();
  // One file after the other.
  for (std::size_t at = text.find("\"kernel\": \""); at != std::string::npos;
       at = text.find("\"kernel\": \"", at + 1)) {
    const std::size_t begin = at + std::string("\"kernel\": ").size();
    std::size_t end = begin + 1;
    while (text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    result.push_back(nlohmann::json::parse(text.substr(begin, end + 1 - begin)).get<std::string>());
  }
  return result;
}

// A name that an expression of the shipped ones' kind matches, more often than not: their words, and something for what
// they leave open.
std::string name_for(Random& random, const std::string& expression) {
  constexpr const char* kFiller[] = {"",          "x",  "float",   "at::native::", "<float, 4>",
                                     "c10::Half", "12", " const*", "(int, long)"};
  std::string name;
  for (std::size_t at = 0; at < expression.size(); ++at) {
    const char c = expression[at];
    if (c == '\\' && at + 1 < expression.size()) {
      const char escaped = expression[++at];
      name += escaped == 'w' ? "x" : escaped == 'd' ? "4" : std::string(1, escaped);
    } else if (c == '.') {
      name += random.one_of(kFiller);
    } else if (std::string_view("()[]?*+|^").find(c) == std::string_view::npos) {
      name += c;
    }
    if (random.below(400) == 0) name += random.one_of(kFiller);
  }
  return name;
}

TEST(Expression, ThoseThatAreShippedMatchWhatAnotherMatcherSays) {
  const std::vector<std::string> all = shipped();
  ASSERT_GT(all.size(), 20u);
  Random random(2);
  int matched = 0;
  std::vector<Expression> ours;
  std::vector<std::regex> other;
  for (const std::string& text : all) {
    ours.emplace_back(text);
    other.emplace_back(text, std::regex::ECMAScript | std::regex::optimize);
  }
  for (int round = 0; round < 400; ++round) {
    const std::string name = name_for(random, all[random.below(all.size())]);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool expected = std::regex_match(name, other[i]);
      ASSERT_EQ(ours[i].matches(name), expected) << all[i] << " on " << name;
      matched += expected;
    }
  }
  EXPECT_GT(matched, 100);
}

TEST(Expression, TakesNamesOfAnyLength) {
  for (const std::size_t length : {7'000u, 100'000u, 4'000'000u}) {
    const std::string name(length, 'a');
    EXPECT_TRUE(Expression(".*a.*").matches(name));
    EXPECT_FALSE(Expression(".*x.*").matches(name));
    EXPECT_FALSE(Expression("(a*)*b").matches(name));
    EXPECT_TRUE(Expression("(?:\\w+(?:a|aa)?)+").matches(name));
  }
  EXPECT_TRUE(Expression(".*").matches(std::string("a\0b", 3)));
}

TEST(Expression, SaysWhatItCannotDo) {
  EXPECT_EQ(why_not("(a)\\1"), "backreferences are not supported, since rules are matched in linear time");
  for (const char* around : {"(?=a)b", "(?!a)b", "(?<=a)b", "(?<!a)b"})
    EXPECT_EQ(why_not(around), "lookaround is not supported, since rules are matched in linear time");
  EXPECT_EQ(why_not("("), "( without )");
  EXPECT_EQ(why_not("a)"), ") without (");
  EXPECT_EQ(why_not("a**"), "there is nothing to repeat");
  EXPECT_EQ(why_not("|*"), "there is nothing to repeat");
  EXPECT_EQ(why_not("a{3,2}"), "a count in {} ends before it begins");
  EXPECT_EQ(why_not("a{1001}"), "a count in {} is more than 1000");
  EXPECT_EQ(why_not("[a"), "it ends in the middle");
  EXPECT_EQ(why_not("a\\"), "it ends in the middle");
  EXPECT_EQ(why_not("a{,2}"), "{ without a count: for the character it is \\{");
  EXPECT_EQ(why_not("[b-a]"), "a range in [] ends before it begins");
  EXPECT_EQ(why_not("[[:none:]]"), "there is no class [:none:]");
  EXPECT_EQ(why_not("\\u0100"), "names are matched byte by byte, and \\u is not a byte");
  EXPECT_EQ(why_not("(?i)a"), "nothing but : may come after (?");
  EXPECT_EQ(why_not("(?:(?:a{1000}){1000}){1000}"), "it takes more than 65536 steps");
  EXPECT_EQ(why_not(std::string(100'000, 'a')), "it takes more than 65536 steps");
}

// None of it recurses, whatever it says of them.
TEST(Expression, TakesAnyDepth) {
  const std::string open(32'000, '('), close(32'000, ')');
  EXPECT_EQ(why_not(open + close), "fine");
  EXPECT_EQ(why_not(open + "a" + close), "fine");
  EXPECT_EQ(why_not(open), "( without )");
  std::string often = "a";
  while (often.size() < 60'000) often = "(?:" + often + ")*";
  EXPECT_EQ(why_not(often.substr(0, 60'000)), "fine");
  std::string either;
  while (either.size() < 60'000) either += "(a|";
  EXPECT_EQ(why_not(either), "( without )");
}

}  // namespace
}  // namespace nimble::analyzer
