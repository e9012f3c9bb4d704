// Our dlsym, dlvsym and dlopen: programs that look the driver's entry points up by name get our wrappers.
//
// hooks.S defines the exported functions. Each asks its filter here and, for every name that is not the driver's, jumps
// to the next definition, so that this sees the original caller: RTLD_NEXT, RTLD_DEFAULT and the search path of dlopen
// depend on it. No memory is allocated for such names, since allocators themselves call dlsym while they start. "Next"
// is libc, or another preloaded library that comes after us and hooks the same function. All of it may run on any
// thread, and before any constructor.
#pragma once

#include <atomic>
#include <cstdint>

extern "C" {

// What a filter found, in two registers. If it is not final, the next definition is called.
struct nimble_answer {
  void* pointer;
  std::uint64_t final;
};

#define NIMBLE_HIDDEN __attribute__((visibility("hidden")))
NIMBLE_HIDDEN nimble_answer nimble_dlsym_filter(void* handle, const char* name, const void* caller);
NIMBLE_HIDDEN nimble_answer nimble_dlvsym_filter(void* handle, const char* name, const char* version,
                                                 const void* caller);
NIMBLE_HIDDEN void nimble_before_limit(int resource, const void* limit);
NIMBLE_HIDDEN void nimble_before_limit_of(int process, int resource, const void* limit);
// The flags to go on with.
NIMBLE_HIDDEN int nimble_dlopen_filter(const char* file, int flags);

// The next definitions; set once a filter has run, or find_next_hooks().
NIMBLE_HIDDEN extern void* (*nimble_next_dlsym)(void* handle, const char* name);
NIMBLE_HIDDEN extern void* (*nimble_next_dlvsym)(void* handle, const char* name, const char* version);
NIMBLE_HIDDEN extern void* (*nimble_next_dlopen)(const char* file, int flags);
NIMBLE_HIDDEN extern void (*nimble_next_exit)(int status);
#undef NIMBLE_HIDDEN
}

namespace nimble::shim {

void find_next_hooks();

// What a call by name from `caller` would reach without us: in the libraries that the caller was linked against, among
// those after us in the program's search order; if none of these has the name, in any library. That library stays
// loaded from then on. Null if there is none.
void* find_beyond(const void* caller, const char* name);

// libc's dlsym, never another library's.
void* real_dlsym(void* handle, const char* name);

// Called when the program looks up or calls a function with which a CUPTI client starts. A process has room for one
// client: the part of Nimble that uses CUPTI sets this to release it. Null: no part does. Any thread.
extern std::atomic<void (*)() noexcept> g_on_cupti_client;
void cupti_client_comes() noexcept;

}  // namespace nimble::shim
