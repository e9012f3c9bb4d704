// A launch's parameters as one packed buffer, whichever of the driver's two ways the program used to pass them.
#pragma once

#include <cstring>

#include "nimble/internal/call.h"

namespace nimble {

// The buffer in which the program has packed the parameters itself; null where it has not, or where it is shorter than
// the layout.
inline const std::uint8_t* packed_params(const Call& call, const FunctionInfo& function) {
  if (!call.launch.extra) return nullptr;
  const void* buffer = nullptr;
  std::size_t size = 0;
  for (void** at = call.launch.extra; *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = at[1];
    if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<const std::size_t*>(at[1]);
  }
  return size < function.param_bytes ? nullptr : static_cast<const std::uint8_t*>(buffer);
}

// Writes the packed parameters of `call` to `out` (function.param_bytes long). False where they cannot be read: unknown
// layout, or a buffer that is shorter than the layout.
inline bool pack_params(const Call& call, const FunctionInfo& function, std::uint8_t* out) {
  if (!function.params) return false;
  if (function.param_bytes == 0) return true;
  if (call.launch.kernel_params) {
    std::size_t index = 0;
    std::uint32_t end = 0;
    for (const ParamLayout& param : *function.params) {
      // Gaps between parameters are not the program's bytes: keep them constant between launches.
      if (param.offset > end) std::memset(out + end, 0, param.offset - end);
      std::memcpy(out + param.offset, call.launch.kernel_params[index++], param.size);
      end = param.offset + param.size;
    }
    return true;
  }
  const void* const buffer = packed_params(call, function);
  if (buffer) std::memcpy(out, buffer, function.param_bytes);
  return buffer;
}

}  // namespace nimble
