// What a schedule's parallelism relies on: the pairs of ops of one graph that nothing orders, by the weaker evidence of
// the two.
//
// Exact for segments up to some thousands of ops, and for larger ones as long as that costs little; beyond that
// estimated from a sample of ops that is the same every time. Near linear in time and memory. Pure functions; any
// thread. No errors.
#pragma once

#include <cstdint>
#include <span>

#include "analyzer/graph/dag.h"
#include "nimble/internal/evidence.h"

namespace nimble::analyzer {

struct Parallelism {
  std::uint64_t pairs[kEvidences] = {};  // unordered ones, by the weaker evidence of the two ops
  bool exact = true;                     // else estimated

  std::uint64_t all() const {
    std::uint64_t sum = 0;
    for (std::uint64_t count : pairs) sum += count;
    return sum;
  }
  // As a fraction of all pairs.
  double share(Evidence evidence) const {
    std::uint64_t sum = all();
    return sum == 0 ? 0 : static_cast<double>(pairs[static_cast<int>(evidence)]) / static_cast<double>(sum);
  }
};

class ParallelismCounter {
 public:
  // `budget`: steps of work after which segments are sampled. A step is an edge or a node, for 64 ops at once.
  explicit ParallelismCounter(std::uint64_t budget = std::uint64_t{1} << 26) : budget_(budget) {}

  // Counts the pairs of one segment: what its graph enforces, and how well each of its ops is known.
  void add(const Dag& enforced, std::span<const Evidence> evidence);

  const Parallelism& result() const { return result_; }

 private:
  std::uint64_t budget_;
  Parallelism result_;
};

}  // namespace nimble::analyzer
