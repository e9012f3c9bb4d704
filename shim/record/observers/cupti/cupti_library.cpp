#include "shim/record/observers/cupti/cupti_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <array>
#include <set>
#include <string_view>
#include <vector>

#include "shim/driver/dlsym_hook.h"

namespace nimble::shim {

namespace {

// Folders that hold CUDA libraries of this process: frameworks' wheels put libcupti next to libcudart and the like.
std::vector<std::string> folders_of_cuda_libraries() {
  std::set<std::string> folders;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        const std::string_view path = info->dlpi_name ? info->dlpi_name : "";
        const std::size_t slash = path.rfind('/');
        if (slash == std::string_view::npos) return 0;
        const std::string_view file = path.substr(slash + 1);
        for (const std::string_view kin : {"libcudart.so", "libcublas.so", "libnvrtc.so", "libnvJitLink.so"}) {
          if (file.starts_with(kin)) static_cast<std::set<std::string>*>(out)->emplace(path.substr(0, slash));
        }
        return 0;
      },
      &folders);
  std::vector<std::string> all(folders.begin(), folders.end());
  for (const char* folder : {"/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64"}) all.emplace_back(folder);
  return all;
}

void* open_any(const std::string& name) {
  if (void* const loaded = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD)) return loaded;
  if (void* const known = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return known;
  for (const std::string& folder : folders_of_cuda_libraries()) {
    if (void* const found = dlopen(fmt::format("{}/{}", folder, name).c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
  }
  return nullptr;
}

}  // namespace

bool CuptiLibrary::load(int driver_version, std::string& why) {
  // A driver also works with the CUPTI of earlier toolkits; a later toolkit's needs a later driver.
  void* library = nullptr;
  const int newest = driver_version / 1000;
  for (int major = newest; major >= 12 && !library; --major) library = open_any(fmt::format("libcupti.so.{}", major));
  if (!library) {
    why = fmt::format("libcupti.so.{} was not found; LD_LIBRARY_PATH can name the folder that holds it", newest);
    return false;
  }
#define X(function)                                                                      \
  function##_ = reinterpret_cast<decltype(function##_)>(real_dlsym(library, #function)); \
  if (!function##_) {                                                                    \
    why = "libcupti has no " #function;                                                  \
    return false;                                                                        \
  }
  NIMBLE_CUPTI_FUNCTIONS(X)
#undef X
  return true;
}

std::string CuptiLibrary::text(CUptiResult result) const {
  const char* name = nullptr;
  if (cuptiGetResultString_ && cuptiGetResultString_(result, &name) == CUPTI_SUCCESS && name) return name;
  return fmt::format("error {}", static_cast<int>(result));
}

}  // namespace nimble::shim
