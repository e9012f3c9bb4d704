#include "shim/state/code/function_table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <tuple>

#include "shim/driver/real_driver.h"

namespace nimble::shim {

namespace {

// The driver's queries about code. Not in the call table: programs may call them too, without consequences.
constinit DriverFunction<decltype(&::cuFuncGetName)> g_function_name("cuFuncGetName");
constinit DriverFunction<decltype(&::cuKernelGetName)> g_kernel_name("cuKernelGetName");
constinit DriverFunction<decltype(&::cuKernelGetFunction)> g_function_of_kernel("cuKernelGetFunction");
constinit DriverFunction<decltype(&::cuFuncGetParamInfo)> g_function_param("cuFuncGetParamInfo");
constinit DriverFunction<decltype(&::cuKernelGetParamInfo)> g_kernel_param("cuKernelGetParamInfo");
constinit DriverFunction<decltype(&::cuModuleGetFunctionCount)> g_function_count("cuModuleGetFunctionCount");
constinit DriverFunction<decltype(&::cuLibraryGetKernelCount)> g_kernel_count("cuLibraryGetKernelCount");
constinit DriverFunction<decltype(&::cuModuleGetGlobal_v2)> g_module_global("cuModuleGetGlobal_v2");
constinit DriverFunction<decltype(&::cuLibraryGetGlobal)> g_library_global("cuLibraryGetGlobal");
constinit DriverFunction<decltype(&::cuDeviceGetCount)> g_device_count("cuDeviceGetCount");
constinit DriverFunction<decltype(&::cuDeviceGetAttribute)> g_device_attribute("cuDeviceGetAttribute");

// Finds where a variable lies; false if the driver does not say.
bool find_global(const void* image, bool of_library, ProvenGlobal& global) {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  if (of_library) {
    // A library's variable has an instance per context, but what we know of a kernel holds for all contexts.
    int devices = 0;
    const auto count = g_device_count.get();
    const auto ask = g_library_global.get();
    if (!ask || !count || count(&devices) != CUDA_SUCCESS || devices != 1) return false;
    const auto library = reinterpret_cast<CUlibrary>(const_cast<void*>(image));
    if (ask(&address, &bytes, library, global.name.c_str()) != CUDA_SUCCESS) return false;
  } else {
    const auto ask = g_module_global.get();
    const auto module = reinterpret_cast<CUmodule>(const_cast<void*>(image));
    if (!ask || ask(&address, &bytes, module, global.name.c_str()) != CUDA_SUCCESS) return false;
  }
  global.address = address;
  global.bytes = bytes;
  return address != 0 && bytes != 0;
}

// The parameters' layout, or nothing if the driver is too old (before 12.4) or refuses.
template <class Query, class Handle>
std::optional<std::vector<ParamLayout>> layout_of(Query query, Handle handle) {
  if (!query) return std::nullopt;
  constexpr std::size_t kMostParams = 4096;  // parameters are at most 32 KiB, a byte each
  std::vector<ParamLayout> params;
  for (std::size_t i = 0; i < kMostParams; ++i) {
    std::size_t offset = 0, size = 0;
    const CUresult result = query(handle, i, &offset, &size);
    if (result == CUDA_ERROR_INVALID_VALUE) return params;  // one past the last
    if (result != CUDA_SUCCESS) return std::nullopt;
    params.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(size)});
  }
  return std::nullopt;
}

std::vector<unsigned> ask_architectures() {
  std::vector<unsigned> list;
  const auto count = g_device_count.get();
  const auto attribute = g_device_attribute.get();
  int devices = 0;
  if (!count || !attribute || count(&devices) != CUDA_SUCCESS) return list;
  for (CUdevice device = 0; device < devices; ++device) {
    int major = 0, minor = 0;
    if (attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) != CUDA_SUCCESS ||
        attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device) != CUDA_SUCCESS)
      return {};  // no answer can hold on all devices
    const auto arch = static_cast<unsigned>(10 * major + minor);
    if (std::find(list.begin(), list.end(), arch) == list.end()) list.push_back(arch);
  }
  return list;
}

