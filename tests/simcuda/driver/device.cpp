// The one device, and the driver's own version. It answers like an H200.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/simcuda/driver/entry.h"

using namespace simcuda;

namespace {

constexpr char kName[] = "Simulated GPU";
constexpr char kBusId[] = "0000:01:00.0";
constexpr int kDriverVersion = 13000;

const std::map<int, int>& attributes() {
  static const auto& values = *new std::map<int, int>{
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
      {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
      {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
      {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
      {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
      {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 1},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
      {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
      {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
      {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
      {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
      {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
      {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 41943040},
      {CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 134213632},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
      {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 4},
      {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
      {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0},
  };
  return values;  // whatever is not here, this device does not have
}

// An empty list hides the one device; whatever else is in it is taken to name it.
bool is_visible() {
  const char* const listed = std::getenv("CUDA_VISIBLE_DEVICES");
  return listed == nullptr || (*listed != '\0' && std::strcmp(listed, "-1") != 0);
}

}  // namespace

SIM_CALL(cuInit, kNothing, (unsigned flags), (flags)) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!is_visible()) return CUDA_ERROR_NO_DEVICE;
  call.driver.initialised = true;
  return CUDA_SUCCESS;
}

SIM_CALL(cuDriverGetVersion, kNothing, (int* version), (version)) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetCount, kInit, (int* count), (count)) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = 1;
  return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGet, kInit, (CUdevice * device, int ordinal), (device, ordinal)) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (ordinal != 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = 0;
  return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetName, kInit, (char* name, int bytes, CUdevice device), (name, bytes, device)) {
  if (name == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<std::size_t>(bytes), "%s", kName);
  return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceTotalMem_v2, kInit, (size_t * bytes, CUdevice device), (bytes, device)) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = call.driver.memory.total();
  return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetAttribute, kInit, (int* value, CUdevice_attribute attribute, CUdevice device),
         (value, attribute, device)) {
  if (value == nullptr || attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  const auto found = attributes().find(attribute);
  *value = found != attributes().end() ? found->second : 0;
  if (attribute == call.driver.options.attribute) *value = call.driver.options.attribute_value;
  return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceComputeCapability, kInit, (int* major, int* minor, CUdevice device), (major, minor, device)) {
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  *major = 9;
  *minor = 0;
  return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetUuid_v2, kInit, (CUuuid * uuid, CUdevice device), (uuid, device)) {
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(uuid->bytes, "simulated device", sizeof uuid->bytes);
  return CUDA_SUCCESS;
}
SIM_ALIAS(cuDeviceGetUuid, cuDeviceGetUuid_v2, kInit, (CUuuid * uuid, CUdevice device), (uuid, device))

SIM_CALL(cuDeviceGetPCIBusId, kInit, (char* id, int bytes, CUdevice device), (id, bytes, device)) {
  if (id == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(id, static_cast<std::size_t>(bytes), "%s", kBusId);
  return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetByPCIBusId, kInit, (CUdevice * device, const char* id), (device, id)) {
  if (device == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (std::strcmp(id, kBusId) != 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = 0;
  return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetProperties, kInit, (CUdevprop * properties, CUdevice device), (properties, device)) {
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  *properties = {1024, {1024, 1024, 64}, {2147483647, 65535, 65535}, 49152, 65536, 32, 2147483647, 65536, 1980000, 512};
  return CUDA_SUCCESS;
}

// There is no other device to reach.
SIM_CALL(cuDeviceCanAccessPeer, kInit, (int* can, CUdevice device, CUdevice peer), (can, device, peer)) {
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0 || peer != 0) return CUDA_ERROR_INVALID_DEVICE;
  *can = 0;
  return CUDA_SUCCESS;
}

SIM_CALL(cuDeviceGetExecAffinitySupport, kInit, (int* supported, CUexecAffinityType type, CUdevice device),
         (supported, type, device)) {
  if (supported == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  *supported = 0;
  return CUDA_SUCCESS;
}

// Tables of private functions: this driver has none, and programs must do without.
SIM_CALL(cuGetExportTable, kNothing, (const void** table, const CUuuid* id), (table, id)) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
