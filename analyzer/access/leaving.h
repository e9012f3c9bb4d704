// Which other objects a launch may reach from a pointer into one of them: by numbers that carry it over the end.
//
// Arithmetic on a pointer is taken to stay within its object, as C++ says, unless one of the numbers that are added to
// it leads to another object: a stride from one buffer to the next, an array that is counted from one. A kernel's code
// tells which numbers are added, and how addresses are computed (KernelProof::extents); with the launch's own values it
// follows how far they get, and only what lies within these bounds counts. Pure functions over one OpQuestion; any
// thread. No errors.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/access/access.h"

namespace nimble::analyzer {

// Appends accesses to whole objects, by their index in op.objects.
void add_left_objects(const OpQuestion& op, const AddressExtents& extents, std::vector<Access>& found);

// Whether an access of the proof touches no memory, since none of its words is a pointer in this launch: the code does
// not reach it, or it stays near address zero.
bool touches_nothing(const OpQuestion& op, const KernelProof& proof, const ProvenAccess& access);

// Adds what has to stay as it is for that to hold.
void pin_nothing(const OpQuestion& op, const KernelProof& proof, const ProvenAccess& access, Pinned& pinned);

// Whether the access leaves alone what is in this word, which is no pointer that is known, and not zero: what is
// computed from the launch's numbers leads to others of its words alone.
bool takes_others(const OpQuestion& op, const KernelProof& proof, const ProvenAccess& access, std::uint32_t word);

// Whether all that the access touches by this pointer is in the object that the pointer leads into: what is computed
// from the launch's numbers leads nowhere else.
bool stays_inside(const OpQuestion& op, const KernelProof& proof, const ProvenAccess& access, std::uint32_t word);

// Adds what has to stay as it is for either to hold.
void pin_others(const OpQuestion& op, const KernelProof& proof, const ProvenAccess& access, std::uint32_t word,
                Pinned& pinned);

// Whether there is any.
bool leaves_objects(const OpQuestion& op, const AddressExtents& extents);

// Adds what should stay as it was for that to hold: numbers that never changed.
void pin_extents(const OpQuestion& op, const AddressExtents& extents, Pinned& pinned);

}  // namespace nimble::analyzer
