// Which ops may reach the device's heap (malloc in kernels), which bundles do not save.
//
// Pure functions; any thread. Errors: InputError for a file of the bundle that cannot be read, Refused.
#pragma once

#include <string_view>

#include "replayer/bundle/saved/bundle_reader.h"
#include "replayer/bundle/saved/recorded_step.h"

namespace nimble::bundle {

// Whether the code of an image allocates or frees heap memory: machine code or PTX, in a fatbin or alone.
bool uses_heap(std::string_view image);

// Throws Refused if a launch of the step may follow an address in the heap: a kernel of such an image, without proof of
// what it reaches, that can reach memory which before the step holds a possible address outside all objects. Heap
// memory that the step itself allocates is available here, too.
void check_heap(const BundleFiles& files, const RecordedStep& step);

}  // namespace nimble::bundle
