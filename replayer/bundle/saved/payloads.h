// The contents of the step's copies from and to memory that only the program had: the bundle's sources and results, by
// op, checked against what the ops copy.
//
// Refers to the bundle. Immutable once built; any thread. Errors: InputError for one that does not fit its op, or is a
// duplicate; Refused if they take more memory than the machine has.
#pragma once

#include <cstdint>
#include <vector>

#include "replayer/bundle/saved/bundle_reader.h"
#include "replayer/bundle/saved/recorded_step.h"

namespace nimble::bundle {

// The extent of one side of a copy or set, including gaps between rows; the largest number on overflow.
std::uint64_t extent_of(const TraceRegion& region, const TraceCall& call);

class Payloads {
 public:
  Payloads(const BundleFiles& files, const RecordedStep& step);

  // That of the op's own address and extent; null if there is none.
  const BundlePayload* source(std::uint32_t op) const { return sources_[op]; }
  const BundlePayload* result(std::uint32_t op) const { return results_[op]; }

 private:
  using ByOp = std::vector<const BundlePayload*>;
  void take(const BundleFiles& files, const RecordedStep& step, const std::vector<BundlePayload>& payloads,
            const char* name, TraceRegion TraceCall::*side, ByOp& by_op);

  ByOp sources_, results_;
  std::uint64_t bytes_ = 0;  // of all
};

}  // namespace nimble::bundle
