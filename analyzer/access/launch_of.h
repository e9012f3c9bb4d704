// The launch that a question is about, as analyzer/addresses/known_launches.h knows it.
//
// Refers to the question, and to the extents of its kernel's proof. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/addresses/known_launches.h"

namespace nimble::analyzer {

class LaunchOf {
 public:
  LaunchOf(const OpQuestion& op, const AddressExtents& extents);
  LaunchOf(const LaunchOf&) = delete;
  LaunchOf& operator=(const LaunchOf&) = delete;

  KnownLaunch& operator*() const { return *launch_; }
  KnownLaunch* operator->() const { return launch_; }
  KnownKernel& kernel() const { return launch_->kernel(); }

 private:
  std::optional<KnownKernel> own_;  // where no one keeps it for longer
  KnownLaunch* launch_;
};

// Those of a trace, by a list of kernels that outlives it. Without one nothing is known.
class KnownLaunches {
 public:
  KnownLaunches(const Trace& trace, KnownKernels* kernels) : trace_(trace), kernels_(kernels) {}

  // Null where how far it gets does not matter.
  KnownLaunch* of(const OpQuestion& op);

 private:
  const Trace& trace_;
  KnownKernels* const kernels_;
  std::vector<KnownKernel*> of_function_;
};

// The values of the question's launch; `pointers` are those that pointer_words() tells.
LaunchValues values_of(const OpQuestion& op, std::span<const std::uint32_t> pointers);

}  // namespace nimble::analyzer
