// What the shim knows of code: images, functions, and their handles.
//
// One table per process, thread-safe. Records are never freed, so references stay valid; handles are dropped when their
// image is unloaded, since the driver may reuse their values, and the records are reused when the same code is loaded
// again: so their number is bounded by the code loaded at one time. A context takes its modules with it; whatever ends
// unseen is dropped when its handle or address appears again as something else. Looking a known function up takes no
// lock: each thread keeps a small cache that an unload makes stale.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "nimble/internal/call.h"
#include "shim/process/handle_slot.h"
#include "shim/process/per_thread.h"
#include "shim/state/code/image_facts.h"

namespace nimble::shim {

// A variable of an image; no name if it is not known.
struct GlobalName {
  std::string name;
  const ImageInfo* image = nullptr;
};

class FunctionTable {
 public:
  // An image was loaded; `handle` is a CUmodule, in this context, or a CUlibrary, in none.
  void loaded(const void* handle, LoadedImage image, CUcontext context = nullptr);
  // `module` is the module of the library `library`.
  void same_image(const void* module, const void* library);
  // Returns the image, null if it was not known.
  const ImageInfo* unloading(const void* handle);
  // The context has ended, and the modules that were loaded in it. Null: unknown which.
  void context_ended(CUcontext context);

  // The program was given a function of an image.
  void got(CUfunction function, const void* image) { remember(function, {image, false, false}); }
  void got(CUkernel kernel, const void* image) { remember(kernel, {image, true, true}); }
  void enumerated(const CUfunction* functions, unsigned count, CUmodule module);
  void enumerated(const CUkernel* kernels, unsigned count, CUlibrary library);
  void same_function(CUfunction function, CUkernel kernel);

  // Whether the program asks for this global at `address` for the first time.
  bool first_sight_of_global(std::uint64_t address, const void* image, const char* name);
  GlobalName global_at(std::uint64_t address);

  // The bytes that the image was loaded from; empty if they are gone, or were not kept (keep_image_bytes()).
  std::string image_bytes(const ImageInfo* image);

  // Everything known of a launched function. Asks the driver for name and parameters on first sight.
  const FunctionInfo& find(CUfunction handle) {
    auto& cache = PerThread<LastFunctions>::get().slots;
    LastFunctions::Cached& slot = cache[handle_slot(reinterpret_cast<std::uintptr_t>(handle), cache.size())];
    const std::uint64_t now = generation_.load(std::memory_order_acquire);
    if (slot.handle == handle && slot.generation == now) [[likely]]
      return *slot.info;
    const FunctionInfo& info = look_up(handle);
    slot = {handle, now, &info};
    return info;
  }

 private:
  // A thread's latest look-ups. Not a plain thread-local: these would take space in every thread's stack.
  struct LastFunctions {
    struct Cached {
      CUfunction handle = nullptr;
      std::uint64_t generation = 0;
      const FunctionInfo* info = nullptr;
    };
    std::array<Cached, 256> slots;
  };
  struct Origin {
    const void* image = nullptr;
    bool is_kernel_handle = false;
    bool of_library = false;  // `image` is a CUlibrary, not a CUmodule
  };

  void remember(const void* handle, const Origin& origin);
  // Under the lock.
  void drop(const void* image_handle);
  void described_no_more(const void* handle);
  void place(const void* handle, const Origin& origin);
  [[gnu::noinline]] const FunctionInfo& look_up(CUfunction handle);
  const FunctionInfo& describe(CUfunction handle);
  void look_among_kernels(CUfunction handle);
  // Reads the code of a kernel whose name and parameters are known.
  static void read_code(FunctionInfo& info, const LoadedImage* image, const Origin& origin);

  std::shared_mutex mutex_;  // guards everything below; never held while the driver is called
  std::unordered_map<const void*, const ImageInfo*> images_;        // by module or library handle
  std::unordered_map<const void*, Origin> origins_;                 // by function or kernel handle
  std::unordered_map<const void*, const FunctionInfo*> described_;  // by launched handle
  std::unordered_map<std::uint64_t, GlobalName> globals_;           // by address
  std::unordered_map<const void*, std::vector<std::uint64_t>> globals_of_;
  std::unordered_map<const ImageInfo*, LoadedImage> code_;  // of images that are loaded
  std::unordered_map<const void*, CUcontext> loaded_in_;    // by module handle
  // Records of unloaded code: by the image's fingerprint, and by the function's name.
  std::unordered_multimap<std::uint64_t, const ImageInfo*> spare_images_;
  std::unordered_multimap<std::string, const FunctionInfo*> spare_functions_;
  std::vector<std::unique_ptr<ImageInfo>> image_records_;
  std::vector<std::unique_ptr<FunctionInfo>> function_records_;
  std::atomic<std::uint64_t> generation_{1};  // raised by unloads; stale caches see it
};

// The process's table.
FunctionTable& functions();

}  // namespace nimble::shim