// Whether we know the same of two kernels.
bool same(const FunctionInfo& a, const FunctionInfo& b) {
  const auto of = [](const FunctionInfo& one) {
    return std::tie(one.name, one.image, one.is_kernel_handle, one.params, one.param_bytes, one.self_contained,
                    one.constants, one.why, one.why_not_proven, one.follows_memory, one.code);
  };
  const auto of_proof = [](const KernelProof& one) {
    return std::tie(one.accesses, one.globals, one.stored, one.extents, one.same_code);
  };
  return of(a) == of(b) && a.proof.has_value() == b.proof.has_value() &&
         (!a.proof || of_proof(*a.proof) == of_proof(*b.proof));
}

// If memory runs out, the record is lost, and the same code gets a new one when it is loaded again.
template <class Key, class Info>
void keep_spare(std::unordered_multimap<Key, const Info*>& spares, const Key& key, const Info* info) noexcept try {
  spares.emplace(key, info);
} catch (const std::bad_alloc&) {
}

// The compute capabilities of the devices, as 90 for 9.0. Asks the driver once, without a lock.
const std::vector<unsigned>& architectures() {
  static std::atomic<const std::vector<unsigned>*> known{nullptr};
  if (const auto* list = known.load(std::memory_order_acquire)) return *list;
  const auto* mine = new std::vector<unsigned>(ask_architectures());
  const std::vector<unsigned>* first = nullptr;
  if (known.compare_exchange_strong(first, mine, std::memory_order_acq_rel)) return *mine;
  delete mine;
  return *first;
}

}  // namespace

FunctionTable& functions() {
  static auto* table = new FunctionTable;  // never destroyed: threads may launch while the process ends
  return *table;
}

void FunctionTable::loaded(const void* handle, LoadedImage image, CUcontext context) {
  std::lock_guard lock(mutex_);
  if (images_.contains(handle)) drop(handle);
  const ImageInfo* info = nullptr;
  const auto [first, last] = spare_images_.equal_range(image.fingerprint);
  const auto spare_one = std::find_if(first, last, [&](const auto& spare) {
    return spare.second->self_contained == image.facts.self_contained && spare.second->why == image.facts.why;
  });
  if (spare_one != last) {
    info = spare_one->second;
    spare_images_.erase(spare_one);
  } else {
    auto made = std::make_unique<ImageInfo>();
    made->self_contained = image.facts.self_contained;
    made->why = image.facts.why;
    info = made.get();
    image_records_.push_back(std::move(made));
  }
  code_[info] = std::move(image);
  images_[handle] = info;
  if (context) loaded_in_[handle] = context;
}

void FunctionTable::same_image(const void* module, const void* library) {
  std::lock_guard lock(mutex_);
  if (const auto found = images_.find(library); found != images_.end()) images_[module] = found->second;
}

const ImageInfo* FunctionTable::unloading(const void* handle) {
  std::lock_guard lock(mutex_);
  const auto found = images_.find(handle);
  const ImageInfo* const image = found == images_.end() ? nullptr : found->second;
  drop(handle);
  return image;
}

void FunctionTable::context_ended(CUcontext context) {
  if (!context) return;
  std::lock_guard lock(mutex_);
  std::vector<const void*> gone;
  for (const auto& [handle, in] : loaded_in_)
    if (in == context) gone.push_back(handle);
  for (const void* handle : gone) drop(handle);
}

void FunctionTable::described_no_more(const void* handle) {
  const auto found = described_.find(handle);
  if (found == described_.end()) return;
  const FunctionInfo* const info = found->second;
  described_.erase(found);
  keep_spare(spare_functions_, info->name, info);
}

void FunctionTable::drop(const void* handle) {
  loaded_in_.erase(handle);
  const auto found = images_.find(handle);
  const ImageInfo* image = found == images_.end() ? nullptr : found->second;
  // A library's module goes with it, and so do the functions of both.
  std::erase_if(origins_, [&](const auto& entry) {
    const auto owner = images_.find(entry.second.image);
    const bool goes = !entry.second.image || entry.second.image == handle ||
                      (image && owner != images_.end() && owner->second == image);
    if (goes) described_no_more(entry.first);
    return goes;
  });
  if (image) std::erase_if(images_, [&](const auto& entry) { return entry.second == image; });
  if (const auto code = code_.find(image); code != code_.end()) {
    const std::uint64_t fingerprint = code->second.fingerprint;
    code_.erase(code);
    if (fingerprint != 0) keep_spare(spare_images_, fingerprint, image);
  }
  if (const auto of_it = globals_of_.find(handle); of_it != globals_of_.end()) {
    for (const std::uint64_t address : of_it->second) {
      const auto global = globals_.find(address);
      if (global != globals_.end() && global->second.image == image) globals_.erase(global);
    }
    globals_of_.erase(of_it);
  }
  generation_.fetch_add(1, std::memory_order_release);
}

