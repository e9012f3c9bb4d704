// What each kernel of a trace touches by each word of its parameters, over all its launches: for nimble-analyze
// kernels.
//
// kernel_uses() asks the sources of evidence about every launch of the recording, whether it belongs to a step or not;
// kernels that graphs launch are not among them. Pure functions; any thread. No errors: what is not known is said.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/options.h"
#include "analyzer/stages/recording.h"

namespace nimble::analyzer {

struct KernelUse {
  // In how many launches a word of the packed parameters, or a variable, leads to memory that they read or write.
  struct Word {
    std::uint64_t reads = 0, writes = 0;
    std::uint64_t by_chance = 0;  // a number may lead out of the object there (Access::by_chance)
  };
  std::string name;                               // as the driver gives it
  std::uint64_t launches = 0, timed = 0;          // timed: with a known time on the GPU
  double gpu_us = 0;                              // of those
  std::array<std::uint64_t, kEvidences> known{};  // launches by the weakest evidence that was needed
  std::map<std::uint32_t, Word> words;            // by Access::at
  std::map<std::string, std::uint64_t> why;       // why it is not known in some launches: how many
  std::vector<ParamLayout> params;
  std::vector<std::string> variables;  // the module's, as Access::at counts them from kAtGlobals
};

struct KernelUses {
  std::vector<KernelUse> kernels;  // by their time on the GPU, then by launches, the most first
  std::uint64_t graph_launches = 0;
};

// Goes by `options.trust` and `options.rules`.
KernelUses kernel_uses(const Recording& recording, const AnalysisOptions& options);

// `uses` may be a part of what was found. `unknown_only`: lists only kernels that are not known in some launch.
std::string kernels_text(const Recording& recording, const KernelUses& uses, Evidence trust, bool unknown_only);
// One JSON object; docs/reference/nimble-analyze.md lists its keys.
std::string kernels_json(const Recording& recording, const KernelUses& uses, Evidence trust);

}  // namespace nimble::analyzer
