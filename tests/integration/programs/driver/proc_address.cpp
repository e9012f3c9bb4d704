// Asks cuGetProcAddress for some functions in every way in which it can be asked, and calls each of them once:
//
//   proc_address [FILE]
//
// both versions of it, found by dlsym and by themselves; versions 11000 to 13000; flags 0, 1 and 2; with a place for
// the status and without. Writes to FILE which exported function of the driver each pointer is, in the order of the
// calls: without the shim this is what a trace of the same program must hold. Prints results and return codes.
#include <dlfcn.h>

#include "tests/integration/programs/common/workload.h"

namespace {

using Get1 = CUresult (*)(const char*, void**, int, cuuint64_t);
using Get2 = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

std::FILE* names = nullptr;

// The call that comes next.
void expect(const void* pointer) {
  Dl_info info;
  if (names && dladdr(pointer, &info) != 0 && info.dli_sname) std::fprintf(names, "%s\n", info.dli_sname);
}

template <class Function>
Function checked(void* pointer) {
  if (!pointer) {
    std::fprintf(stderr, "no pointer in spite of success\n");
    std::exit(1);
  }
  return reinterpret_cast<Function>(pointer);
}

// One call of each function that `find` gives: a launch, a set, an asynchronous copy, a synchronisation.
template <class Find>
void use(Find find, Work& work, int version, cuuint64_t flags) {
  void* pointer = nullptr;
  unsigned result[kWorkCount];
  int count = kWorkCount;
  void* arguments[] = {&work.state, &work.change, &count};
  const auto ask = [&](const char* name) {
    pointer = nullptr;
    const CUresult answer = find(name, &pointer, version, flags);
    const bool usable = answer == CUDA_SUCCESS && pointer != nullptr;
    if (!usable) std::printf("%s %d %d: %d\n", name, version, static_cast<int>(flags), answer);
    if (usable) expect(pointer);
    return usable;
  };
  if (ask("cuLaunchKernel")) {
    CHECK(checked<decltype(&::cuLaunchKernel)>(pointer)(work.update, 1, 1, 1, kWorkCount, 1, 1, 0, nullptr, arguments,
                                                        nullptr));
  }
  if (ask("cuMemsetD32Async"))
    CHECK(checked<decltype(&::cuMemsetD32Async)>(pointer)(work.change, 3, kWorkCount, nullptr));
  if (ask("cuMemcpyDtoHAsync"))
    CHECK(checked<decltype(&::cuMemcpyDtoHAsync)>(pointer)(result, work.state, sizeof result, nullptr));
  if (ask("cuStreamSynchronize")) CHECK(checked<decltype(&::cuStreamSynchronize)>(pointer)(nullptr));
  std::printf("%d %d: %u\n", version, static_cast<int>(flags), result[0]);
  ask("cuNoSuchFunction");
  ask("");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) names = std::fopen(argv[1], "w");
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  const auto by_name1 = reinterpret_cast<Get1>(dlsym(library, "cuGetProcAddress"));
  const auto by_name2 = reinterpret_cast<Get2>(dlsym(library, "cuGetProcAddress_v2"));
  void *by_itself1 = nullptr, *by_itself2 = nullptr;
  CHECK(by_name1("cuGetProcAddress", &by_itself1, 11030, 0));
  CHECK(by_name2("cuGetProcAddress", &by_itself2, 12000, 0, nullptr));
  Work work = start_work(linked_driver());
  for (const int version : {11000, 11030, 11080, 12000, 12050, 12080, 12090, 13000}) {
    for (const cuuint64_t flags : {0, 1, 2}) {
      for (const Get1 get : {by_name1, checked<Get1>(by_itself1)}) use(get, work, version, flags);
      for (const Get2 get : {by_name2, checked<Get2>(by_itself2), &cuGetProcAddress}) {
        const auto without = [&](const char* name, void** out, int v, cuuint64_t f) {
          return get(name, out, v, f, nullptr);
        };
        const auto with = [&](const char* name, void** out, int v, cuuint64_t f) {
          CUdriverProcAddressQueryResult status{};
          const CUresult answer = get(name, out, v, f, &status);
          if (status != CU_GET_PROC_ADDRESS_SUCCESS) std::printf("%s: status %d\n", name, status);
          return answer;
        };
        use(without, work, version, flags);
        use(with, work, version, flags);
      }
    }
  }
  if (names) std::fclose(names);
  return 0;
}
