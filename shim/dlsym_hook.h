// Our dlsym: programs that look the driver's entry points up by name get our wrappers.
//
// exports.S defines the exported `dlsym`. It asks nimble_dlsym_filter() and, for every name that is none of ours,
// leaves by a jump to the real dlsym, so that the caller is still the caller: RTLD_NEXT depends on it. No memory is
// allocated for such names, since allocators themselves call dlsym while they start.
#pragma once

extern "C" {

// Our wrapper for (handle, name), or null where the real dlsym should answer. On return nimble_real_dlsym is set.
__attribute__((visibility("hidden"))) void* nimble_dlsym_filter(void* handle, const char* name);
__attribute__((visibility("hidden"))) extern void* (*nimble_real_dlsym)(void* handle, const char* name);
}

namespace nimble::shim {

// The real dlsym, found on first use.
void* real_dlsym(void* handle, const char* name);

}  // namespace nimble::shim
