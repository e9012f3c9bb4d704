#include "analyzer/rules/expression.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analyzer/rules/automaton.h"

namespace nimble::analyzer {
namespace {

constexpr std::size_t kMostSteps = 1 << 16;  // per expression: 16 bytes each
constexpr std::uint32_t kMostTimes = 1000;

using Bytes = ByteSet;

Bytes range(unsigned first, unsigned last) {
  Bytes result;
  for (unsigned each = first; each <= last; ++each) result.set(each);
  return result;
}

Bytes bytes(std::string_view list) {
  Bytes result;
  for (const char each : list) result.set(static_cast<unsigned char>(each));
  return result;
}

const Bytes kDigits = range('0', '9');
const Bytes kLower = range('a', 'z');
const Bytes kUpper = range('A', 'Z');
const Bytes kSpace = bytes(" \t\n\v\f\r");
const Bytes kWord = kDigits | kLower | kUpper | bytes("_");
const Bytes kLine = ~bytes("\n\r");  // what a dot matches

// For the names that are allowed in [: :]. Null: no such name.
Bytes named_class(std::string_view name) {
  if (name == "alpha") return kLower | kUpper;
  if (name == "digit" || name == "d") return kDigits;
  if (name == "alnum") return kLower | kUpper | kDigits;
  if (name == "lower") return kLower;
  if (name == "upper") return kUpper;
  if (name == "space" || name == "s") return kSpace;
  if (name == "w") return kWord;
  if (name == "blank") return bytes(" \t");
  if (name == "xdigit") return kDigits | range('a', 'f') | range('A', 'F');
  if (name == "punct") return range('!', '~') & ~(kLower | kUpper | kDigits);
  if (name == "graph") return range('!', '~');
  if (name == "print") return range(' ', '~');
  if (name == "cntrl") return range(0, 31) | range(127, 127);
  throw ExpressionError("there is no class [:" + std::string(name) + ":]");
}

// Reads an expression from left to right into a program. A group, and each of its alternatives, is one contiguous
// piece: so to repeat it, it is copied, or a step is put before it.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) { groups_.emplace_back(); }

  std::shared_ptr<Automaton> read() {
    while (at_ < text_.size()) next();
    if (groups_.size() > 1) throw ExpressionError("( without )");
    end_group();
    return std::make_shared<Automaton>(std::move(program_), std::move(sets_));
  }

 private:
  using Kind = MatchStep::Kind;

  struct Group {
    std::size_t begin = 0;          // in the program
    std::size_t alternative = 0;    // where the current one begins
    std::vector<std::size_t> ends;  // jumps from the ends of those before
  };

