// Finds the driver as the CUDA runtime of 13.0 does, and does the work of workload.h:
//
//   mini_runtime legacy|per_thread [NAME]
//
// dlopen, dlsym of cuGetProcAddress_v2, a probe call, then all functions twice, with flags 0 and 2: it keeps both
// tables. Where the symbol is missing, or the probe says that this is a stub, it falls back to dlsym of exported names.
// NAME is the name to look up instead of cuGetProcAddress_v2. Prints how it found its functions, and the result.
#include <dlfcn.h>

#include <map>
#include <set>

#include "tests/integration/programs/common/workload.h"

namespace {

using ProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

// The plain names of all that Nimble intercepts, and of some functions that it does not.
std::set<std::string> all_names() {
  std::set<std::string> names = {"cuInit",          "cuDeviceGet",        "cuDevicePrimaryCtxRetain",
                                 "cuCtxSetCurrent", "cuDriverGetVersion", "cuGetExportTable",
                                 "cuCtxGetCurrent", "cuStreamCreate",     "cuEventCreate"};
  for (std::string name : {
#define NIMBLE_CALL(symbol, default_stream, decoder, host) #symbol,
#include "nimble/internal/driver_calls.def"
       }) {
    for (const char* const suffix : {"_ptsz", "_ptds", "_v2", "_v3"}) {
      if (name.ends_with(suffix)) name.resize(name.size() - std::strlen(suffix));
    }
    names.insert(name);
  }
  return names;
}

using Table = std::map<std::string, void*>;

Table ask_all(ProcAddress get, cuuint64_t flags) {
  Table table;
  for (const std::string& name : all_names()) {
    void* pointer = nullptr;
    if (get(name.c_str(), &pointer, 13000, flags, nullptr) == CUDA_SUCCESS) table[name] = pointer;
  }
  return table;
}

Table look_up_all(void* library, bool per_thread) {
  Table table;
  for (const std::string& name : all_names()) {
    std::vector<std::string> candidates;
    for (const std::string& version : {name + "_v2", name}) {
      if (per_thread) candidates.insert(candidates.end(), {version + "_ptsz", version + "_ptds"});
      candidates.push_back(version);
    }
    for (const std::string& exported : candidates) {
      void* const pointer = dlsym(library, exported.c_str());
      if (dlerror() != nullptr || !pointer) continue;
      table[name] = pointer;
      break;
    }
  }
  return table;
}

}  // namespace

int main(int argc, char** argv) {
  const bool per_thread = argc > 1 && std::string(argv[1]) == "per_thread";
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY);
  const auto get = reinterpret_cast<ProcAddress>(dlsym(library, argc > 2 ? argv[2] : "cuGetProcAddress_v2"));
  void* probe = nullptr;
  const bool stub = get != nullptr && get("", &probe, 0, 0, nullptr) == CUDA_ERROR_STUB_LIBRARY;
  const bool fallback = get == nullptr || stub;
  const Table legacy = fallback ? look_up_all(library, false) : ask_all(get, CU_GET_PROC_ADDRESS_DEFAULT);
  const Table own = fallback ? look_up_all(library, true) : ask_all(get, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
  unsigned differ = 0;
  for (const auto& [name, pointer] : legacy) differ += own.count(name) != 0 && own.at(name) != pointer;
  std::printf("%s: %zu functions, %u of them in two variants\n", fallback ? "fallback" : "cuGetProcAddress",
              legacy.size(), differ);
  const Table& table = per_thread ? own : legacy;
  std::printf("%u\n", run_workload(find_driver([&](const char* plain, const char*) { return table.at(plain); })));
  return 0;
}
