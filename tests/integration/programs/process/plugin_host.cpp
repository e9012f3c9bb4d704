// A program without the driver, which loads a library that has it:
//
//   plugin_host LIBRARY local|global|deepbind|namespace linked|default|none
//
// Prints what it finds of the driver before and after, and the result of the work that the library does. `local` and
// the others say how the library is opened, the last word how it reaches the driver.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

void* open(const char* path, const std::string& how) {
  if (how == "local") return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (how == "global") return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (how == "deepbind") return dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
  if (how == "namespace") return dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
  return nullptr;
}

void look(const char* when) {
  for (const char* const name : {"cuLaunchKernel", "cuMemAlloc_v2", "cuDriverGetVersion"}) {
    const bool by_default = dlsym(RTLD_DEFAULT, name) != nullptr;
    const bool has_error = dlerror() != nullptr;
    const bool in_program = dlsym(dlopen(nullptr, RTLD_NOW), name) != nullptr;
    std::printf("%s, %s: by default %d, error %d, in the program %d\n", when, name, by_default, has_error, in_program);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  look("before");
  void* const plugin = open(argv[1], argv[2]);
  if (!plugin) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  look("after");
  const auto finds = reinterpret_cast<bool (*)(const char*)>(dlsym(plugin, "plugin_finds"));
  std::printf("the library finds it: %d\n", finds("cuLaunchKernel"));
  const std::string way = argv[3];
  if (way == "look") std::printf("by the library's handle: %d\n", dlsym(plugin, "cuLaunchKernel") != nullptr);
  if (way == "linked" || way == "default")
    std::printf("%u\n", reinterpret_cast<unsigned (*)(const char*)>(dlsym(plugin, "plugin_run"))(argv[3]));
  return 0;
}
