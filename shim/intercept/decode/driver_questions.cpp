// What decoders ask the driver about the arguments that they were given.
#include "shim/driver/real_driver.h"
#include "shim/intercept/decode/code.h"
#include "shim/intercept/decode/memory.h"

namespace nimble::shim::decode {

void External::of_unknown_size(Call& call, CUdeviceptr pointer) {
  static constinit DriverFunction<decltype(&::cuMemGetAddressRange_v2)> get_range("cuMemGetAddressRange_v2");
  CUdeviceptr base = pointer;
  std::size_t bytes = 0;
  const auto ask = get_range.get();
  if (ask && ask(&base, &bytes, pointer) == CUDA_SUCCESS) call.memory.size = bytes - (pointer - base);
  call.memory.address = pointer;
}

bool TensorMap::inside_one(std::uint64_t address, std::uint64_t bytes, bool sliced) {
  static constinit DriverFunction<decltype(&::cuMemGetAddressRange_v2)> get_range("cuMemGetAddressRange_v2");
  CUdeviceptr base = 0;
  std::size_t size = 0;
  const auto ask = get_range.get();
  if (sliced || !ask || ask(&base, &size, address) != CUDA_SUCCESS) return false;
  return bytes <= size - (address - base);
}

bool Global::is_managed(std::uint64_t address) {
  static constinit DriverFunction<decltype(&::cuPointerGetAttribute)> get_attribute("cuPointerGetAttribute");
  unsigned managed = 0;
  const auto ask = get_attribute.get();
  return ask && ask(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == CUDA_SUCCESS && managed != 0;
}

bool PoolAccess::is_home_of(CUmemoryPool pool, const CUmemLocation& location) {
  static constinit DriverFunction<decltype(&::cuDeviceGetDefaultMemPool)> default_of("cuDeviceGetDefaultMemPool");
  static constinit DriverFunction<decltype(&::cuDeviceGetMemPool)> present_of("cuDeviceGetMemPool");
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return false;
  CUmemoryPool its = nullptr;
  for (const auto ask : {default_of.get(), present_of.get()})
    if (ask && ask(&its, location.id) == CUDA_SUCCESS && its == pool) return true;
  return false;
}

bool MapAccess::is_home_of(CUdeviceptr pointer, std::size_t bytes, const CUmemLocation& location) {
  static constinit DriverFunction<decltype(&::cuMemGetAddressRange_v2)> get_range("cuMemGetAddressRange_v2");
  if (!get_range.get()) return false;
  const CUdeviceptr end = pointer + bytes;
  while (pointer < end) {
    CUdeviceptr base = 0;
    std::size_t size = 0;
    if (!is_at(pointer, location) || get_range.get()(&base, &size, pointer) != CUDA_SUCCESS) return false;
    if (base + size <= pointer) return false;
    pointer = base + size;
  }
  return true;
}

bool MapAccess::is_at(CUdeviceptr pointer, const CUmemLocation& location) {
  static constinit DriverFunction<decltype(&::cuMemRetainAllocationHandle)> retain("cuMemRetainAllocationHandle");
  static constinit DriverFunction<decltype(&::cuMemGetAllocationPropertiesFromHandle)> properties_of(
      "cuMemGetAllocationPropertiesFromHandle");
  static constinit DriverFunction<decltype(&::cuMemRelease)> release("cuMemRelease");
  if (!retain.get() || !properties_of.get() || !release.get()) return false;
  CUmemGenericAllocationHandle handle = 0;
  if (retain.get()(&handle, reinterpret_cast<void*>(pointer)) != CUDA_SUCCESS) return false;
  CUmemAllocationProp properties{};
  const bool known = properties_of.get()(&properties, handle) == CUDA_SUCCESS;
  release.get()(handle);
  return known && properties.location.type == location.type && properties.location.id == location.id;
}

}  // namespace nimble::shim::decode
