/* A library that is preloaded after libnimble.so, and makes windows wide: whatever a thread other than the first one
   opens stays at its first number for a moment. In a program of one thread those are threads of Nimble's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

static int (*open_)(const char*, int, ...);

__attribute__((constructor)) static void start(void) {
  open_ = (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open");
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (!open_) start();
  const int file = open_(path, flags, mode);
  const int error = errno;
  if (gettid() != getpid()) usleep(40000);
  errno = error;
  return file;
}

int open64(const char* path, int flags, ...) __attribute__((alias("open")));
