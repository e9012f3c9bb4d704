// Memory in two parts: ranges of addresses, and physical memory to be mapped there. Physical memory is shared memory of
// this process, so that mapping it twice shows the same bytes twice; what can be exported is an anonymous file. A
// driver takes no descriptors of the program's for the rest.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>
#include <map>
#include <memory>

#include "tests/simcuda/memory/vmm.h"

#include "tests/simcuda/driver/entry.h"
#include "tests/simcuda/engine/device_fault.h"
#include "tests/simcuda/memory/copy.h"
#include "tests/simcuda/memory/pool.h"

using namespace simcuda;

namespace {

constexpr std::uint64_t kGranularity = 2 << 20;

// Above all addresses.
std::uint64_t next_name() {
  static std::uint64_t next = std::uint64_t{1} << 62;
  return next += std::uint64_t{1} << 38;
}

struct Physical {
  int file = -1;         // or
  void* base = nullptr;  // where it is
  std::uint64_t bytes = 0;
  CUmemAllocationProp prop{};
  std::uint64_t name = next_name();  // see Tracking::map()
  ~Physical() {
    if (file >= 0) close(file);
    if (base != nullptr) munmap(base, bytes);
    driver().memory.use_no_more(bytes);
  }
};

// Under the driver's mutex. Never destroyed, as the driver is not.
struct Mappings {
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<Physical>> handles;
  CUmemGenericAllocationHandle next = 1;
  std::map<CUdeviceptr, std::size_t> reserved;
  struct Mapped {
    std::size_t bytes;
    std::shared_ptr<Physical> physical;
    CUmemGenericAllocationHandle handle;
    unsigned access;
  };
  std::map<CUdeviceptr, Mapped> mapped;
};

Mappings& mappings() {
  static Mappings& state = *new Mappings();
  return state;
}

// The reservation that holds this range.
bool is_reserved(CUdeviceptr pointer, std::size_t bytes) {
  auto after = mappings().reserved.upper_bound(pointer);
  if (after == mappings().reserved.begin()) return false;
  --after;
  return pointer + bytes <= after->first + after->second;
}

void* at(CUdeviceptr pointer) { return reinterpret_cast<void*>(pointer); }

// Puts memory of the region's own kind where something else was mapped.
bool plain(CUdeviceptr pointer, std::size_t bytes, int protection) {
  return mmap(at(pointer), bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) !=
         MAP_FAILED;
}

// On the device, or the host's, which is the same memory here.
bool is_known_place(const CUmemAllocationProp* prop) {
  return prop != nullptr && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED && prop->location.id == 0 &&
         (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE || prop->location.type == CU_MEM_LOCATION_TYPE_HOST);
}

}  // namespace

