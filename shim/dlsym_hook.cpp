// Compiled without sanitizers: sanitizer runtimes call dlsym before they have set themselves up.
#include "shim/dlsym_hook.h"

#include <dlfcn.h>

#include "shim/real_driver.h"
#include "shim/session.h"

extern "C" {

void* (*nimble_real_dlsym)(void*, const char*) = nullptr;

void* nimble_dlsym_filter(void* handle, const char* name) {
  if (!nimble_real_dlsym) [[unlikely]] {
    // dlsym itself cannot be asked: it is us. The version under which it is exported moved with glibc 2.34.
    void* pointer = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!pointer) pointer = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    nimble_real_dlsym = reinterpret_cast<void* (*)(void*, const char*)>(pointer);
  }
  // "cu" and a capital: cudnnCreate and cublasCreate are not the driver's.
  if (!name || name[0] != 'c' || name[1] != 'u' || name[2] < 'A' || name[2] > 'Z') return nullptr;
  if (!nimble::shim::intercepting()) return nullptr;
  // The real answer decides, as with cuGetProcAddress: other libraries may have functions of the same name. Where there
  // is none, the real dlsym is asked again by the jump, and sets dlerror for its caller.
  void* const found = nimble_real_dlsym(handle, name);
  void* const wrapper = nimble::shim::wrapper_for_pointer(found);
  return wrapper != found ? wrapper : nullptr;
}
}

namespace nimble::shim {

void* real_dlsym(void* handle, const char* name) {
  if (!nimble_real_dlsym) nimble_dlsym_filter(RTLD_DEFAULT, "");
  return nimble_real_dlsym(handle, name);
}

}  // namespace nimble::shim
