// Compiled without sanitizers, like everything that runs inside dlsym.
#include "shim/driver/libc_symbols.h"

#include <link.h>

#include <cstdint>

namespace nimble::shim {

namespace {

// What the dynamic section of one object says, as far as a lookup needs it.
struct Tables {
  const char* strings = nullptr;
  const ElfW(Sym) * symbols = nullptr;
  const std::uint32_t* hash = nullptr;
  const char* soname = nullptr;
};

Tables tables_of(const link_map& map) {
  Tables tables;
  ElfW(Xword) soname = 0;
  // The loader has made these pointers absolute, but not in objects that it cannot write to.
  const auto at = [&](ElfW(Addr) value) { return value < map.l_addr ? value + map.l_addr : value; };
  for (const ElfW(Dyn)* entry = map.l_ld; entry && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) tables.strings = reinterpret_cast<const char*>(at(entry->d_un.d_ptr));
    if (entry->d_tag == DT_SYMTAB) tables.symbols = reinterpret_cast<const ElfW(Sym)*>(at(entry->d_un.d_ptr));
    if (entry->d_tag == DT_GNU_HASH) tables.hash = reinterpret_cast<const std::uint32_t*>(at(entry->d_un.d_ptr));
    if (entry->d_tag == DT_SONAME) soname = entry->d_un.d_val;
  }
  if (tables.strings && soname) tables.soname = tables.strings + soname;
  return tables;
}

// Not strcmp, which sanitizers intercept, and may not be ready for.
bool same(const char* a, const char* b) {
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}

std::uint32_t gnu_hash(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

// The first definition of `name`. If a function of the loader has several versions, they are the same function.
const ElfW(Sym) * find(const Tables& tables, const char* name) {
  const std::uint32_t buckets = tables.hash[0], first = tables.hash[1], bloom_words = tables.hash[2];
  const std::uint32_t* const bucket = tables.hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
  const std::uint32_t* const chain = bucket + buckets;
  const std::uint32_t hash = gnu_hash(name);
  if (buckets == 0) return nullptr;
  std::uint32_t index = bucket[hash % buckets];
  if (index < first) return nullptr;
  for (;; ++index) {
    const std::uint32_t here = chain[index - first];
    const ElfW(Sym)& symbol = tables.symbols[index];
    if ((here | 1) == (hash | 1) && symbol.st_shndx != SHN_UNDEF && same(tables.strings + symbol.st_name, name))
      return &symbol;
    if (here & 1) return nullptr;
  }
}

}  // namespace

void* libc_symbol(const char* name) {
  for (const link_map* map = _r_debug.r_map; map; map = map->l_next) {
    const Tables tables = tables_of(*map);
    if (!tables.soname || !tables.symbols || !tables.hash) continue;
    if (!same(tables.soname, "libc.so.6") && !same(tables.soname, "libdl.so.2")) continue;
    if (const ElfW(Sym)* symbol = find(tables, name)) return reinterpret_cast<void*>(map->l_addr + symbol->st_value);
  }
  return nullptr;
}

}  // namespace nimble::shim
