// What a launch of the program's own graph touches: all that its nodes touch, as the trace holds them.
//
// Its copies, sets and allocations are exact; the sources that speak for launches are asked about its kernels. Gives no
// answer if the trace does not hold the graph's nodes, or if no source speaks for one of its kernels.
#pragma once

#include <vector>

#include "analyzer/access/access.h"

namespace nimble::analyzer {

class GraphAccess : public AccessSource {
 public:
  // `for_kernels` in order of strength; they must outlive this source.
  explicit GraphAccess(std::vector<AccessSource*> for_kernels) : for_kernels_(std::move(for_kernels)) {}

  // For the graph that was answered for last: the evidence of its least known kernel.
  Evidence evidence() const override { return evidence_; }
  std::string basis(const OpQuestion&) override { return "its nodes"; }
  bool ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) override;

 private:
  bool ask_kernel(const OpQuestion& kernel, std::vector<Access>& found, std::string& why_not);

  std::vector<AccessSource*> for_kernels_;
  Evidence evidence_ = Evidence::exact;
};

}  // namespace nimble::analyzer
