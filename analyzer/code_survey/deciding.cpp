#include "analyzer/code_survey/deciding.h"

#include <algorithm>
#include <utility>

#include "analyzer/code_survey/findings.h"
#include "analyzer/code_survey/param_uses.h"

namespace nimble::analyzer {
namespace {

void add_numbers(const Expressions& expressions, std::uint32_t from, Decided& decided) {
  std::vector<std::uint8_t> seen(expressions.size());
  std::vector<std::uint32_t> open{from};
  while (!open.empty()) {
    const std::uint32_t at = open.back();
    open.pop_back();
    if (std::exchange(seen[at], 1) != 0) continue;
    const Expression& each = expressions[at];
    if (operands_of(each.op) > 0) open.push_back(each.a);
    if (operands_of(each.op) > 1) open.push_back(each.b);
    decided.shape |= each.op == ExpressionOp::launch;
    const auto begin = static_cast<std::uint32_t>(each.value);
    if (each.op == ExpressionOp::param) decided.bytes.emplace_back(begin, begin + each.a);
  }
}

void join(std::vector<std::pair<std::uint32_t, std::uint32_t>>& ranges) {
  std::ranges::sort(ranges);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> joined;
  for (const auto& [begin, end] : ranges) {
    if (joined.empty() || joined.back().second < begin)
      joined.emplace_back(begin, end);
    else
      joined.back().second = std::max(joined.back().second, end);
  }
  ranges = std::move(joined);
}

}  // namespace

std::vector<Decided> decided_by_launch(const code::PtxProof& proof) {
  std::vector<Decided> all;
  for (const AddressDoubt& doubt : proof.extents.doubts) {
    Decided& decided = all.emplace_back(Decided{reason_of(doubt.why).cause, {}, false});
    add_numbers(proof.extents.expressions, doubt.happens, decided);
    join(decided.bytes);
  }
  return all;
}

std::string spoken_numbers(const Decided& decided) {
  std::vector<std::string> parts;
  for (const auto& [begin, end] : decided.bytes) parts.push_back(bytes_range(begin, end));
  if (decided.shape) parts.emplace_back("the launch's shape");
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

}  // namespace nimble::analyzer
