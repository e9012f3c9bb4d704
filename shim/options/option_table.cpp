#include "shim/options/option_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <stdexcept>

namespace nimble::shim {

namespace {

constexpr std::int64_t unbounded = std::numeric_limits<std::int64_t>::max();

constexpr OptionWord kFlagWords[] = {{"on", {}}, {"off", {}}};

#define NIMBLE_WORD(value, text, what) {text, what},
#define NIMBLE_CHOICE(id, type, standard, where, text, list) constexpr OptionWord kWordsOf_##id[] = {list};
#include "nimble/internal/options.def"

constexpr OptionRow kRows[] = {
#define NIMBLE_ROW(id, what, standard, where, text) \
  .name = #id, .kind = OptionKind::what, .fallback = standard, .modes = where, .help = text
#define NIMBLE_CHOICE(id, type, standard, where, text, list) \
  {NIMBLE_ROW(id, choice, standard, where, text), .words = kWordsOf_##id},
#define NIMBLE_FLAG(id, standard, where, text) {NIMBLE_ROW(id, flag, standard, where, text), .words = kFlagWords},
#define NIMBLE_INTEGER(id, standard, from, to, of, where, text) \
  {NIMBLE_ROW(id, integer, #standard, where, text), .least = from, .most = to, .unit = of},
#define NIMBLE_PATH(id, standard, how, where, text) \
  {NIMBLE_ROW(id, path, standard, where, text), .access = PathAccess::how},
#define NIMBLE_LIST(id, between, where, text) {NIMBLE_ROW(id, list, "", where, text), .separator = (between)[0]},
#include "nimble/internal/options.def"
#undef NIMBLE_ROW
};

constexpr const OptionWord* find_word(const OptionRow& row, std::string_view text) {
  for (const OptionWord& word : row.words)
    if (word.word == text) return &word;
  return nullptr;
}

constexpr bool is_in_range(const OptionRow& row, std::string_view text) {
  std::int64_t value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9' || value > (unbounded - (digit - '0')) / 10) return false;
    value = 10 * value + (digit - '0');
  }
  return !text.empty() && value >= row.least && value <= row.most;
}

constexpr bool accepts(const OptionRow& row, std::string_view text) {
  switch (row.kind) {
    case OptionKind::choice:
    case OptionKind::flag:
      return find_word(row, text) != nullptr;
    case OptionKind::integer:
      return is_in_range(row, text);
    case OptionKind::path:
    case OptionKind::list:
      return true;
  }
  return false;
}

// Calls `use` with each part of `text`.
template <class Use>
constexpr void split(std::string_view text, std::string_view separator, Use use) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    use(text.substr(0, end));
    text.remove_prefix(std::min(end + separator.size(), text.size()));
  }
}

// Checks what the compiler cannot see in a row: a default that the row itself refuses, an unknown mode, help that is
// not a sentence.
consteval bool rows_are_sound() {
  for (const OptionRow& row : kRows) {
    if (!accepts(row, row.fallback)) throw std::logic_error("a row refuses its default");
    if (row.help.empty() || row.help.back() != '.') throw std::logic_error("the help of a row is not a sentence");
    split(row.modes, ", ", [](std::string_view mode) {
      if (mode != "any" && mode != "graphs" && !find_word(kRows[0], mode))
        throw std::logic_error("a row names an unknown mode");
    });
  }
  return true;
}
static_assert(kRows[0].name == "mode" && rows_are_sound());

}  // namespace

std::span<const OptionRow> option_rows() { return kRows; }

const OptionRow& option_row(std::string_view name) {
  const auto* const found = std::ranges::find(kRows, name, &OptionRow::name);
  return found == std::end(kRows) ? throw std::logic_error("no such option") : *found;
}

std::string variable_of(const OptionRow& row) {
  std::string text = "NIMBLE_";
  for (const char c : row.name) text += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text;
}

bool counts_in(const OptionRow& row, std::string_view mode) {
  bool found = row.modes == "any";
  split(row.modes, ", ", [&](std::string_view one) { found = found || one == mode; });
  return found;
}

std::string why_refused(const OptionRow& row, std::string_view text) {
  if (accepts(row, text)) return {};
  std::string expected;
  if (row.kind == OptionKind::integer) {
    expected = fmt::format("a number of {} from {}", row.unit, row.least);
    if (row.most != unbounded) expected += fmt::format(" to {}", row.most);
  } else {
    for (const OptionWord& word : row.words) expected += (expected.empty() ? "one of " : ", ") + std::string(word.word);
  }
  return fmt::format("{}={} is not {}", variable_of(row), text, expected);
}

}  // namespace nimble::shim
