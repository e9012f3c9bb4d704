// The device's heap (malloc in kernels), of which no bundle has anything: who may reach it.
//
// Pure functions; any thread. Errors: InputError for a file of the bundle that cannot be read, Refused.
#pragma once

#include <string_view>

#include "replayer/bundle/saved/bundle_reader.h"
#include "replayer/bundle/saved/recorded_step.h"

namespace nimble::bundle {

// Whether the code of an image takes or releases memory of the heap: machine code or PTX, in a fatbin or by itself.
bool uses_heap(std::string_view image);

// Throws Refused where a launch of the step may follow an address in the heap: a kernel of such an image, of which it
// is not proven what it reaches, and memory that it is led to holds what may be an address of no object before the
// step. What takes memory of the heap in the step itself has it here, too.
void check_heap(const BundleFiles& files, const RecordedStep& step);

}  // namespace nimble::bundle
