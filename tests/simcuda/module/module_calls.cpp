// Modules, libraries, functions and kernels as the API shows them. A function belongs to a module of one context; a
// kernel to a library, in whatever context it is launched.
#include <cstring>

#include "tests/simcuda/driver/entry.h"
#include "tests/simcuda/memory/copy.h"

using namespace simcuda;

namespace {

CUresult load_module(Call& call, CUmodule* module, const void* bytes) {
  if (module == nullptr || bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  std::shared_ptr<LoadedImage> image = LoadedImage::load(bytes, call.context, error);
  if (image == nullptr) return error;
  *module = call.driver.modules.make();
  (*module)->image = std::move(image);
  (*module)->context = call.context;
  call.context->modules.push_back(*module);
  return CUDA_SUCCESS;
}

CUresult load_library(Call& call, CUlibrary* library, const void* bytes) {
  if (library == nullptr || bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult error = CUDA_SUCCESS;
  std::shared_ptr<LoadedImage> image = LoadedImage::load(bytes, current_context(), error);
  if (image == nullptr) return error;
  *library = call.driver.libraries.make();
  (*library)->image = std::move(image);
  return CUDA_SUCCESS;
}

CUresult global(const LoadedImage& image, CUdeviceptr* pointer, std::size_t* bytes, const char* name, bool managed) {
  if (name == nullptr || (pointer == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const auto found = image.globals.find(name);
  if (found == image.globals.end() || (managed && !found->second.managed)) return CUDA_ERROR_NOT_FOUND;
  if (pointer != nullptr) *pointer = found->second.address;
  if (bytes != nullptr) *bytes = found->second.bytes;
  return CUDA_SUCCESS;
}

CUresult parameter(const KernelCode& code, std::size_t index, std::size_t* offset, std::size_t* size) {
  if (offset == nullptr || index >= code.kernel.param_count) return CUDA_ERROR_INVALID_VALUE;
  *offset = code.kernel.params[index].offset;
  if (size != nullptr) *size = code.kernel.params[index].size;
  return CUDA_SUCCESS;
}

// What a compiler would have said of a small kernel.
CUresult attribute(const std::map<int, int>& set, int id, int* value) {
  if (value == nullptr || id < 0 || id >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (const auto found = set.find(id); found != set.end()) {
    *value = found->second;
    return CUDA_SUCCESS;
  }
  static const auto& defaults = *new std::map<int, int>{{CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
                                                        {CU_FUNC_ATTRIBUTE_NUM_REGS, 32},
                                                        {CU_FUNC_ATTRIBUTE_PTX_VERSION, 90},
                                                        {CU_FUNC_ATTRIBUTE_BINARY_VERSION, 90},
                                                        {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 49152},
                                                        {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1}};
  const auto given = defaults.find(id);
  *value = given != defaults.end() ? given->second : 0;
  return CUDA_SUCCESS;
}

CUresult set_attribute(std::map<int, int>& set, int id, int value) {
  switch (id) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > 232448) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  set[id] = value;
  return CUDA_SUCCESS;
}

}  // namespace

// --- Modules ---

SIM_CALL(cuModuleLoadData, kContext, (CUmodule * module, const void* image), (module, image)) {
  return load_module(call, module, image);
}
SIM_CALL(cuModuleLoadDataEx, kContext,
         (CUmodule * module, const void* image, unsigned count, CUjit_option* options, void** values),
         (module, image, count, options, values)) {
  return load_module(call, module, image);  // nothing is compiled, so there is nothing to choose
}
SIM_ALIAS(cuModuleLoadFatBinary, cuModuleLoadData, kContext, (CUmodule * module, const void* image), (module, image))

SIM_CALL(cuModuleLoad, kContext, (CUmodule * module, const char* path), (module, path)) {
  if (module == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<char> bytes = read_image_file(path);
  return bytes.empty() ? CUDA_ERROR_FILE_NOT_FOUND : load_module(call, module, bytes.data());
}

SIM_CALL(cuModuleUnload, kContext, (CUmodule module), (module)) {
  if (!valid(module)) return CUDA_ERROR_INVALID_HANDLE;
  if (module->library != nullptr) return CUDA_ERROR_NOT_PERMITTED;
  if (const CUresult error = forbid_while_capturing(call)) return error;
  unload_module(module);
  return call.context->fault;
}

SIM_CALL(cuModuleGetFunction, kContext, (CUfunction * function, CUmodule module, const char* name),
         (function, module, name)) {
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(module)) return CUDA_ERROR_INVALID_HANDLE;
  const KernelCode* code = module->image->find(name);
  if (code == nullptr) return CUDA_ERROR_NOT_FOUND;
  *function = function_of(module, code);
  return CUDA_SUCCESS;
}

SIM_CALL(cuModuleGetFunctionCount, kContext, (unsigned* count, CUmodule module), (count, module)) {
  if (!valid(module)) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->image->kernels.size());
  return CUDA_SUCCESS;
}

SIM_CALL(cuModuleEnumerateFunctions, kContext, (CUfunction * functions, unsigned count, CUmodule module),
         (functions, count, module)) {
  if (!valid(module)) return CUDA_ERROR_INVALID_HANDLE;
  if (functions == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto& kernels = module->image->kernels;
  for (unsigned i = 0; i < count && i < kernels.size(); ++i) functions[i] = function_of(module, &kernels[i]);
  return CUDA_SUCCESS;
}

SIM_CALL(cuModuleGetGlobal_v2, kContext, (CUdeviceptr * pointer, size_t* bytes, CUmodule module, const char* name),
         (pointer, bytes, module, name)) {
  if (!valid(module)) return CUDA_ERROR_INVALID_HANDLE;
  return global(*module->image, pointer, bytes, name, false);
}

SIM_CALL(cuModuleGetLoadingMode, kInit, (CUmoduleLoadingMode * mode), (mode)) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_EAGER_LOADING;
  return CUDA_SUCCESS;
}

// An image has no texture or surface references.
SIM_CALL(cuModuleGetTexRef, kContext, (CUtexref * reference, CUmodule module, const char* name),
         (reference, module, name)) {
  if (reference == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return valid(module) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}
SIM_CALL(cuModuleGetSurfRef, kContext, (CUsurfref * reference, CUmodule module, const char* name),
         (reference, module, name)) {
  if (reference == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return valid(module) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

// --- Functions ---

SIM_CALL(cuFuncGetAttribute, kContext, (int* value, CUfunction_attribute id, CUfunction function),
         (value, id, function)) {
  if (!valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  return attribute(function->attributes, id, value);
}

SIM_CALL(cuFuncSetAttribute, kContext, (CUfunction function, CUfunction_attribute id, int value),
         (function, id, value)) {
  if (!valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  return set_attribute(function->attributes, id, value);
}

SIM_CALL(cuFuncSetCacheConfig, kContext, (CUfunction function, CUfunc_cache config), (function, config)) {
  return valid(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;  // there is no cache
}

SIM_CALL(cuFuncGetModule, kInit, (CUmodule * module, CUfunction function), (module, function)) {
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  *module = function->module;
  return CUDA_SUCCESS;
}

SIM_CALL(cuFuncGetName, kInit, (const char** name, CUfunction function), (name, function)) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->code->name;
  return CUDA_SUCCESS;
}

SIM_CALL(cuFuncGetParamInfo, kInit, (CUfunction function, size_t index, size_t* offset, size_t* size),
         (function, index, offset, size)) {
  if (!valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  return parameter(*function->code, index, offset, size);
}

SIM_CALL(cuFuncIsLoaded, kInit, (CUfunctionLoadingState * state, CUfunction function), (state, function)) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(function)) return CUDA_ERROR_INVALID_HANDLE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

SIM_CALL(cuFuncLoad, kInit, (CUfunction function), (function)) {
  return valid(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// --- Libraries ---

SIM_CALL(cuLibraryLoadData, kInit,
         (CUlibrary * library, const void* code, CUjit_option* jit, void** jit_values, unsigned jit_count,
          CUlibraryOption* options, void** values, unsigned count),
         (library, code, jit, jit_values, jit_count, options, values, count)) {
  return load_library(call, library, code);
}

SIM_CALL(cuLibraryLoadFromFile, kInit,
         (CUlibrary * library, const char* path, CUjit_option* jit, void** jit_values, unsigned jit_count,
          CUlibraryOption* options, void** values, unsigned count),
         (library, path, jit, jit_values, jit_count, options, values, count)) {
  if (library == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<char> bytes = read_image_file(path);
  return bytes.empty() ? CUDA_ERROR_FILE_NOT_FOUND : load_library(call, library, bytes.data());
}

SIM_CALL(cuLibraryUnload, kInit, (CUlibrary library), (library)) {
  if (!valid(library)) return CUDA_ERROR_INVALID_HANDLE;
  call.driver.engine.finish_all();
  while (!library->modules.empty()) unload_module(library->modules.begin()->second);
  for (const auto& entry : library->kernels) call.driver.kernels.release(entry.second);
  call.driver.libraries.release(library);
  return CUDA_SUCCESS;
}

static CUkernel kernel_of(Driver& d, CUlibrary library, const KernelCode* code) {
  CUkernel& kernel = library->kernels[code];
  if (kernel == nullptr) {
    kernel = d.kernels.make();
    kernel->code = code;
    kernel->library = library;
  }
  return kernel;
}

SIM_CALL(cuLibraryGetKernel, kInit, (CUkernel * kernel, CUlibrary library, const char* name), (kernel, library, name)) {
  if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(library)) return CUDA_ERROR_INVALID_HANDLE;
  const KernelCode* code = library->image->find(name);
  if (code == nullptr) return CUDA_ERROR_NOT_FOUND;
  *kernel = kernel_of(call.driver, library, code);
  return CUDA_SUCCESS;
}

SIM_CALL(cuLibraryGetKernelCount, kInit, (unsigned* count, CUlibrary library), (count, library)) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(library)) return CUDA_ERROR_INVALID_HANDLE;
  *count = static_cast<unsigned>(library->image->kernels.size());
  return CUDA_SUCCESS;
}

SIM_CALL(cuLibraryEnumerateKernels, kInit, (CUkernel * kernels, unsigned count, CUlibrary library),
         (kernels, count, library)) {
  if (kernels == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(library)) return CUDA_ERROR_INVALID_HANDLE;
  const auto& all = library->image->kernels;
  for (unsigned i = 0; i < count && i < all.size(); ++i) kernels[i] = kernel_of(call.driver, library, &all[i]);
  return CUDA_SUCCESS;
}

SIM_CALL(cuLibraryGetModule, kContext, (CUmodule * module, CUlibrary library), (module, library)) {
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(library)) return CUDA_ERROR_INVALID_HANDLE;
  *module = module_of(library, call.context);
  return CUDA_SUCCESS;
}

SIM_CALL(cuLibraryGetGlobal, kContext, (CUdeviceptr * pointer, size_t* bytes, CUlibrary library, const char* name),
         (pointer, bytes, library, name)) {
  if (!valid(library)) return CUDA_ERROR_INVALID_HANDLE;
  return global(*library->image, pointer, bytes, name, false);
}

SIM_CALL(cuLibraryGetManaged, kInit, (CUdeviceptr * pointer, size_t* bytes, CUlibrary library, const char* name),
         (pointer, bytes, library, name)) {
  if (!valid(library)) return CUDA_ERROR_INVALID_HANDLE;
  return global(*library->image, pointer, bytes, name, true);
}

// --- Kernels ---

SIM_CALL(cuKernelGetFunction, kContext, (CUfunction * function, CUkernel kernel), (function, kernel)) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *function = function_of(module_of(kernel->library, call.context), kernel->code);
  return CUDA_SUCCESS;
}

SIM_CALL(cuKernelGetLibrary, kInit, (CUlibrary * library, CUkernel kernel), (library, kernel)) {
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *library = kernel->library;
  return CUDA_SUCCESS;
}

SIM_CALL(cuKernelGetName, kInit, (const char** name, CUkernel kernel), (name, kernel)) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->code->name;
  return CUDA_SUCCESS;
}

SIM_CALL(cuKernelGetParamInfo, kInit, (CUkernel kernel, size_t index, size_t* offset, size_t* size),
         (kernel, index, offset, size)) {
  if (!valid(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  return parameter(*kernel->code, index, offset, size);
}

SIM_CALL(cuKernelGetAttribute, kInit, (int* value, CUfunction_attribute id, CUkernel kernel, CUdevice device),
         (value, id, kernel, device)) {
  if (!valid(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  return attribute(kernel->attributes, id, value);
}

SIM_CALL(cuKernelSetAttribute, kInit, (CUfunction_attribute id, int value, CUkernel kernel, CUdevice device),
         (id, value, kernel, device)) {
  if (!valid(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  return set_attribute(kernel->attributes, id, value);
}

SIM_CALL(cuKernelSetCacheConfig, kInit, (CUkernel kernel, CUfunc_cache config, CUdevice device),
         (kernel, config, device)) {
  return valid(kernel) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// --- Occupancy ---

static CUresult occupancy(Call& call, int* blocks, CUfunction function, int block_threads) {
  if (blocks == nullptr || block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (code_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *blocks = block_threads > 1024
                ? 0
                : nimble::blocks_at_once(call.driver.clock.model(), static_cast<std::uint64_t>(block_threads));
  return CUDA_SUCCESS;
}

SIM_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, kContext,
         (int* blocks, CUfunction function, int block_threads, size_t shared_bytes),
         (blocks, function, block_threads, shared_bytes)) {
  return occupancy(call, blocks, function, block_threads);
}
SIM_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, kContext,
         (int* blocks, CUfunction function, int block_threads, size_t shared_bytes, unsigned flags),
         (blocks, function, block_threads, shared_bytes, flags)) {
  return occupancy(call, blocks, function, block_threads);
}

static CUresult best_block(Call& call, int* grid, int* block, CUfunction function, int limit) {
  if (grid == nullptr || block == nullptr || limit < 0) return CUDA_ERROR_INVALID_VALUE;
  if (code_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *block = limit == 0 || limit > 1024 ? 1024 : limit;
  *grid = call.driver.clock.model().multiprocessors *
          nimble::blocks_at_once(call.driver.clock.model(), static_cast<std::uint64_t>(*block));
  return CUDA_SUCCESS;
}

SIM_CALL(cuOccupancyMaxPotentialBlockSize, kContext,
         (int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared, size_t shared_bytes, int limit),
         (grid, block, function, shared, shared_bytes, limit)) {
  return best_block(call, grid, block, function, limit);
}
SIM_CALL(cuOccupancyMaxPotentialBlockSizeWithFlags, kContext,
         (int* grid, int* block, CUfunction function, CUoccupancyB2DSize shared, size_t shared_bytes, int limit,
          unsigned flags),
         (grid, block, function, shared, shared_bytes, limit, flags)) {
  return best_block(call, grid, block, function, limit);
}
