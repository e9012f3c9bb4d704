#include "analyzer/access/doubts.h"

#include "analyzer/access/kernel_params.h"
#include "analyzer/access/launch_of.h"

namespace nimble::analyzer {

const AddressDoubt* doubt_of(const OpQuestion& op, const AddressExtents& extents) {
  if (extents.doubts.empty()) return nullptr;
  const LaunchOf launch(op, extents);
  for (std::size_t i = 0; i < extents.doubts.size(); ++i)
    if (launch->may_happen(i)) return &extents.doubts[i];
  return nullptr;
}

void pin_doubts(const OpQuestion& op, const AddressExtents& extents, Pinned& pinned) {
  if (extents.doubts.empty()) return;
  const LaunchOf launch(op, extents);
  for (std::size_t i = 0; i < extents.doubts.size(); ++i) {
    const Sources sources = launch->sources_of_doubt(i);
    pinned.shape |= sources.shape;
    for (const std::uint32_t at : sources.params) pin_number(op, at, 4, pinned.params);
  }
}

}  // namespace nimble::analyzer
