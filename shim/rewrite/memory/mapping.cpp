#include "shim/rewrite/memory/mapping.h"

#include <sys/resource.h>

namespace nimble::shim {

template <class Function>
Function* Mapping::find(const char* name) const {
  return reinterpret_cast<Function*>(context_.driver_symbol(name));
}

namespace {

CUmemAllocationProp on(CUdevice device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return prop;
}

}  // namespace

std::optional<CUdevice> Mapping::device() const {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return std::nullopt;
  const auto ask = find<decltype(::cuCtxGetDevice)>("cuCtxGetDevice");
  const auto attribute = find<decltype(::cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  const auto grain = find<decltype(::cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  for (const char* name : {"cuMemAddressReserve", "cuMemAddressFree", "cuMemCreate", "cuMemRelease", "cuMemMap",
                           "cuMemUnmap", "cuMemSetAccess"})
    if (!context_.driver_symbol(name)) return std::nullopt;
  int supported = 0;
  CUdevice here = 0;
  std::size_t bytes = 0;
  if (!ask || !attribute || !grain || ask(&here) != CUDA_SUCCESS ||
      attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, here) != CUDA_SUCCESS ||
      supported == 0)
    return std::nullopt;
  const CUmemAllocationProp prop = on(here);
  if (grain(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS || bytes == 0 || kGrain % bytes != 0)
    return std::nullopt;
  return here;
}

std::uint64_t Mapping::reserve(std::uint64_t bytes) const {
  const auto get = find<decltype(::cuMemAddressReserve)>("cuMemAddressReserve");
  CUdeviceptr address = 0;
  return get(&address, bytes, kGrain, 0, 0) == CUDA_SUCCESS ? address : 0;
}

void Mapping::give_back(std::uint64_t address, std::uint64_t bytes) const {
  find<decltype(::cuMemAddressFree)>("cuMemAddressFree")(address, bytes);
}

std::optional<Physical> Mapping::create(CUdevice device, std::uint64_t bytes) const {
  const CUmemAllocationProp prop = on(device);
  Physical physical = 0;
  return find<decltype(::cuMemCreate)>("cuMemCreate")(&physical, bytes, &prop, 0) == CUDA_SUCCESS
             ? std::optional(physical)
             : std::nullopt;
}

void Mapping::release(Physical physical) const { find<decltype(::cuMemRelease)>("cuMemRelease")(physical); }

bool Mapping::map(std::uint64_t address, std::uint64_t bytes, Physical physical) const {
  return find<decltype(::cuMemMap)>("cuMemMap")(address, bytes, 0, physical, 0) == CUDA_SUCCESS;
}

bool Mapping::allow(std::uint64_t address, std::uint64_t bytes, CUdevice device, CUmemAccess_flags flags) const {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  return find<decltype(::cuMemSetAccess)>("cuMemSetAccess")(address, bytes, &access, 1) == CUDA_SUCCESS;
}

bool Mapping::unmap(std::uint64_t address, std::uint64_t bytes) const {
  return find<decltype(::cuMemUnmap)>("cuMemUnmap")(address, bytes) == CUDA_SUCCESS;
}

}  // namespace nimble::shim
