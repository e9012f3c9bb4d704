#include "tests/integration/programs/libraries/life_library.h"

#include <dlfcn.h>

#include "tests/integration/programs/common/workload.h"

namespace {

void (*at_end)() = nullptr;
int early_launches = 0;

__attribute__((constructor)) void begin() {
  const char* const way = std::getenv("LIFE_EARLY");
  if (!way) return;
  const bool linked = std::string(way) == "linked";
  const Driver driver =
      linked ? linked_driver()
             : find_driver([](const char*, const char* name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); });
  std::printf("early: %u\n", run_workload(driver));
  early_launches = kWorkLaunches;
}

__attribute__((destructor)) void end() {
  if (at_end) at_end();
  std::fflush(stdout);
}

}  // namespace

extern "C" {
void life_at_end(void (*function)()) { at_end = function; }
int life_early_launches() { return early_launches; }
}
