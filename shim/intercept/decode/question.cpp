#include "shim/intercept/decode/question.h"

#include "shim/driver/real_driver.h"

namespace nimble::shim::decode {

namespace {

enum class Source : std::uint8_t { driver, begin, size, id, synchronous, none };

Source source_of(CUpointer_attribute attribute, bool of_capture) {
  switch (attribute) {
#define NIMBLE_ANSWER(name, of_step, of_captured) \
  case CU_POINTER_ATTRIBUTE_##name:               \
    return of_capture ? Source::of_captured : Source::of_step;
#include "nimble/internal/answers.def"
    default:
      return Source::driver;
  }
}

// Of an attribute that may be null. What is neither a flag nor tokens is a handle.
std::size_t size_of(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return sizeof(unsigned);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS);
    default:
      return sizeof(void*);
  }
}

}  // namespace

void fill_in(const Call& call, CUpointer_attribute attribute, void* data) {
  if (!data) return;
  switch (source_of(attribute, call.asked.of_capture)) {
    case Source::driver:
      break;
    case Source::begin:
      *static_cast<CUdeviceptr*>(data) = call.memory.address;
      break;
    case Source::size:
      *static_cast<std::size_t*>(data) = call.memory.size;
      break;
    case Source::id:
      if (call.asked.buffer_id != 0) *static_cast<unsigned long long*>(data) = call.asked.buffer_id;
      break;
    case Source::synchronous:
      *static_cast<unsigned*>(data) = call.asked.synchronous_copies ? 1 : 0;
      break;
    case Source::none:
      std::memset(data, 0, size_of(attribute));
      break;
  }
}

bool PoolAttribute::is_of_a_device(CUmemoryPool pool) {
  static constinit DriverFunction<decltype(&::cuDeviceGetCount)> get_count("cuDeviceGetCount");
  static constinit DriverFunction<decltype(&::cuDeviceGetDefaultMemPool)> get_pool("cuDeviceGetDefaultMemPool");
  int count = 0;
  if (!get_count.get() || !get_pool.get() || get_count.get()(&count) != CUDA_SUCCESS) return true;
  for (int device = 0; device < count; ++device) {
    CUmemoryPool own = nullptr;
    if (get_pool.get()(&own, device) == CUDA_SUCCESS && own == pool) return true;
  }
  return false;
}

}  // namespace nimble::shim::decode
