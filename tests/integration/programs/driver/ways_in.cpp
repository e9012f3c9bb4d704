// Does the work of workload.h, reaching the driver in the way that its argument names, and prints the result:
//   linked           calls that the linker bound
//   dlsym            dlsym on the library's handle
//   dlsym_default    dlsym on RTLD_DEFAULT
//   dlsym_program    dlsym on the program's own handle
//   dlvsym           dlvsym on the library's handle, of a driver whose symbols have the version GLIBC_2.2.5
//   dlsym_next       dlsym on RTLD_NEXT, called from a library that comes before the driver
//   default_library  dlsym on RTLD_DEFAULT, called from that library
//   proc_address     cuGetProcAddress, version 1
//   proc_address_v2  cuGetProcAddress, version 2, per-thread default stream variants
//   facts            no work: prints what lookups of all kinds find
#include <dlfcn.h>

#include "tests/integration/programs/common/workload.h"
#include "tests/integration/programs/libraries/ways_library.h"

namespace {

Driver find_way(const std::string& way) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  const auto exported_in = [](void* handle) {
    return [=](const char*, const char* name) { return dlsym(handle, name); };
  };
  if (way == "linked") return linked_driver();
  if (way == "dlsym") return find_driver(exported_in(library));
  if (way == "dlvsym")
    return find_driver([=](const char*, const char* name) { return dlvsym(library, name, "GLIBC_2.2.5"); });
  if (way == "dlsym_default") return find_driver(exported_in(RTLD_DEFAULT));
  if (way == "dlsym_program") return find_driver(exported_in(dlopen(nullptr, RTLD_NOW)));
  if (way == "dlsym_next")
    return find_driver([](const char*, const char* name) { return first_lookup(RTLD_NEXT, name); });
  if (way == "default_library")
    return find_driver([](const char*, const char* name) { return first_lookup(RTLD_DEFAULT, name); });
  if (way == "proc_address") {
    using Find = CUresult (*)(const char*, void**, int, cuuint64_t);
    const auto get = reinterpret_cast<Find>(dlsym(library, "cuGetProcAddress"));
    return find_driver([&](const char* plain, const char*) {
      void* pointer = nullptr;
      CHECK(get(plain, &pointer, 12000, CU_GET_PROC_ADDRESS_DEFAULT));
      return pointer;
    });
  }
  if (way == "proc_address_v2") {
    return find_driver([&](const char* plain, const char*) {
      void* pointer = nullptr;
      CHECK(cuGetProcAddress(plain, &pointer, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, nullptr));
      return pointer;
    });
  }
  std::fprintf(stderr, "unknown way: %s\n", way.c_str());
  std::exit(2);
}

void say(const char* what, void* found) {
  const char* const error = dlerror();
  std::printf("%s: %s, %s\n", what, found ? "found" : "not found", error ? "error" : "no error");
}

void say_text(const char* what, void* found) {
  std::printf("%s: %s\n", what, found ? reinterpret_cast<const char* (*)()>(found)() : "not found");
}

void print_facts() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  dlerror();
  say("dlsym of an entry point", dlsym(library, "cuLaunchKernel"));
  say("dlsym of one that is not intercepted", dlsym(library, "cuDriverGetVersion"));
  say("dlsym of one that is not there", dlsym(library, "cuNoSuchFunction"));
  say("the same by default", dlsym(RTLD_DEFAULT, "cuNoSuchFunction"));
  say("no name of the driver's", dlsym(RTLD_DEFAULT, "cudnnNoSuchFunction"));
  say("dlvsym of an entry point", dlvsym(library, "cuLaunchKernel", "GLIBC_2.2.5"));
  say("dlvsym of one, no such version", dlvsym(library, "cuLaunchKernel", "NONE_1.0"));
  say("dlvsym of libc", dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.2.5"));
  say("dlvsym of libc, no such version", dlvsym(RTLD_DEFAULT, "memcpy", "NONE_1.0"));
  say("dlvsym of dlsym", dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5"));
  // The first library comes before the driver, the last one after it.
  say("next from the first library", first_lookup(RTLD_NEXT, "cuLaunchKernel"));
  say("next from the last library", last_lookup(RTLD_NEXT, "cuLaunchKernel"));
  say("by default from the last library", last_lookup(RTLD_DEFAULT, "cuLaunchKernel"));
  // Both define these two.
  for (const char* const name : {"ways_which", "cuWaysWhich"}) {
    say_text("by default", dlsym(RTLD_DEFAULT, name));
    say_text("next from the program", dlsym(RTLD_NEXT, name));
    say_text("next from the first library", first_lookup(RTLD_NEXT, name));
    say_text("next from the last library", last_lookup(RTLD_NEXT, name));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "";
  if (way == "facts") {
    print_facts();
  } else {
    std::printf("%u\n", run_workload(find_way(way)));
  }
  return 0;
}
