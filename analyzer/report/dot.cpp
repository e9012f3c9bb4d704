#include "analyzer/report/dot.h"

#include <algorithm>
#include <utility>

#include "analyzer/report/describe.h"

namespace nimble::analyzer {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

void node(const StepAnalysis& analysis, std::uint32_t op, const std::string& extra, std::string& out) {
  OpRole role = analysis.evidence.accesses.ops[op].role;
  out += "  n" + std::to_string(op) + " [label=" + quoted(std::to_string(op) + ": " + describe_op(analysis, op, 48)) +
         extra + (role == OpRole::barrier ? ", color=red" : "") + "];\n";
}

}  // namespace

std::string dot_text(const StepAnalysis& analysis) {
  std::string out = "digraph step {\n  node [shape=box, fontsize=10];\n";
  auto ops = static_cast<std::uint32_t>(analysis.step.calls().size());
  for (std::size_t s = 0; s < analysis.plan.lanes.size(); ++s) {
    out += "  subgraph cluster_" + std::to_string(s) + " {\n  label=" + quoted("segment " + std::to_string(s)) + ";\n";
    const auto& members = analysis.cut.segments.segments[s].ops;
    for (std::size_t i = 0; i < members.size(); ++i) {
      std::uint32_t lane = analysis.plan.lanes[s].assignment.lane[i];
      node(analysis, members[i], ", xlabel=" + quoted("lane " + std::to_string(lane)), out);
    }
    out += "  }\n";
  }
  for (std::uint32_t op = 0; op < ops; ++op)
    if (analysis.cut.segments.segment[op] == kNone)
      node(analysis, op, analysis.cut.segments.submit[op] == Submit::direct ? ", style=dashed" : ", style=dotted", out);
  // The first dependency of a pair says the most about the edge; they are sorted by target, then source.
  const auto& all = analysis.order.dependencies.all;
  for (const auto& [from, to] : analysis.order.reduced.edges()) {
    auto found = std::lower_bound(all.begin(), all.end(), std::pair(to, from),
                                  [](const Dependency& d, const auto& key) { return std::pair(d.to, d.from) < key; });
    out += "  n" + std::to_string(from) + " -> n" + std::to_string(to) + " [label=" +
           quoted(std::string(name(found->kind)) +
                  (found->object == kNone ? "" : " of " + std::to_string(found->object))) +
           (found->evidence == Evidence::assumed ? ", color=red" : "") + ", fontsize=8];\n";
  }
  return out + "}\n";
}

}  // namespace nimble::analyzer
