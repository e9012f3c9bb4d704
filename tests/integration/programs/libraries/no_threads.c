/* Preloaded, lets the program start no threads, as a full cgroup or RLIMIT_NPROC does: after NO_THREADS of them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

__attribute__((visibility("default"))) int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                                          void* (*run)(void*), void* argument) {
  static int started = 0;
  const char* const most = getenv("NO_THREADS");
  int (*const next)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) =
      (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(RTLD_NEXT, "pthread_create");
  if (most && __atomic_fetch_add(&started, 1, __ATOMIC_RELAXED) >= atoi(most)) return EAGAIN;
  return next(thread, attributes, run, argument);
}