  bool follows(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  char take() {
    if (at_ == text_.size()) throw ExpressionError("it ends in the middle");
    return text_[at_++];
  }

  void next() {
    const char c = take();
    switch (c) {
      case '\\':
        return escape();
      case '[':
        return byte(bracket());
      case '.':
        return byte(kLine);
      case '(':
        return open();
      case ')':
        if (groups_.size() == 1) throw ExpressionError(") without (");
        return close();
      case '|':
        return alternative();
      case '*':
        return repeat(0, std::nullopt);
      case '+':
        return repeat(1, std::nullopt);
      case '?':
        return repeat(0, 1);
      case '{':
        return count();
      case '^':
        return place(Kind::begin);
      case '$':
        return place(Kind::end);
      default:
        return byte(bytes({&c, 1}));
    }
  }

  // ---- the program ----

  void add(MatchStep step) {
    room_for(1);
    program_.push_back(step);
  }

  void room_for(std::size_t steps) const {
    if (steps > kMostSteps - program_.size())
      throw ExpressionError("it takes more than " + std::to_string(kMostSteps) + " steps");
  }

  void byte(const Bytes& any) {
    const auto [found, is_new] = set_of_.try_emplace(any, sets_.size());
    if (is_new) sets_.push_back(any);
    piece_ = program_.size();
    add({Kind::byte, static_cast<std::int32_t>(found->second), 0});
  }

  void place(Kind kind) {
    piece_.reset();
    add({kind, 0, 0});
  }

  static std::int32_t distance(std::size_t from, std::size_t to) {
    return static_cast<std::int32_t>(to) - static_cast<std::int32_t>(from);
  }

  // Puts a step before the piece at `begin`, from which execution continues with the piece, or that far on.
  void split_before(std::size_t begin, std::int32_t other) {
    room_for(1);
    program_.insert(program_.begin() + static_cast<std::ptrdiff_t>(begin), MatchStep{Kind::split, 1, other});
  }

  // Groups are only for operators: nothing asks what a group has matched.
  void open() {
    if (follows("?=") || follows("?!") || follows("?<=") || follows("?<!"))
      throw ExpressionError("lookaround is not supported, since rules are matched in linear time");
    if (follows("?:"))
      at_ += 2;
    else if (follows("?"))
      throw ExpressionError("nothing but : may come after (?");
    groups_.push_back({program_.size(), program_.size(), {}});
    piece_.reset();
  }

  void alternative() {
    Group& group = groups_.back();
    const std::size_t length = program_.size() - group.alternative;
    split_before(group.alternative, static_cast<std::int32_t>(length) + 2);
    group.ends.push_back(program_.size());
    add({Kind::jump, 0, 0});
    group.alternative = program_.size();
    piece_.reset();
  }

  void end_group() {
    for (const std::size_t end : groups_.back().ends) program_[end].to = distance(end, program_.size());
  }

  void close() {
    end_group();
    piece_ = groups_.back().begin;
    groups_.pop_back();
  }

  // The last piece comes `least` times or more, up to `most`.
  void repeat(std::uint32_t least, std::optional<std::uint32_t> most) {
    if (!piece_) throw ExpressionError("there is nothing to repeat");
    if (follows("?")) ++at_;  // non-greedy: the same texts match
    const std::size_t begin = *std::exchange(piece_, std::nullopt);
    const std::vector<MatchStep> piece(program_.begin() + static_cast<std::ptrdiff_t>(begin), program_.end());
    const auto length = static_cast<std::int32_t>(piece.size());
    room_for((piece.size() + 2) * (std::size_t{least} + 1 + (most ? *most - least : 0)));
    program_.resize(begin);
    const auto once = [&] { program_.insert(program_.end(), piece.begin(), piece.end()); };
    for (std::uint32_t i = 0; i < least; ++i) once();
    if (!most) {
      program_.push_back({Kind::split, 1, length + 2});
      once();
      program_.push_back({Kind::jump, -length - 1, 0});
    }
    for (std::uint32_t i = least; most && i < *most; ++i) {
      const auto left = static_cast<std::int32_t>(*most - i);
      program_.push_back({Kind::split, 1, left * (length + 1)});
      once();
    }
  }

  void count() {
    const std::size_t end = text_.find('}', at_);
    const std::string_view count = text_.substr(at_, end == std::string_view::npos ? end : end - at_);
    const std::size_t comma = std::min(count.find(','), count.size());
    const auto is_number = [](std::string_view part) {
      return part.find_first_not_of("0123456789") == std::string_view::npos;
    };
    const std::string_view from = count.substr(0, comma), to = count.substr(std::min(comma + 1, count.size()));
    if (end == std::string_view::npos || from.empty() || !is_number(from) || !is_number(to))
      throw ExpressionError("{ without a count: for the character it is \\{");
    at_ = end + 1;
    const std::uint32_t least = number(from);
    if (comma == count.size()) return repeat(least, least);
    if (to.empty()) return repeat(least, std::nullopt);
    if (number(to) < least) throw ExpressionError("a count in {} ends before it begins");
    repeat(least, number(to));
  }

  static std::uint32_t number(std::string_view digits) {
    std::uint32_t value = 0;
    for (const char digit : digits) {
      value = 10 * value + static_cast<std::uint32_t>(digit - '0');
      if (value > kMostTimes) throw ExpressionError("a count in {} is more than " + std::to_string(kMostTimes));
    }
    return value;
  }

  // ---- characters ----

  void escape() {
    if (!follows("b") && !follows("B")) return byte(escaped());
    place(take() == 'b' ? Kind::edge : Kind::inside);
  }

  // What comes after a backslash, in brackets and elsewhere.
  Bytes escaped() {
    const char c = take();
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return ~kDigits;
      case 's':
        return kSpace;
      case 'S':
        return ~kSpace;
      case 'w':
        return kWord;
      case 'W':
        return ~kWord;
      case 'f':
        return bytes("\f");
      case 'n':
        return bytes("\n");
      case 'r':
        return bytes("\r");
      case 't':
        return bytes("\t");
      case 'v':
        return bytes("\v");
      case '0':
        return range(0, 0);
      case 'c': {
        const unsigned control = static_cast<unsigned char>(take()) & 31;
        return range(control, control);
      }
      case 'x':
        return hexadecimal(2);
      case 'u':
        return hexadecimal(4);
      default:
        if (kDigits[static_cast<unsigned char>(c)])
          throw ExpressionError("backreferences are not supported, since rules are matched in linear time");
        return bytes({&c, 1});
    }
  }

