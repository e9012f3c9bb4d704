#include "replayer/step_order/program_order.h"

#include <algorithm>
#include <array>
#include <vector>

namespace nimble {

ScheduleSegment in_program_order(const ScheduleSegment& segment) {
  ScheduleSegment chain = segment;
  std::sort(chain.order.begin(), chain.order.end());
  chain.edges.clear();
  for (std::size_t i = 1; i < chain.order.size(); ++i) chain.edges.push_back({chain.order[i - 1], chain.order[i]});
  return chain;
}

bool has_program_order(const ScheduleSegment& segment) {
  const ScheduleSegment chain = in_program_order(segment);
  std::vector<std::array<std::uint32_t, 2>> edges = segment.edges;
  std::sort(edges.begin(), edges.end());
  return std::includes(edges.begin(), edges.end(), chain.edges.begin(), chain.edges.end());
}

}  // namespace nimble
