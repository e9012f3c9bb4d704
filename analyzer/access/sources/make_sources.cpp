#include "analyzer/access/sources/make_sources.h"

#include <utility>

#include "analyzer/access/sources/exact.h"
#include "analyzer/access/sources/graph.h"
#include "analyzer/access/sources/proven.h"
#include "analyzer/access/sources/rules.h"
#include "analyzer/access/sources/signature.h"
#include "analyzer/access/trust.h"

namespace nimble::analyzer {

std::vector<std::unique_ptr<AccessSource>> make_sources(const Trace& trace, const Rules& rules, Evidence trust,
                                                        PointersInMemory& pointers, const Observations* seen,
                                                        std::unique_ptr<AccessSource> observed) {
  std::vector<std::unique_ptr<AccessSource>> sources;
  sources.push_back(std::make_unique<ExactAccess>());
  std::vector<AccessSource*> for_kernels;
  auto for_kernel = [&](std::unique_ptr<AccessSource> source) {
    source = within_trust(std::move(source), trust);
    for_kernels.push_back(source.get());
    sources.push_back(std::move(source));
  };
  for_kernel(std::make_unique<ProvenAccessSource>(trace, true));
  for_kernel(std::make_unique<RulesAccess>(trace, rules, pointers));
  for_kernel(std::make_unique<ProvenAccessSource>(trace, false));
  for_kernel(std::make_unique<SignatureAccess>(trace, pointers, seen));
  if (observed) for_kernel(std::move(observed));
  sources.push_back(std::make_unique<GraphAccess>(for_kernels));
  return sources;
}

}  // namespace nimble::analyzer
