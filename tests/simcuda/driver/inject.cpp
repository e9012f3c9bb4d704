// See inject.h.
#include "tests/simcuda/driver/inject.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>

#include "tests/simcuda/driver/entry.h"
#include "tests/simcuda/engine/op_failure.h"
#include "tests/simcuda/simcuda.h"

namespace simcuda {
namespace {

bool inject(const char* name, std::uint64_t nth, int result) {
  Symbol* symbol = Symbol::find(name);
  if (symbol == nullptr || nth == 0) return false;
  symbol->fail_at = symbol->calls + nth;
  symbol->failure = static_cast<CUresult>(result);
  return true;
}

}  // namespace

void inject_from(const std::string& list) {
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    const std::size_t first = item.find(':'), second = item.find(':', first + 1);
    char *nth_end = nullptr, *result_end = nullptr;
    bool done = false;
    if (first != std::string::npos && second != std::string::npos) {
      const std::uint64_t nth = std::strtoull(item.c_str() + first + 1, &nth_end, 10);
      const long result = std::strtol(item.c_str() + second + 1, &result_end, 10);
      done = nth_end == item.c_str() + second && *result_end == '\0' && result_end != item.c_str() + second + 1 &&
             inject(item.substr(0, first).c_str(), nth, static_cast<int>(result));
    }
    if (!done) {
      std::fprintf(stderr, "simcuda: SIMCUDA_INJECT: \"%s\" is not symbol:nth call:CUresult of an entry point\n",
                   item.c_str());
    }
  }
}

}  // namespace simcuda

using namespace simcuda;

extern "C" SIM_EXPORT int simcuda_inject(const char* symbol, uint64_t nth, int result) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  return symbol != nullptr && inject(symbol, nth, result) ? 0 : -1;
}

extern "C" SIM_EXPORT void simcuda_clear_injections(void) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  for (Symbol* symbol = Symbol::first; symbol != nullptr; symbol = symbol->next) symbol->fail_at = 0;
  clear_op_failure();
}
