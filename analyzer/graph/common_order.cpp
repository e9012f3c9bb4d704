#include "analyzer/graph/common_order.h"

#include <algorithm>
#include <cstdint>
#include <functional>

namespace nimble::analyzer {

namespace {

// For each op a bit for every op.
class Pairs {
 public:
  explicit Pairs(std::uint32_t ops) : words_((ops + 63) / 64), bits_(std::size_t{ops} * words_) {}

  bool has(std::uint32_t op, std::uint32_t other) const { return row(op)[other / 64] >> (other % 64) & 1; }
  void add(std::uint32_t op, std::uint32_t other) { row(op)[other / 64] |= std::uint64_t{1} << (other % 64); }
  void add_all(std::uint32_t op, const Pairs& from, std::uint32_t other) {
    std::transform(row(op), row(op) + words_, from.row(other), row(op), std::bit_or<>());
  }
  void keep_only(std::uint32_t op, const Pairs& those) {
    std::transform(row(op), row(op) + words_, those.row(op), row(op), std::bit_and<>());
  }
  bool operator==(const Pairs&) const = default;

 private:
  std::uint64_t* row(std::uint32_t op) { return bits_.data() + op * words_; }
  const std::uint64_t* row(std::uint32_t op) const { return bits_.data() + op * words_; }

  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

// By op: all that come before it.
Pairs before(const Dag& dag) {
  Pairs result(dag.nodes());
  for (std::uint32_t op = 0; op < dag.nodes(); ++op)
    for (const std::uint32_t other : dag.predecessors(op)) {
      result.add_all(op, result, other);
      result.add(op, other);
    }
  return result;
}

}  // namespace

CommonOrder common_order(const Dag& needed, const Dag& given) {
  const std::uint32_t ops = given.nodes();
  const Pairs all_given = before(given);
  Pairs common = before(needed);
  for (std::uint32_t op = 0; op < ops; ++op) common.keep_only(op, all_given);
  CommonOrder result;
  result.is_given = common == all_given;
  Pairs implied(ops);
  for (std::uint32_t op = 0; op < ops; ++op)
    for (std::uint32_t other = op; other-- > 0;) {
      if (!common.has(op, other) || implied.has(op, other)) continue;
      result.edges.push_back({other, op});
      implied.add_all(op, common, other);
    }
  return result;
}

}  // namespace nimble::analyzer
