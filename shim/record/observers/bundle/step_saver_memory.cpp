// The memory that a StepSaver reads: all live memory, and host sources and destinations of copies.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include "replayer/driver/result_name.h"
#include "shim/process/host_memory.h"
#include "shim/record/observers/bundle/step_saver.h"

namespace nimble::shim {

namespace {

bool is_hosts(MemoryKind memory) { return memory == MemoryKind::pinned || memory == MemoryKind::registered; }

// From its first byte to its last; nothing if it would wrap around the address space.
std::optional<std::uint64_t> extent_of(const Region& region, const Call& call) {
  if (call.transfer.height == 0 || call.transfer.width == 0) return 0;
  std::uint64_t extent = 0;
  if (__builtin_mul_overflow(call.transfer.height - 1, call.transfer.height > 1 ? region.pitch : 0, &extent) ||
      __builtin_add_overflow(extent, call.transfer.width, &extent) || region.address + extent < extent)
    return std::nullopt;
  return extent;
}

constexpr std::uint64_t kPortion = std::uint64_t{1} << 20;
static_assert(kPortion % kBundlePiece == 0);

}  // namespace

bool StepSaver::settle_all(const Call& call) {
  const RelaxedCaptures relaxed(context_);
  for (const auto& [key, stream] : streams_) {
    // We cannot name another thread's per-thread default stream; its ops would end the window anyway.
    if (stream.is_per_thread() && key != call.stream.key) continue;
    switch (reader_.settle(stream.handle)) {
      case DeviceReader::Outcome::done:
        continue;
      case DeviceReader::Outcome::late:
        give_up("work on a stream did not end: it runs for longer than " +
                std::to_string(kCapturePatience.count() / 1000) + " s, or waits for something not yet launched");
        return false;
      case DeviceReader::Outcome::failed:
        refuse("the driver returns " + result_name(reader_.error()) + " for a stream, as for one of another device");
        return false;
    }
  }
  return true;
}

bool StepSaver::readable(const BundleObject& object, std::string& why) const {
  if (object.memory == MemoryKind::external) why = "another process or another API reaches it, too";
  if (object.memory != MemoryKind::mapped) return why.empty();
  // Reading memory that the device may not reach would put an error into the program's context.
  const auto device = reinterpret_cast<decltype(&::cuCtxGetDevice)>(context_.driver_symbol("cuCtxGetDevice"));
  const auto access = reinterpret_cast<decltype(&::cuMemGetAccess)>(context_.driver_symbol("cuMemGetAccess"));
  CUdevice number = 0;
  unsigned long long flags = 0;
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  if (device && access && device(&number) == CUDA_SUCCESS) {
    location.id = number;
    if (access(&flags, &location, object.address) == CUDA_SUCCESS && flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return true;
  }
  why = "a mapping that the device may not read and write, or memory of a graph";
  return false;
}

// Notes which objects the bytes may point to. Addresses lie at multiples of 8, as every portion does.
void StepSaver::scan(Object& object, std::span<const std::uint8_t> bytes) {
  if (live_.empty()) return;
  const std::uint64_t low = live_.begin()->first, high = live_.rbegin()->first + live_.rbegin()->second.size;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    if (word - low >= high - low) continue;
    const auto found = find(word);
    if (found == live_.end()) continue;
    if (found->second.object != kNone) object.leads_to.insert(found->second.object);
  }
}

// Reads host memory, which may not exist: the driver has not checked the call yet, or the program has unmapped it. The
// objects that it points to go to `leads`, if given. Returns why it could not be read.
std::string StepSaver::read_host(std::uint64_t address, std::uint64_t size, Object* leads,
                                 ContentStore::Writer& writer) {
  std::vector<std::uint8_t> buffer(std::min(size, kPortion));
  for (std::uint64_t at = 0; at < size; at += buffer.size()) {
    const std::span bytes(buffer.data(), std::min<std::uint64_t>(buffer.size(), size - at));
    if (!read_host_memory(address + at, bytes))
      return std::string("the host's memory cannot be read: ") + std::strerror(errno);
    if (leads) scan(*leads, bytes);
    writer.add(bytes);
  }
  writer.finish();
  return {};
}

void StepSaver::read(Object& object, CUstream stream, BundleContent& content) {
  ContentStore::Writer writer(window_->store, content);
  if (is_hosts(object.facts.memory)) {
    if (const std::string why = read_host(object.facts.address, object.facts.size, &object, writer); !why.empty())
      object.unreadable = why;
    return;
  }
  const DeviceReader::Piece piece{object.facts.address, object.facts.size};
  const auto outcome = reader_.read(stream, {&piece, 1}, [&](std::size_t, std::span<const std::uint8_t> bytes) {
    scan(object, bytes);
    writer.add(bytes);
  });
  writer.finish();
  if (outcome != DeviceReader::Outcome::done)
    object.unreadable = "the driver returns " + result_name(reader_.error()) + " when it is read";
}

void StepSaver::read_all(const Call& call, std::optional<BundleContent> BundleObject::*which) try {
  const RelaxedCaptures relaxed(context_);
  for (const auto& [base, live] : live_) {
    if (live.object == kNone) continue;
    Object& object = window_->objects[live.object];
    BundleContent content;
    if (readable(object.facts, object.unreadable)) read(object, call.stream.handle, content);
    object.facts.*which = std::move(content);
  }
} catch (const ContentLimit& limit) {
  give_up(std::string("all live memory, whether the step reaches it or not, takes ") + limit.what());
}

bool StepSaver::is_host_memory(std::uint64_t address) const {
  const auto ask =
      reinterpret_cast<decltype(&::cuPointerGetAttribute)>(context_.driver_symbol("cuPointerGetAttribute"));
  unsigned type = 0;
  if (!ask) return false;
  const CUresult result = ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  return result == CUDA_ERROR_INVALID_VALUE || (result == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST);
}

// Whether live memory covers all of it. Mappings may be adjacent.
bool StepSaver::covers(std::uint64_t address, std::uint64_t size) {
  for (std::uint64_t done = 0; done < size;) {
    const auto found = find(address + done);
    if (found == live_.end()) return false;
    done = found->first + found->second.size - address;
  }
  return true;
}

// A copy takes its host source as it is when the program calls. The driver has not accepted the call yet: it may refuse
// it for what looks wrong here, and then it is not part of the step.
void StepSaver::take_source(const Call& call) {
  const auto found = find(call.transfer.src.address);
  if (found != live_.end() && !is_hosts(found->second.memory)) return;
  if (found == live_.end() && !call.transfer.host_source && !is_host_memory(call.transfer.src.address))
    return refuse(std::string(call.symbol) + " reads memory that the recorder does not know");
  const auto bytes = extent_of(call.transfer.src, call), reach = extent_of(call.transfer.dst, call);
  const bool known = find(call.transfer.dst.address) != live_.end();
  if (!bytes || !reach || (known && !covers(call.transfer.dst.address, *reach)))
    return refuse(std::string(call.symbol) + " goes beyond the memory that it names", Refusal::this_time);
  if (*bytes == 0) return;
  BundlePayload payload;
  payload.op = static_cast<std::uint32_t>(window_->images.size());
  payload.address = call.transfer.src.address;
  payload.bytes = *bytes;
  Object leads;
  try {
    ContentStore::Writer writer(window_->store, payload.content);
    if (const std::string why = read_host(payload.address, payload.bytes, &leads, writer); !why.empty())
      return refuse(std::string(call.symbol) + ": " + why, Refusal::this_time);
  } catch (const ContentLimit& limit) {
    return give_up(std::string("what the step copies from the host takes ") + limit.what());
  }
  for (const std::uint32_t object : leads.leads_to) window_->objects[object].touched = true;
  window_->bundle.sources.push_back(std::move(payload));
}

// A copy to pageable host memory is over when the call returns.
void StepSaver::take_result(const Call& call) {
  if (find(call.transfer.dst.address) != live_.end()) return;
  if (!is_host_memory(call.transfer.dst.address))
    return refuse(std::string(call.symbol) + " writes memory that the recorder does not know");
  const auto bytes = extent_of(call.transfer.dst, call);
  if (!bytes) return refuse(std::string(call.symbol) + " goes beyond the memory that it names");
  if (*bytes == 0) return;
  BundlePayload payload;
  payload.op = static_cast<std::uint32_t>(window_->images.size());
  payload.address = call.transfer.dst.address;
  payload.bytes = *bytes;
  try {
    ContentStore::Writer writer(window_->store, payload.content);
    if (const std::string why = read_host(payload.address, payload.bytes, nullptr, writer); !why.empty())
      return refuse(std::string(call.symbol) + ": " + why);
  } catch (const ContentLimit& limit) {
    return give_up(std::string("what the step copies to the host takes ") + limit.what());
  }
  window_->bundle.results.push_back(std::move(payload));
}

}  // namespace nimble::shim