void FunctionTable::remember(const void* handle, const Origin& origin) {
  std::lock_guard lock(mutex_);
  place(handle, origin);
}

void FunctionTable::place(const void* handle, const Origin& origin) {
  origins_[handle] = origin;
  const auto known = described_.find(handle);
  if (known == described_.end()) return;
  const auto image = images_.find(origin.image);
  if (known->second->image == (image == images_.end() ? nullptr : image->second) &&
      known->second->is_kernel_handle == origin.is_kernel_handle)
    return;
  described_no_more(handle);
  generation_.fetch_add(1, std::memory_order_release);
}

void FunctionTable::enumerated(const CUfunction* list, unsigned count, CUmodule module) {
  unsigned there = 0;
  const auto ask = g_function_count.get();
  if (!ask || ask(&there, module) != CUDA_SUCCESS) return;
  for (unsigned i = 0; i < std::min(count, there); ++i) got(list[i], module);
}

void FunctionTable::enumerated(const CUkernel* list, unsigned count, CUlibrary library) {
  unsigned there = 0;
  const auto ask = g_kernel_count.get();
  if (!ask || ask(&there, library) != CUDA_SUCCESS) return;
  for (unsigned i = 0; i < std::min(count, there); ++i) got(list[i], library);
}

void FunctionTable::same_function(CUfunction function, CUkernel kernel) {
  std::lock_guard lock(mutex_);
  const auto found = origins_.find(kernel);
  Origin origin = found == origins_.end() ? Origin{} : found->second;
  origin.is_kernel_handle = false;
  place(function, origin);
}

bool FunctionTable::first_sight_of_global(std::uint64_t address, const void* image, const char* name) {
  std::lock_guard lock(mutex_);
  const auto found = images_.find(image);
  const GlobalName global{name ? name : "", found == images_.end() ? nullptr : found->second};
  const auto [known, is_new] = globals_.try_emplace(address, global);
  if (!is_new && known->second.image == global.image && known->second.name == global.name) return false;
  known->second = global;
  globals_of_[image].push_back(address);
  return true;
}

GlobalName FunctionTable::global_at(std::uint64_t address) {
  std::shared_lock lock(mutex_);
  const auto found = globals_.find(address);
  return found == globals_.end() ? GlobalName{} : found->second;
}

std::string FunctionTable::image_bytes(const ImageInfo* image) {
  code::Image::Source source;
  {
    std::shared_lock lock(mutex_);
    const auto found = code_.find(image);
    if (found != code_.end()) source = found->second.source;
  }
  return source ? source().value_or(std::string()) : std::string();
}

const FunctionInfo& FunctionTable::look_up(CUfunction handle) {
  {
    const std::shared_lock lock(mutex_);
    if (const auto found = described_.find(handle); found != described_.end()) return *found->second;
  }
  return describe(handle);
}

void FunctionTable::read_code(FunctionInfo& info, const LoadedImage* image, const Origin& origin) {
  if (!image) {
    info.why = info.why_not_proven = "its image is unknown";
    return;
  }
  info.self_contained = image->facts.self_contained;
  info.why = image->facts.why;
  info.code = image->digest;
  if (!image->code) {
    info.why_not_proven = info.why.empty() ? "its image holds no PTX" : info.why;
    return;
  }
  const code::KernelFacts facts = image->code->kernel(info.name, architectures());
  if (info.code == 0) info.code = facts.image_digest;
  if (image->by_kernel) {
    info.self_contained = facts.self_contained;
    info.constants = facts.constants;
    info.why = facts.why;
  }
  info.why_not_proven = facts.why_not_proven;
  info.follows_memory = facts.follows_memory;
  if (!facts.accesses) return;
  // The driver's layout and the PTX's must be the same, since we use the words of one for the other.
  const auto same = [](const ParamLayout& a, const std::pair<std::uint32_t, std::uint32_t>& b) {
    return a.offset == b.first && a.size == b.second;
  };
  if (!info.params ||
      !std::equal(info.params->begin(), info.params->end(), facts.params.begin(), facts.params.end(), same)) {
    info.why_not_proven = "its PTX and the driver disagree on its parameters";
    return;
  }
  std::vector<ProvenGlobal> globals;
  for (const code::PtxGlobal& used : facts.globals) {
    ProvenGlobal& global = globals.emplace_back(ProvenGlobal{used.name, 0, 0, used.reads, used.writes});
    if (find_global(origin.image, origin.of_library, global)) continue;
    info.why_not_proven = "the address of its variable " + used.name + " is not known";
    return;
  }
  KernelProof& proof = info.proof.emplace();
  proof.globals = std::move(globals);
  proof.same_code = facts.origin == code::Origin::same;
  proof.stored = facts.stored;
  proof.extents = facts.extents;
  for (const code::PtxAccess& access : *facts.accesses) {
    ProvenAccess& mine = proof.accesses.emplace_back(ProvenAccess{access.at, access.reads, access.writes});
    for (const code::PtxCondition& each : access.when)
      mine.when.push_back({each.at, each.bytes, each.equal, each.value});
  }
}

