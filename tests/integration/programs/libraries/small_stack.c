/* Preloaded, has the program's main run on a thread with a small stack: SMALL_STACK says how many KiB it has. What is
 * below it cannot be touched. How many bytes of it were used is in the file SMALL_STACK_USED when the process ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef int (*main_function)(int, char**, char**);
typedef int (*start_function)(main_function, int, char**, void (*)(void), void (*)(void), void (*)(void), void*);

enum { kGuard = 1 << 20, kPaint = 0x5a };

static main_function real_main;
static int count, status;
static char **arguments, **environment;
static unsigned char* stack;
static size_t bytes;

static void* run(void* unused) {
  (void)unused;
  status = real_main(count, arguments, environment);
  return NULL;
}

static void report(void) {
  const char* const path = getenv("SMALL_STACK_USED");
  FILE* const file = stack && path ? fopen(path, "w") : NULL;
  size_t untouched = 0;
  if (!file) return;
  while (untouched < bytes && stack[untouched] == kPaint) ++untouched;
  fprintf(file, "%zu\n", bytes - untouched);
  fclose(file);
}

static int main_on_thread(int argc, char** argv, char** envp) {
  const char* const kib = getenv("SMALL_STACK");
  pthread_attr_t attributes;
  pthread_t thread;
  if (!kib) return real_main(argc, argv, envp);
  count = argc, arguments = argv, environment = envp;
  bytes = (size_t)atoi(kib) << 10;
  unsigned char* const memory =
      mmap(NULL, kGuard + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE) != 0) abort();
  stack = memory + kGuard;
  memset(stack, kPaint, bytes);
  atexit(report);
  pthread_attr_init(&attributes);
  if (pthread_attr_setstack(&attributes, stack, bytes) != 0) abort();
  if (pthread_create(&thread, &attributes, run, NULL) != 0) abort();
  pthread_join(thread, NULL);
  return status;
}

__attribute__((visibility("default"))) int __libc_start_main(main_function program, int argc, char** argv,
                                                             void (*init)(void), void (*fini)(void),
                                                             void (*rtld_fini)(void), void* stack_end) {
  start_function const next = (start_function)dlsym(RTLD_NEXT, "__libc_start_main");
  real_main = program;
  return next(main_on_thread, argc, argv, init, fini, rtld_fini, stack_end);
}
