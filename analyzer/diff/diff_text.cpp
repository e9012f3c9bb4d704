// A difference of two steps as text, and as JSON.
#include <algorithm>
#include <cstdio>

#include "analyzer/base/json_text.h"
#include "analyzer/base/text.h"
#include "analyzer/diff/step_diff.h"
#include "analyzer/report/describe.h"

namespace nimble::analyzer {
namespace {

using Unit = FigureDiff::Unit;

std::string value_text(double value, Unit unit) {
  if (value < 0) return "unknown";
  if (unit == Unit::us) return us_text(value);
  if (unit == Unit::bytes) return bytes_text(static_cast<std::uint64_t>(value));
  return std::to_string(static_cast<std::uint64_t>(value));
}

// "+3", "-12.5 %"; empty if there is no difference, or one is not known.
std::string change_text(double first, double second, Unit unit) {
  if (first < 0 || second < 0 || first == second) return "";
  char text[32];
  if (unit == Unit::number)
    std::snprintf(text, sizeof text, "%+.0f", second - first);
  else if (first > 0)
    std::snprintf(text, sizeof text, "%+.1f %%", 100 * (second - first) / first);
  else
    return "";
  return text;
}

std::string row(const std::string& what, const std::string& first, const std::string& second,
                const std::string& change) {
  char line[160];
  std::snprintf(line, sizeof line, "%-28s %14s %14s %10s\n", shortened(what, 28).c_str(), first.c_str(), second.c_str(),
                change.c_str());
  return line;
}

std::string ops_text(const OpsDiff& each, int side) {
  return each.ops[side] == 0 ? "-" : std::to_string(each.ops[side]) + ", " + us_text(each.gpu_us[side]);
}

const char* unit_name(Unit unit) { return unit == Unit::us ? "us" : unit == Unit::bytes ? "bytes" : "number"; }

}  // namespace

std::string diff_text(const StepAnalysis& first, const StepAnalysis& second, const StepDiff& diff, std::size_t most) {
  std::string out = row("", "first", "second", "");
  for (const FigureDiff& figure : diff.figures)
    if (figure.first != figure.second || figure.first > 0)
      out += row(figure.name, value_text(figure.first, figure.unit), value_text(figure.second, figure.unit),
                 change_text(figure.first, figure.second, figure.unit));

  out += "\nOps: " + std::to_string(diff.same) + " in both, in the same order; " + std::to_string(diff.only[0]) +
         " only in the first, " + std::to_string(diff.only[1]) + " only in the second\n";
  if (!diff.is_aligned) out += "  The steps are too different to tell which ops in between are the same.\n";
  for (std::size_t i = 0; i < std::min(most, diff.ops.size()); ++i) {
    const OpsDiff& each = diff.ops[i];
    char line[64];
    std::snprintf(line, sizeof line, "  %20s %20s  ", ops_text(each, 0).c_str(), ops_text(each, 1).c_str());
    out += line + shortened(each.name, 100) + "\n";
  }
  if (diff.ops.size() > most) out += "  and " + std::to_string(diff.ops.size() - most) + " more; --json has all\n";

  const auto in_first = static_cast<std::size_t>(
      std::count_if(diff.order.begin(), diff.order.end(), [](const OrderDiff& each) { return each.in_first; }));
  out += "\nDependencies between ops in both: " + std::to_string(in_first) + " only in the first, " +
         std::to_string(diff.order.size() - in_first) + " only in the second\n";
  for (std::size_t i = 0; i < std::min(most, diff.order.size()); ++i) {
    const OrderDiff& each = diff.order[i];
    const StepAnalysis& analysis = each.in_first ? first : second;
    out += std::string("  ") + (each.in_first ? "first:  " : "second: ") + std::to_string(each.from) + " " +
           describe_op(analysis, each.from, 30) + " -> " + std::to_string(each.to) + " " +
           describe_op(analysis, each.to, 30) + ", " + std::string(name(each.dependency->kind)) + " (" +
           std::string(name(each.dependency->evidence)) + ")\n";
  }
  if (diff.order.size() > most) out += "  and " + std::to_string(diff.order.size() - most) + " more; --json has all\n";
  return out;
}

std::string diff_json(const StepAnalysis& first, const StepAnalysis& second, const StepDiff& diff) {
  JsonText out;
  out.open('{').key("nimble_diff").number(1).newline();
  out.key("first").text(first.input.file->path).key("second").text(second.input.file->path).newline();
  out.key("figures").open('[');
  for (const FigureDiff& figure : diff.figures) {
    out.newline().open('{').key("name").text(figure.name).key("unit").text(unit_name(figure.unit));
    for (const auto& [key, value] : {std::pair("first", figure.first), std::pair("second", figure.second)}) {
      out.key(key);
      if (value < 0)
        out.null();
      else
        out.real(value);
    }
    out.close('}');
  }
  out.close(']').newline().key("same").number(diff.same).key("aligned").boolean(diff.is_aligned);
  out.key("only_in_first").number(diff.only[0]).key("only_in_second").number(diff.only[1]).newline();
  out.key("ops").open('[');
  for (const OpsDiff& each : diff.ops) {
    out.newline().open('{').key("name").text(each.name);
    out.key("ops").open('[').number(each.ops[0]).number(each.ops[1]).close(']');
    out.key("gpu_us").open('[').real(each.gpu_us[0]).real(each.gpu_us[1]).close(']').close('}');
  }
  out.close(']').newline().key("order").open('[');
  for (const OrderDiff& each : diff.order) {
    out.newline().open('{').key("in").text(each.in_first ? "first" : "second").key("from").number(each.from);
    out.key("to").number(each.to).key("kind").text(name(each.dependency->kind));
    out.key("evidence").text(name(each.dependency->evidence)).close('}');
  }
  return out.close(']').close('}').newline().take();
}

}  // namespace nimble::analyzer
