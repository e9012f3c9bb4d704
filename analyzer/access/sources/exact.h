// Evidence `exact`: copies, sets, allocations and frees, whose accesses the API defines.
//
// Stateless. Answers for the op kinds copy, set, alloc_async and free_async, and for others that come with a list of
// what they touch. Gives no answer if a region is not within a single object that the trace knows (above all, pageable
// host memory).
#pragma once

#include "analyzer/access/access.h"

namespace nimble::analyzer {

// Appends what a list of accesses says; PointerWord::at of `pointers` is the place in the list. False, with nothing
// appended, if one of them is in no object that the trace knows.
bool add_listed(std::span<const PointerWord> pointers, const std::vector<TraceAccess>& list,
                std::vector<Access>& found);

class ExactAccess : public AccessSource {
 public:
  Evidence evidence() const override { return Evidence::exact; }
  std::string basis(const OpQuestion&) override { return "the API"; }
  bool ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) override;
};

}  // namespace nimble::analyzer
