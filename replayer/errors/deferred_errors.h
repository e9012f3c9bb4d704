// Errors of ops that were held back: the program was told CUDA_SUCCESS, and the driver has refused them since. They are
// told by later calls of the program, one by each, as the driver tells asynchronous errors.
//
// Holds results only; which calls may tell them is the player's to judge. Allocates where there is an error, nowhere
// else. Not synchronised: the replayer's lock guards it.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <vector>

namespace nimble {

// Whether a context, or the process, does not survive this error: every later call has it, too (cuda.h: "any further
// CUDA work will return the same error").
inline bool is_final(CUresult result) {
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case 226:  // CUDA_ERROR_CONTAINED, of newer headers
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

class OwedErrors {
 public:
  bool any() const { return !errors_.empty(); }

  // One that the program has not been told of. Where a context has failed each of its ops has the same error: it is
  // owed once, since the driver itself says it from then on.
  void add(CUresult error) {
    if (!is_final(error) || std::find(errors_.begin(), errors_.end(), error) == errors_.end()) errors_.push_back(error);
  }

  // What a call is told that may tell errors, where the driver has answered it with `result`.
  CUresult tell(CUresult result) {
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
      // The call's own error cannot wait. If it is that of the context, this is how the program hears of it.
      if (is_final(result)) std::erase(errors_, result);
      return result;
    }
    return any() ? take() : result;
  }
  // The oldest. There is one.
  CUresult take() {
    const CUresult error = errors_.front();
    errors_.erase(errors_.begin());
    return error;
  }

  // The context is gone, and who used it does not expect to hear of it.
  void forget() { errors_.clear(); }

 private:
  std::vector<CUresult> errors_;
};

}  // namespace nimble
