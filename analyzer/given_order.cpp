#include "analyzer/given_order.h"

namespace nimble::analyzer {

std::optional<std::pair<std::uint32_t, std::uint32_t>> left_unordered(const Dag& needed, const Dag& given,
                                                                      const std::vector<bool>& works,
                                                                      const std::vector<bool>& may_wait) {
  const std::uint32_t ops = given.nodes();
  std::vector<std::vector<bool>> before(ops, std::vector<bool>(ops));  // by op: what is ordered before it
  for (std::uint32_t op = 0; op < ops; ++op)
    for (const std::uint32_t other : given.predecessors(op)) {
      for (std::uint32_t i = 0; i < other; ++i)
        if (before[other][i]) before[op][i] = true;
      before[op][other] = true;
    }
  std::vector<std::uint32_t> open;
  std::vector<std::uint32_t> seen(ops, ops);  // from which op it was reached last
  for (std::uint32_t op = 0; op < ops; ++op) {
    if (!works[op]) continue;
    open.assign({op});
    while (!open.empty()) {
      const std::uint32_t from = open.back();
      open.pop_back();
      for (const std::uint32_t to : needed.successors(from)) {
        if (seen[to] == op) continue;
        seen[to] = op;
        if (!works[to]) {
          open.push_back(to);
        } else if (!before[to][op]) {
          return std::pair(op, to);
        }
      }
    }
    if (!may_wait[op]) continue;
    for (std::uint32_t other = 0; other < ops; ++other)
      if (works[other] && other != op && !before[op][other] && !before[other][op])
        return other < op ? std::pair(other, op) : std::pair(op, other);
  }
  return std::nullopt;
}

}  // namespace nimble::analyzer
