#include "analyzer/graph/matching.h"

#include <algorithm>

#include "nimble/internal/trace.h"

namespace nimble::analyzer {
namespace {

using Neighbours = std::function<std::span<const std::uint32_t>(std::uint32_t)>;

// Layers the left nodes by their distance from a free one along alternating paths; whether a free right node was met.
bool layer(const Matching& matching, const Neighbours& neighbours, std::vector<std::uint32_t>& distance,
           std::vector<std::uint32_t>& queue) {
  queue.clear();
  for (std::uint32_t l = 0; l < distance.size(); ++l) {
    distance[l] = matching.right_of[l] == kNone ? 0 : kNone;
    if (distance[l] == 0) queue.push_back(l);
  }
  bool found = false;
  for (std::size_t head = 0; head < queue.size(); ++head) {
    std::uint32_t l = queue[head];
    for (std::uint32_t r : neighbours(l)) {
      std::uint32_t next = matching.left_of[r];
      if (next == kNone) {
        found = true;
      } else if (distance[next] == kNone) {
        distance[next] = distance[l] + 1;
        queue.push_back(next);
      }
    }
  }
  return found;
}

// Follows the layers from a free left node to a free right node, and swaps the path's edges in and out of the matching.
bool augment(std::uint32_t root, Matching& matching, const Neighbours& neighbours, std::vector<std::uint32_t>& distance,
             std::vector<std::uint32_t>& tried, std::vector<std::uint32_t>& path) {
  path.assign(1, root);
  while (!path.empty()) {
    std::uint32_t l = path.back();
    auto beside = neighbours(l);
    bool deeper = false;
    while (tried[l] < beside.size()) {
      std::uint32_t next = matching.left_of[beside[tried[l]]];
      if (next == kNone) {
        for (std::uint32_t node : path) {
          std::uint32_t r = neighbours(node)[tried[node]];
          matching.right_of[node] = r;
          matching.left_of[r] = node;
          ++tried[node];
        }
        return true;
      }
      if (distance[next] == distance[l] + 1) {
        path.push_back(next);
        deeper = true;
        break;
      }
      ++tried[l];
    }
    if (deeper) continue;
    distance[l] = kNone;  // leads nowhere in this phase
    path.pop_back();
    if (!path.empty()) ++tried[path.back()];
  }
  return false;
}

}  // namespace

Matching maximum_matching(std::uint32_t left, std::uint32_t right, const Neighbours& neighbours) {
  Matching matching{std::vector<std::uint32_t>(left, kNone), std::vector<std::uint32_t>(right, kNone), 0};
  for (std::uint32_t l = 0; l < left; ++l)
    for (std::uint32_t r : neighbours(l))
      if (matching.left_of[r] == kNone) {
        matching.right_of[l] = r;
        matching.left_of[r] = l;
        ++matching.size;
        break;
      }
  std::vector<std::uint32_t> distance(left), tried(left), queue, path;
  while (layer(matching, neighbours, distance, queue)) {
    std::fill(tried.begin(), tried.end(), 0u);
    for (std::uint32_t l = 0; l < left; ++l)
      if (matching.right_of[l] == kNone && augment(l, matching, neighbours, distance, tried, path)) ++matching.size;
  }
  return matching;
}

}  // namespace nimble::analyzer
