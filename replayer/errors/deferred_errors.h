// Errors of held ops: the program got CUDA_SUCCESS, and the driver has refused them since. Later calls of the program
// return them, one each, as the driver reports asynchronous errors.
//
// Holds results only; the player decides which calls may return them. Allocates only on errors. Not synchronised: the
// replayer's lock guards it.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <vector>

namespace nimble {

// Whether the error destroys the context, or the process's use of CUDA: every later call returns it, too (cuda.h: "any
// further CUDA work will return the same error").
inline bool is_final(CUresult result) {
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case 226:  // CUDA_ERROR_CONTAINED, in newer headers
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case 721:  // CUDA_ERROR_TENSOR_MEMORY_LEAK
    case CUDA_ERROR_EXTERNAL_DEVICE:
      return true;
    default:
      return false;
  }
}

class DeferredErrors {
 public:
  bool any() const { return !errors_.empty(); }

  // Adds one that the program does not know of. After a context has failed each of its ops has the same error: deferred
  // once, since the driver itself returns it from then on.
  void add(CUresult error) {
    if (!is_final(error) || std::find(errors_.begin(), errors_.end(), error) == errors_.end()) errors_.push_back(error);
  }

  // The result of a call that may return errors, and for which the driver has returned `result`.
  CUresult tell(CUresult result) {
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
      // The call's own error cannot wait. If it is the context's, the program now knows of it.
      if (is_final(result)) std::erase(errors_, result);
      return result;
    }
    return any() ? take() : result;
  }
  // The oldest. There must be one.
  CUresult take() {
    const CUresult error = errors_.front();
    errors_.erase(errors_.begin());
    return error;
  }

  // The context is gone, and its users do not expect to hear of it.
  void forget() { errors_.clear(); }

 private:
  std::vector<CUresult> errors_;
};

}  // namespace nimble