  Bytes hexadecimal(int digits) {
    unsigned value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = take();
      if (!named_class("xdigit")[static_cast<unsigned char>(c)]) throw ExpressionError("\\x and \\u need digits");
      value = 16 * value + static_cast<unsigned>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    if (value > 255) throw ExpressionError("names are matched byte by byte, and \\u is not a byte");
    return range(value, value);
  }

  // After its [.
  Bytes bracket() {
    const bool others = follows("^");
    if (others) ++at_;
    Bytes result;
    while (!follows("]")) {
      const Bytes first = bracket_item();
      if (!follows("-") || text_.substr(at_ + 1).starts_with("]")) {
        result |= first;
        continue;
      }
      ++at_;
      const Bytes last = bracket_item();
      // A class is not the end of a range: then the - stands for itself.
      if (first.count() != 1 || last.count() != 1) {
        result |= first | last | bytes("-");
        continue;
      }
      if (first._Find_first() > last._Find_first()) throw ExpressionError("a range in [] ends before it begins");
      result |= range(static_cast<unsigned>(first._Find_first()), static_cast<unsigned>(last._Find_first()));
    }
    ++at_;
    return others ? ~result : result;
  }

  Bytes bracket_item() {
    if (follows("[:")) {
      const std::size_t begin = at_ + 2, end = text_.find(":]", begin);
      if (end == std::string_view::npos) throw ExpressionError("[: without :]");
      at_ = end + 2;
      return named_class(text_.substr(begin, end - begin));
    }
    if (follows("[.") || follows("[=")) throw ExpressionError("[. and [= are not supported");
    const char c = take();
    if (c != '\\') return bytes({&c, 1});
    if (!follows("b")) return escaped();
    ++at_;
    return bytes("\b");
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::vector<MatchStep> program_;
  std::vector<Bytes> sets_;
  std::unordered_map<Bytes, std::size_t> set_of_;
  std::vector<Group> groups_;         // that are open; the first is the whole
  std::optional<std::size_t> piece_;  // where the piece that may be repeated begins
};

}  // namespace

Expression::Expression(const std::string& text) : automaton_(Reader(text).read()) {}

bool Expression::matches(const std::string& text) const { return automaton_->matches(text); }

bool matches_name(const Expression& expression, const std::string& name, const std::string& demangled) {
  constexpr std::size_t kMaxName = 8 * 1024;  // no real name comes close to this
  const auto one = [&](const std::string& text) { return text.size() <= kMaxName && expression.matches(text); };
  return one(name) || (demangled != name && one(demangled));
}

}  // namespace nimble::analyzer