// The driver may name a launched kernel by a function that the program never looked up, as in a captured graph's node.
void FunctionTable::look_among_kernels(CUfunction handle) {
  const auto ask = g_function_of_kernel.get();
  std::vector<CUkernel> kernels;
  {
    std::shared_lock lock(mutex_);
    if (!ask || origins_.contains(handle)) return;
    for (const auto& [launched, info] : described_)
      if (info->is_kernel_handle && info->image)
        kernels.push_back(reinterpret_cast<CUkernel>(const_cast<void*>(launched)));
  }
  for (const CUkernel kernel : kernels) {
    CUfunction function = nullptr;
    if (ask(&function, kernel) == CUDA_SUCCESS && function == handle) return same_function(function, kernel);
  }
}

const FunctionInfo& FunctionTable::describe(CUfunction handle) {
  look_among_kernels(handle);
  Origin origin;
  bool known = false;
  std::optional<LoadedImage> code;
  {
    std::shared_lock lock(mutex_);
    if (const auto found = origins_.find(handle); found != origins_.end()) {
      origin = found->second;
      known = true;
    }
    const auto image = images_.find(origin.image);
    if (known && image != images_.end()) code = code_.at(image->second);
  }
  auto info = std::make_unique<FunctionInfo>();
  const auto kernel = reinterpret_cast<CUkernel>(handle);
  const char* name = nullptr;
  // The runtime passes a CUkernel where a CUfunction is asked for. Where we did not see it handed out, try both.
  const auto as_function = [&] {
    const auto ask = g_function_name.get();
    if (!ask || ask(&name, handle) != CUDA_SUCCESS || !name) return false;
    info->params = layout_of(g_function_param.get(), handle);
    return true;
  };
  const auto as_kernel = [&] {
    const auto ask = g_kernel_name.get();
    if (!ask || ask(&name, kernel) != CUDA_SUCCESS || !name) return false;
    info->params = layout_of(g_kernel_param.get(), kernel);
    info->is_kernel_handle = true;
    return true;
  };
  const bool named = known ? (origin.is_kernel_handle ? as_kernel() : as_function()) : (as_function() || as_kernel());
  info->name = named ? name : "?";
  if (!named) info->is_kernel_handle = origin.is_kernel_handle;
  if (info->params) {
    for (const ParamLayout& param : *info->params)
      info->param_bytes = std::max(info->param_bytes, param.offset + param.size);
  }
  read_code(*info, named && code ? &*code : nullptr, origin);
  std::lock_guard lock(mutex_);
  if (const auto found = described_.find(handle); found != described_.end()) return *found->second;
  if (const auto image = images_.find(origin.image); image != images_.end()) info->image = image->second;
  // Functions of unknown origin must be dropped with their image, too: file them under no image, which any unload
  // drops.
  if (!known) origins_[handle] = {nullptr, info->is_kernel_handle, false};
  const auto [first, last] = spare_functions_.equal_range(info->name);
  if (const auto before = std::find_if(first, last, [&](const auto& spare) { return same(*spare.second, *info); });
      before != last) {
    const FunctionInfo* const again = before->second;
    spare_functions_.erase(before);
    return *(described_[handle] = again);
  }
  described_[handle] = info.get();
  function_records_.push_back(std::move(info));
  return *function_records_.back();
}

}  // namespace nimble::shim
