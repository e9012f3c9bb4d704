// Launches, from the forms that the API knows. Under the driver's mutex.
#pragma once

#include "tests/simcuda/driver/entry.h"

namespace simcuda {

// Checks a launch and collects its parameters, from kernelParams or from `extra`.
CUresult fill_launch(Work& work, CUfunction function, CUcontext context, Dim grid, Dim block, unsigned shared_bytes,
                     void* const* parameters, void* const* extra);

}  // namespace simcuda
