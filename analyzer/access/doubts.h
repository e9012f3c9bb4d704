// What a kernel's code may do that would leave its accesses unproven, and whether a launch's parameters rule that out.
//
// It may follow an address from memory, for example, where a parameter says that it is given an array of pointers. The
// code tells under which conditions (KernelProof::extents); the launch's own values decide them. Pure functions over
// one OpQuestion; any thread. No errors.
#pragma once

#include "analyzer/access/access.h"

namespace nimble::analyzer {

// The first of the doubts that the launch does not exclude; null where it excludes them all.
const AddressDoubt* doubt_of(const OpQuestion& op, const AddressExtents& extents);

// Adds what has to stay as it is for them all to be excluded.
void pin_doubts(const OpQuestion& op, const AddressExtents& extents, Pinned& pinned);

}  // namespace nimble::analyzer
