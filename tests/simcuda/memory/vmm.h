// What cuMemSetAccess lets the device do with mapped memory. Under the driver's mutex.
#pragma once

#include <cuda.h>

namespace simcuda {

// Whether the address lies in a mapping that the device may not touch.
bool is_closed(CUdeviceptr pointer);

}  // namespace simcuda
