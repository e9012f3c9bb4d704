// What copies of the step carry from and to memory that only the program had: the bundle's sources and results, by op,
// once it is sure that they are what their ops copy.
//
// Refers to the bundle. Immutable once built; any thread. Errors: InputError for one that is not its op's, or of
// which there is one too many; Refused where they take more than the machine has memory.
#pragma once

#include <cstdint>
#include <vector>

#include "replayer/bundle/saved/bundle_reader.h"
#include "replayer/bundle/saved/recorded_step.h"

namespace nimble::bundle {

// How far one side of a copy or set reaches, gaps between rows included; the largest number where that is more than a
// number holds.
std::uint64_t extent_of(const TraceRegion& region, const TraceCall& call);

class Payloads {
 public:
  Payloads(const BundleFiles& files, const RecordedStep& step);

  // Of the op's own address and extent; null where there is none.
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
