// See ways_library.h. WAYS_NAME is first or last.
#include "tests/integration/programs/libraries/ways_library.h"

#include <dlfcn.h>

#define WAYS_JOIN(a, b) a##b
#define WAYS_LOOKUP(name) WAYS_JOIN(name, _lookup)
#define WAYS_TEXT(name) #name
#define WAYS_NAME_TEXT(name) WAYS_TEXT(name)

extern "C" {

void* WAYS_LOOKUP(WAYS_NAME)(void* handle, const char* name) {
  void* const found = dlsym(handle, name);
  // Not a jump: it would be called on behalf of the program.
  asm volatile("" ::: "memory");
  return found;
}

// In both libraries; the second one looks like an entry point of the driver, but is not.
const char* ways_which() { return WAYS_NAME_TEXT(WAYS_NAME); }
const char* cuWaysWhich() { return WAYS_NAME_TEXT(WAYS_NAME); }
}