bool simcuda::is_closed(CUdeviceptr pointer) {
  const auto after = mappings().mapped.upper_bound(pointer);
  if (after == mappings().mapped.begin()) return false;
  const auto& [begin, mapped] = *std::prev(after);
  return pointer - begin < mapped.bytes && mapped.access == CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

SIM_CALL(cuMemGetAllocationGranularity, kInit,
         (size_t * granularity, const CUmemAllocationProp* prop, CUmemAllocationGranularity_flags option),
         (granularity, prop, option)) {
  if (granularity == nullptr || !is_known_place(prop)) return CUDA_ERROR_INVALID_VALUE;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemAddressReserve, kInit,
         (CUdeviceptr * pointer, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags),
         (pointer, bytes, alignment, wanted, flags)) {
  if (pointer == nullptr || bytes == 0 || bytes % kGranularity != 0 || flags != 0 ||
      (alignment & (alignment - 1)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The wanted address is a hint: taken where it is free.
  Region& region = call.driver.memory.region();
  std::uint64_t address = wanted;
  if (call.driver.options.no_hints || wanted == 0 || wanted % std::max<std::uint64_t>(alignment, kGranularity) != 0 ||
      !region.take_at(wanted, bytes)) {
    address = region.take(bytes, std::max<std::uint64_t>(alignment, kGranularity), true);
    if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    mprotect(at(address), bytes, PROT_NONE);
  }
  mappings().reserved[address] = bytes;
  *pointer = address;
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemAddressFree, kInit, (CUdeviceptr pointer, size_t bytes), (pointer, bytes)) {
  const auto found = mappings().reserved.find(pointer);
  if (found == mappings().reserved.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto inside = mappings().mapped.lower_bound(pointer);
  if (inside != mappings().mapped.end() && inside->first < pointer + bytes) return CUDA_ERROR_INVALID_VALUE;
  // Back to plain memory of the region.
  if (!plain(pointer, bytes, PROT_READ | PROT_WRITE)) return CUDA_ERROR_OPERATING_SYSTEM;
  call.driver.memory.region().give_back(pointer, bytes);
  mappings().reserved.erase(found);
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemCreate, kInit,
         (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp* prop,
          unsigned long long flags),
         (handle, bytes, prop, flags)) {
  if (handle == nullptr || bytes == 0 || bytes % kGranularity != 0 || flags != 0 || !is_known_place(prop)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return not_supported("memory that can be exported other than as a file");
  }
  if (!call.driver.memory.use(bytes)) {
    make_room();
    if (!call.driver.memory.use(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto physical = std::make_shared<Physical>();
  physical->bytes = bytes;
  physical->prop = *prop;
  if (prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE) {
    void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    physical->base = base;
  } else {
    physical->file = memfd_create("simcuda memory", MFD_CLOEXEC);
    if (physical->file < 0 || ftruncate(physical->file, static_cast<off_t>(bytes)) != 0)
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = mappings().next++;
  mappings().handles[*handle] = std::move(physical);
  return CUDA_SUCCESS;
}

// What is mapped stays until it is unmapped.
SIM_CALL(cuMemRelease, kInit, (CUmemGenericAllocationHandle handle), (handle)) {
  return mappings().handles.erase(handle) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_CALL(cuMemGetAllocationPropertiesFromHandle, kInit,
         (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle), (prop, handle)) {
  const auto found = mappings().handles.find(handle);
  if (prop == nullptr || found == mappings().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  *prop = found->second->prop;
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemRetainAllocationHandle, kInit, (CUmemGenericAllocationHandle * handle, void* pointer),
         (handle, pointer)) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(pointer);
  auto after = mappings().mapped.upper_bound(address);
  if (after == mappings().mapped.begin()) return CUDA_ERROR_INVALID_VALUE;
  --after;
  if (address >= after->first + after->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  *handle = mappings().next++;
  mappings().handles[*handle] = after->second.physical;
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemMap, kInit,
         (CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
          unsigned long long flags),
         (pointer, bytes, offset, handle, flags)) {
  const auto found = mappings().handles.find(handle);
  if (found == mappings().handles.end() || flags != 0 || bytes == 0 || offset != 0 || bytes > found->second->bytes ||
      bytes % kGranularity != 0 || pointer % kGranularity != 0 || !is_reserved(pointer, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto next = mappings().mapped.lower_bound(pointer);
  if (next != mappings().mapped.end() && next->first < pointer + bytes) return CUDA_ERROR_INVALID_VALUE;
  if (next != mappings().mapped.begin() && std::prev(next)->first + std::prev(next)->second.bytes > pointer) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Physical& physical = *found->second;
  // Of shared memory no bytes are moved: that maps it once more.
  if (physical.base != nullptr
          ? mremap(physical.base, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at(pointer)) == MAP_FAILED
          : mmap(at(pointer), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical.file, 0) == MAP_FAILED)
    return CUDA_ERROR_MAP_FAILED;
  mprotect(at(pointer), bytes, PROT_NONE);
  call.driver.tracking.map(pointer, pointer + bytes, found->second->name);
  mappings().mapped[pointer] = {bytes, found->second, handle, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  // Until access is given, the device may not touch it.
  Block* block = call.driver.memory.adopt(BlockKind::kMapped, pointer, bytes, current_context());
  block->live = false;
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemUnmap, kInit, (CUdeviceptr pointer, size_t bytes), (pointer, bytes)) {
  auto& mapped = mappings().mapped;
  const CUdeviceptr end = pointer + bytes;
  auto first = mapped.find(pointer);
  CUdeviceptr reached = pointer;
  for (auto one = first; one != mapped.end() && one->first == reached && reached < end; ++one) {
    reached = one->first + one->second.bytes;
  }
  if (first == mapped.end() || reached != end) return CUDA_ERROR_INVALID_VALUE;
  // Nobody waits here for what still uses it: that finds nothing there, and is an illegal access.
  call.driver.tracking.unmap(pointer, end);
  while (first != mapped.end() && first->first < end) {
    if (!plain(first->first, first->second.bytes, PROT_NONE)) return CUDA_ERROR_OPERATING_SYSTEM;
    if (Block* block = call.driver.memory.find(first->first); block != nullptr) call.driver.memory.release(block);
    first = mapped.erase(first);
  }
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemSetAccess, kInit, (CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* access, size_t count),
         (pointer, bytes, access, count)) {
  if (access == nullptr || count != 1 || access->location.id != 0) return CUDA_ERROR_INVALID_VALUE;
  // The host reaches all that there is here, whether it is given access or not.
  const bool is_for_device = access->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const CUdeviceptr end = pointer + bytes;
  auto first = mappings().mapped.find(pointer);
  CUdeviceptr reached = pointer;
  for (auto one = first; one != mappings().mapped.end() && one->first == reached && reached < end; ++one) {
    reached = one->first + one->second.bytes;
  }
  if (first == mappings().mapped.end() || reached != end) return CUDA_ERROR_INVALID_VALUE;
  if (!is_for_device) return CUDA_SUCCESS;
  const bool any = access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  const bool write = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (!write) catch_device_faults();
  mprotect(at(pointer), bytes, any ? PROT_READ | (write ? PROT_WRITE : 0) : PROT_NONE);
  for (auto one = first; one != mappings().mapped.end() && one->first < end; ++one) {
    one->second.access = access->flags;
    if (Block* block = call.driver.memory.find(one->first); block != nullptr) block->live = any;
  }
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemGetAccess, kInit, (unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer),
         (flags, location, pointer)) {
  if (flags == nullptr || location == nullptr || location->id != 0) return CUDA_ERROR_INVALID_VALUE;
  const Block* block = call.driver.memory.find_known(pointer);
  if (block != nullptr && block->kind != BlockKind::kMapped) {  // H200, 580.159
    *flags = 0;
    return CUDA_SUCCESS;
  }
  auto after = mappings().mapped.upper_bound(pointer);
  if (after == mappings().mapped.begin()) return CUDA_ERROR_INVALID_VALUE;
  --after;
  if (pointer >= after->first + after->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  *flags = after->second.access;
  return CUDA_SUCCESS;
}

// Memory of another process, or of this one, comes and goes as a file.
SIM_CALL(cuMemExportToShareableHandle, kInit,
         (void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags),
         (out, handle, type, flags)) {
  const auto found = mappings().handles.find(handle);
  if (out == nullptr || found == mappings().handles.end() || flags != 0 ||
      type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      found->second->prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int file = dup(found->second->file);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<int*>(out) = file;
  return CUDA_SUCCESS;
}

SIM_CALL(cuMemImportFromShareableHandle, kInit,
         (CUmemGenericAllocationHandle * handle, void* file, CUmemAllocationHandleType type), (handle, file, type)) {
  struct stat facts {};
  const int given = static_cast<int>(reinterpret_cast<std::intptr_t>(file));
  if (handle == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(given, &facts) != 0 ||
      facts.st_size == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto physical = std::make_shared<Physical>();
  physical->bytes = static_cast<std::uint64_t>(facts.st_size);
  physical->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  physical->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  physical->file = dup(given);
  if (physical->file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  *handle = mappings().next++;
  mappings().handles[*handle] = std::move(physical);
  return CUDA_SUCCESS;
}
