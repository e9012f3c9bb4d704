/* A preloaded library that says so: what the launcher tests preload in place of libnimble.so. Built without sanitizers,
   so that any program can load it. */
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void say_loaded(void) {
  static const char text[] = "probe loaded\n";
  if (getenv("PROBE_SAYS_SO") != NULL && write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(99);
}
