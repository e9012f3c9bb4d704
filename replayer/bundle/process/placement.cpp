#include "replayer/bundle/process/placement.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <iterator>

namespace nimble::bundle {

namespace {

constexpr std::uint64_t kPage = 4096;
constexpr const char* kTryAgain = "Try again: the system places processes anew each time";

bool is_hosts(MemoryKind memory) { return memory == MemoryKind::pinned || memory == MemoryKind::registered; }

void* at(std::uint64_t address) { return reinterpret_cast<void*>(address); }

CUmemAllocationProp device_memory(CUdevice device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  return prop;
}

}  // namespace

Placement::Placement(LiveDriver& driver, const Bundle& bundle) : driver_(driver) {
  const CUmemAllocationProp prop = device_memory(driver.device());
  std::size_t granularity = 0;
  LiveDriver::check(driver.cuMemGetAllocationGranularity_(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                    "for the granularity of memory");
  // By bytes and by pages: the rest of a page belongs to no object.
  Ranges objects[2], pages[2];
  for (const BundleObject& object : bundle.objects) {
    if (object.memory == MemoryKind::global) continue;
    if (object.memory == MemoryKind::external)
      throw Refused("the step touches memory shared with another process or another API, which is not here");
    const bool hosts = is_hosts(object.memory);
    const std::uint64_t unit = hosts ? kPage : granularity, end = object.address + object.size;
    add(objects[hosts], object.address, end);
    add(pages[hosts], object.address / unit * unit, (end + unit - 1) / unit * unit);
  }
  for (const auto& [begin, end] : pages[true]) host_bytes_ += end - begin;
  if (host_bytes_ > memory_of_machine()) throw Refused("there is no room for the step's host memory");
  try {
    for (const auto& [begin, end] : pages[false]) place_on_device(begin, end, granularity);
    for (const auto& [begin, end] : pages[true]) place_on_host(begin, end);
  } catch (...) {
    release();
    throw;
  }
  for (const bool hosts : {false, true})
    for (const auto& [begin, end] : objects[hosts]) {
      const auto& [first, block] = *std::prev((hosts ? host_ : device_).upper_bound(begin));
      places_[begin] = {end, block.here - first, hosts};
    }
}

Placement::~Placement() { release(); }

void Placement::release() {
  for (const auto& [begin, block] : host_) {
    driver_.cuMemHostUnregister_(at(block.here));
    ::munmap(at(block.here), block.end - begin);
  }
  for (const auto& [begin, block] : device_) {
    const std::uint64_t bytes = block.end - begin;
    if (block.mapped) driver_.cuMemUnmap_(block.here, bytes);
    if (block.handle) driver_.cuMemRelease_(block.handle);
    driver_.cuMemAddressFree_(block.here, bytes);
  }
  host_.clear();
  device_.clear();
}

void Placement::add(Ranges& ranges, std::uint64_t begin, std::uint64_t end) {
  auto next = ranges.lower_bound(begin);
  if (next != ranges.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
    if (next->second > end) end = next->second;
    next = ranges.erase(next);
  }
  while (next != ranges.end() && next->first <= end) {
    if (next->second > end) end = next->second;
    next = ranges.erase(next);
  }
  ranges[begin] = end;
}

void Placement::place_on_device(std::uint64_t begin, std::uint64_t end, std::uint64_t granularity) {
  const std::uint64_t bytes = end - begin;
  CUdeviceptr here = 0;
  if (driver_.cuMemAddressReserve_(&here, bytes, granularity, begin, 0) != CUDA_SUCCESS)
    throw Refused("the driver has no addresses for the step's memory: " + std::to_string(bytes >> 20) + " MiB");
  Block& block = device_[begin];
  block.end = end;
  block.here = here;
  const CUmemAllocationProp prop = device_memory(driver_.device());
  if (driver_.cuMemCreate_(&block.handle, bytes, &prop, 0) != CUDA_SUCCESS) {
    block.handle = 0;
    throw Refused("the device has no room for the step's memory: " + std::to_string(bytes >> 20) + " MiB");
  }
  LiveDriver::check(driver_.cuMemMap_(here, bytes, 0, block.handle, 0), "when memory is mapped");
  block.mapped = true;
  CUmemAccessDesc access{};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  LiveDriver::check(driver_.cuMemSetAccess_(here, bytes, &access, 1), "when memory is mapped");
  any_moved_ = any_moved_ || here != begin;
  device_bytes_ += bytes;
}

void Placement::place_on_host(std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t bytes = end - begin;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  // Root may map what null points to, if a damaged bundle asks for it.
  void* memory = MAP_FAILED;
  if (begin != 0) memory = ::mmap(at(begin), bytes, PROT_READ | PROT_WRITE, kFlags | MAP_FIXED_NOREPLACE, -1, 0);
  if (memory == MAP_FAILED) memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (memory == MAP_FAILED)
    throw Refused("there is no room for the step's host memory: " + std::string(std::strerror(errno)));
  const CUresult result =
      driver_.cuMemHostRegister_(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  if (result != CUDA_SUCCESS) {
    ::munmap(memory, bytes);
    LiveDriver::check(result, "when host memory is registered");
  }
  Block& block = host_[begin];
  block.end = end;
  block.here = reinterpret_cast<std::uint64_t>(memory);
  any_moved_ = any_moved_ || block.here != begin;
}

void Placement::add_globals(const Bundle& bundle, const std::vector<CUmodule>& modules) {
  for (const BundleObject& object : bundle.objects) {
    if (object.memory != MemoryKind::global) continue;
    CUdeviceptr here = 0;
    std::size_t bytes = 0;
    LiveDriver::check(driver_.cuModuleGetGlobal_(&here, &bytes, modules[object.image], object.global.c_str()),
                      ("for the variable " + object.global).c_str());
    if (bytes != object.size)
      throw Refused("the variable " + object.global + " has " + std::to_string(bytes) + " bytes, and not " +
                    std::to_string(object.size));
    const std::uint64_t end = object.address + object.size;
    const auto next = places_.lower_bound(end);
    if (next != places_.begin() && std::prev(next)->second.end > object.address)
      throw Refused("the variable " + object.global + " was recorded within other memory");
    places_[object.address] = {end, here - object.address, false};
    any_moved_ = any_moved_ || here != object.address;
  }
}

const Placement::Place* Placement::place_of(std::uint64_t address, std::uint64_t bytes) const {
  const auto after = places_.upper_bound(address);
  if (after == places_.begin()) return nullptr;
  const Place& place = std::prev(after)->second;
  return address < place.end && bytes <= place.end - address ? &place : nullptr;
}

const Placement::Place* Placement::place_ending_at(std::uint64_t address) const {
  const auto after = places_.lower_bound(address);
  if (after == places_.begin()) return nullptr;
  const Place& place = std::prev(after)->second;
  return address == place.end ? &place : nullptr;
}

bool Placement::in_moved_block(std::uint64_t address) const {
  for (const Blocks* const blocks : {&device_, &host_}) {
    const auto after = blocks->upper_bound(address);
    if (after == blocks->begin()) continue;
    const auto& [begin, block] = *std::prev(after);
    if (address < block.end && block.here != begin) return true;
  }
  return false;
}

bool Placement::on_host(std::uint64_t address, std::uint64_t bytes) const {
  const Place* const place = place_of(address, bytes);
  return place && place->host;
}

std::uint64_t Placement::here(std::uint64_t address) const {
  const Place* const place = place_of(address, 1);
  return place ? address + place->shift : address;
}

std::uint64_t Placement::word_here(std::uint64_t word) const {
  const Place *const place = place_of(word, 1), *const before = place_ending_at(word);
  if (place && before && place->shift != before->shift)
    throw Refused(
        "a kernel parameter may be the end of one object or the begin of another, and these are not adjacent here. " +
        std::string(kTryAgain));
  if (place || before) return word + (place ? place : before)->shift;
  if (in_moved_block(word))
    throw Refused(
        "a kernel parameter is an address beside the step's memory, which cannot lie at its recorded address. " +
        std::string(kTryAgain));
  return word;
}

bool Placement::leads_to(std::uint64_t address, std::uint64_t here) const {
  const Place *const place = place_of(address, 1), *const before = place_ending_at(address);
  return (place && address + place->shift == here) || (before && address + before->shift == here);
}

bool Placement::moved(std::uint64_t word) const {
  const Place *const place = place_of(word, 1), *const before = place_ending_at(word);
  if (place || before) return (place && place->shift != 0) || (before && before->shift != 0);
  return in_moved_block(word);
}

}  // namespace nimble::bundle
