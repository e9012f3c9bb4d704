#include "shim/launcher/help.h"

#include <algorithm>

namespace nimble::launcher {

using shim::OptionKind;
using shim::OptionRow;

std::string flag(const OptionRow& row) {
  std::string text = "--" + std::string(row.name);
  std::ranges::replace(text, '_', '-');
  return text;
}

std::string placeholder(const OptionRow& row) {
  switch (row.kind) {
    case OptionKind::choice:
      return "WORD";
    case OptionKind::flag:
      return "on|off";
    case OptionKind::integer:
      return "N";
    case OptionKind::path:
      return row.access == shim::PathAccess::reads_file || row.access == shim::PathAccess::writes_file ? "FILE" : "DIR";
    case OptionKind::list:
      return std::string("A[") + row.separator + "B...]";
  }
  return {};
}

std::string described(const OptionRow& row, std::string_view fallback) {
  std::string text = row.modes == "any" ? "" : "(" + std::string(row.modes) + ") ";
  text += row.help;
  if (!fallback.empty()) {
    text += " [" + std::string(fallback);
    if (row.kind == OptionKind::integer) text += " " + std::string(row.unit);
    text += "]";
  }
  for (const shim::OptionWord& word : row.words)
    if (!word.meaning.empty()) text += "\n  " + std::string(word.word) + ": " + std::string(word.meaning);
  return text;
}

std::string environment_help() {
  const auto title = [](const OptionRow& row) { return "  " + variable_of(row) + "=" + placeholder(row) + "  "; };
  std::size_t column = 0;  // where the descriptions begin
  for (const OptionRow& row : shim::option_rows()) column = std::max(column, title(row).size());
  std::string text =
      "Environment of libnimble.so, which the options of `nimble run` set (preloading it by hand works too). In\n"
      "parentheses: the modes in which an option counts; graphs is NIMBLE_GRAPHS=rewrite. In brackets: its default.\n"
      "In file names %p is the process id and %r the rank.\n";
  for (const OptionRow& row : shim::option_rows()) {
    std::string line = title(row);
    line.resize(column, ' ');
    for (const char c : described(row, row.fallback)) {
      line += c;
      if (c == '\n') line.append(column, ' ');
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace nimble::launcher
