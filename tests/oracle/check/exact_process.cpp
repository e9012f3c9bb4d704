#include <algorithm>

#include "tests/oracle/check/exact.h"
#include "tests/simcuda/simcuda.h"

namespace nimble::oracle {

std::vector<ExactOp> exact_of_process() {
  std::vector<std::pair<std::uint64_t, ExactOp>> found;
  SimcudaAccess one{};
  for (std::size_t i = 0; simcuda_access(i, &one) == 0; ++i) {
    ExactOp op;
    op.call = one.call;
    op.thread = one.thread;
    op.symbol = one.symbol;
    op.name = one.name;
    op.exact = one.exact != 0;
    for (std::size_t r = 0; r < one.read_count; ++r) op.reads.push_back({one.reads[r].begin, one.reads[r].end});
    for (std::size_t r = 0; r < one.write_count; ++r) op.writes.push_back({one.writes[r].begin, one.writes[r].end});
    found.emplace_back(one.op, std::move(op));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<ExactOp> ops;
  for (auto& entry : found) ops.push_back(std::move(entry.second));
  return ops;
}

}  // namespace nimble::oracle
