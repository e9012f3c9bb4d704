/* Another library that stands between programs and the driver, and is preloaded before or after libnimble.so. It counts
   launches, and says at the end how many it saw. With INTERPOSE_DLSYM it hooks dlsym as well, and hands out its own
   functions, as libraries that share a GPU do. Built without sanitizers, so that any program can load it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

typedef int (*Launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                      void**);

static unsigned launches;

#ifdef INTERPOSE_DLSYM
static void* (*next_dlsym)(void*, const char*);

static void* find(void* handle, const char* name) {
  if (!next_dlsym) *(void**)&next_dlsym = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
  return next_dlsym(handle, name);
}
#else
#define find dlsym
#endif

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void** extra) {
  static Launch next;
#ifdef INTERPOSE_DLSYM
  if (!next) *(void**)&next = find(dlopen("libcuda.so.1", RTLD_NOW), "cuLaunchKernel");
#else
  if (!next) *(void**)&next = find(RTLD_NEXT, "cuLaunchKernel");
#endif
  ++launches;
  return next(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

#ifdef INTERPOSE_DLSYM
/* Not strcmp: sanitizers hook it, and call dlsym before they are ready for it. */
static int same(const char* a, const char* b) {
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}

void* dlsym(void* handle, const char* name) {
  if (same(name, "cuLaunchKernel")) return (void*)cuLaunchKernel;
  return find(handle, name);
}
#endif

__attribute__((destructor)) static void say(void) {
  if (launches) printf("interposer: %u launches\n", launches);
}
