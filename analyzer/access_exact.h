// Evidence `exact`: copies, sets, allocations and frees, whose accesses the API defines.
//
// Stateless. Answers for the op kinds copy, set, alloc_async and free_async; says no where a region lies in no single
// object that the trace knows (pageable host memory, above all).
#pragma once

#include "analyzer/access.h"

namespace nimble::analyzer {

class ExactAccess : public AccessSource {
 public:
  Evidence evidence() const override { return Evidence::exact; }
  bool ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) override;
};

}  // namespace nimble::analyzer
