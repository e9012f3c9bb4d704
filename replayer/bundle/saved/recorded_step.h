// The step as recorded: its ops, and what the host did between them, from the bundle's trace.
//
// Owns the trace, and the analyzer's results on what ops touch. Immutable once built. Errors: InputError if trace and
// bundle do not fit each other; Refused for a step with something that only its program can do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analyzer/stages/read_steps.h"
#include "replayer/bundle/saved/bundle_reader.h"

namespace nimble::bundle {

// An event of a step, in the program's order: an op, or a host call that waits, allocates or releases.
struct Moment {
  std::uint32_t op = kNone;  // its number in the step; kNone for a call of the host
  const TraceCall* call = nullptr;
};

class RecordedStep {
 public:
  // `options` as for analyze(); the step in them is set to the bundle's.
  RecordedStep(const BundleFiles& files, analyzer::AnalysisOptions options);

  const Trace& trace() const { return reading_.input.trace(); }
  const TraceCall& op(std::uint32_t op) const { return *ops_[op]; }
  std::uint32_t ops() const { return static_cast<std::uint32_t>(ops_.size()); }
  // The pointers in the op's arguments, with their objects.
  std::span<const analyzer::PointerWord> pointers(std::uint32_t op) const {
    return reading_.input.table->pointers(reading_.step.calls()[op]);
  }
  const analyzer::Object& object(std::uint32_t id) const { return reading_.input.table->objects()[id]; }
  const std::vector<Moment>& moments() const { return moments_; }
  // Including the step.
  const analyzer::AnalysisOptions& options() const { return options_; }

  // "op 5 (launch conv)": for messages.
  std::string describe(std::uint32_t op) const;
  // What may have written there last in the step, in words; empty if nothing is known to.
  std::string last_writer(std::uint64_t address) const;

 private:
  void check_op(std::uint32_t op, std::uint32_t image) const;

  analyzer::AnalysisOptions options_;
  analyzer::StepReading reading_;
  std::vector<const TraceCall*> ops_;
  std::vector<Moment> moments_;
};

}  // namespace nimble::bundle
