// Our dlsym, dlvsym and dlopen: programs that look the driver's entry points up by name get our wrappers.
//
// hooks.S defines the exported functions. Each asks its filter here and, for every name that is none of the driver's,
// leaves by a jump to the next definition, so that the caller is still the caller: RTLD_NEXT, RTLD_DEFAULT and the
// search path of dlopen depend on it. No memory is allocated for such names, since allocators themselves call dlsym
// while they start. "Next" is libc, or another preloaded library that comes after us and hooks the same function.
// All of it may run on any thread, and before any constructor.
#pragma once

#include <atomic>
#include <cstdint>

extern "C" {

// What a filter found, in two registers. Where it is not final, the next definition is to be asked.
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

// What a call by name from there would reach without us: in the libraries that the caller was linked against, among
// those that come after us in the program's search order, or, where it was linked against none that has the name, in
// any. That library stays loaded from then on. Null where there is none.
void* find_beyond(const void* caller, const char* name);

// libc's dlsym, never another library's.
void* real_dlsym(void* handle, const char* name);

// The program looks up, or calls, a function by which a client of CUPTI begins. A process has room for one: who of
// Nimble's uses CUPTI sets what lets it go. Null: nobody does. Any thread.
extern std::atomic<void (*)() noexcept> g_on_cupti_client;
void cupti_client_comes() noexcept;

}  // namespace nimble::shim
