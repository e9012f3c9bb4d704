// bypass N M: launches a kernel N times as programs do, and M times through an address that it reads from libcuda's own
// symbol table, bypassing every way that a shim can intercept. Prints the sum of the result.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstring>
#include <vector>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 64;

// What the dynamic linker would find, without asking it: the symbol in the library's GNU hash table, whose layout
// glibc's elf/dl-lookup.c tells.
void* symbol_of(const link_map* library, const char* name) {
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* hash = nullptr;
  for (const ElfW(Dyn)* entry = library->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    if (entry->d_tag == DT_GNU_HASH) hash = reinterpret_cast<const std::uint32_t*>(entry->d_un.d_ptr);
  }
  const std::uint32_t buckets = hash[0], first = hash[1], bloom_words = hash[2];
  const std::uint32_t* const bucket = hash + 4 + std::size_t{bloom_words} * (sizeof(ElfW(Addr)) / 4);
  const std::uint32_t* const chain = bucket + buckets;
  std::uint32_t wanted = 5381;
  for (const char* c = name; *c; ++c) wanted = wanted * 33 + static_cast<unsigned char>(*c);
  for (std::uint32_t i = bucket[wanted % buckets]; i >= first; ++i) {
    if ((chain[i - first] | 1) == (wanted | 1) && std::strcmp(strings + symbols[i].st_name, name) == 0)
      return reinterpret_cast<void*>(library->l_addr + symbols[i].st_value);
    if (chain[i - first] & 1) break;
  }
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const int seen = argc > 1 ? std::atoi(argv[1]) : 20, unseen = argc > 2 ? std::atoi(argv[2]) : 5;
  start_driver();
  CUmodule module;
  CUfunction update;
  CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
  CHECK(cuModuleGetFunction(&update, module, "_Z6updateILi1EEvPjPKji"));
  CUdeviceptr state, change;
  CHECK(cuMemAlloc(&state, kCount * sizeof(unsigned)));
  CHECK(cuMemAlloc(&change, kCount * sizeof(unsigned)));
  CHECK(cuMemsetD32(state, 1, kCount));
  CHECK(cuMemsetD32(change, 2, kCount));
  link_map* library = nullptr;
  if (dlinfo(dlopen("libcuda.so.1", RTLD_NOW), RTLD_DI_LINKMAP, &library) != 0) return 1;
  const auto past_the_shim = reinterpret_cast<decltype(&::cuLaunchKernel)>(symbol_of(library, "cuLaunchKernel"));
  if (!past_the_shim) return 1;
  int count = kCount;
  void* params[] = {&state, &change, &count};
  for (int i = 0; i < seen + unseen; ++i)
    CHECK((i < seen ? &::cuLaunchKernel : past_the_shim)(update, 1, 1, 1, kCount, 1, 1, 0, nullptr, params, nullptr));
  std::vector<unsigned> result(kCount);
  CHECK(cuMemcpyDtoH(result.data(), state, kCount * sizeof(unsigned)));
  unsigned sum = 0;
  for (const unsigned value : result) sum += value;
  std::printf("%u\n", sum);
  return 0;
}
