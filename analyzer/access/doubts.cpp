#include "analyzer/access/doubts.h"

#include <algorithm>

#include "analyzer/access/kernel_params.h"
#include "analyzer/addresses/evaluate.h"

namespace nimble::analyzer {

const AddressDoubt* doubt_of(const OpQuestion& op, const AddressExtents& extents) {
  if (extents.doubts.empty()) return nullptr;
  const std::vector<std::uint32_t> pointers = pointer_words(op);
  const LaunchValues launch{op.call.params, pointers, op.call.grid, op.call.block};
  const auto found = std::ranges::find_if(
      extents.doubts, [&](const AddressDoubt& doubt) { return may_happen(extents, doubt.happens, launch); });
  return found == extents.doubts.end() ? nullptr : &*found;
}

void pin_doubts(const OpQuestion& op, const AddressExtents& extents, Pinned& pinned) {
  for (const AddressDoubt& doubt : extents.doubts) {
    const Sources sources = sources_of(extents, doubt.happens);
    pinned.shape |= sources.shape;
    for (const std::uint32_t at : sources.params) pin_number(op, at, 4, pinned.params);
  }
}

}  // namespace nimble::analyzer
