#include "analyzer/graph/levels.h"

#include <algorithm>

namespace nimble::analyzer {

std::vector<std::uint32_t> levels_of(const Dag& dag) {
  std::vector<std::uint32_t> level(dag.nodes(), 0);
  for (std::uint32_t node = 0; node < dag.nodes(); ++node)
    for (std::uint32_t from : dag.predecessors(node)) level[node] = std::max(level[node], level[from] + 1);
  return level;
}

}  // namespace nimble::analyzer
