#include "bench/host/counted_malloc.h"

#include <cerrno>
#include <cstddef>

namespace {

constinit thread_local std::uint64_t counted_calls = 0;

void* counted(void* memory) {
  ++counted_calls;
  return memory;
}

}  // namespace

namespace nimble::bench {

std::uint64_t allocations() { return counted_calls; }

}  // namespace nimble::bench

extern "C" {

// glibc's own, under the names that it keeps for those who stand in for them.
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* memory);

void* malloc(std::size_t bytes) { return counted(__libc_malloc(bytes)); }
void* calloc(std::size_t count, std::size_t bytes) { return counted(__libc_calloc(count, bytes)); }
void* realloc(void* memory, std::size_t bytes) { return counted(__libc_realloc(memory, bytes)); }
void* memalign(std::size_t alignment, std::size_t bytes) { return counted(__libc_memalign(alignment, bytes)); }
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return counted(__libc_memalign(alignment, bytes)); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  void* const found = counted(__libc_memalign(alignment, bytes));
  if (!found) return ENOMEM;
  *memory = found;
  return 0;
}
void free(void* memory) { __libc_free(memory); }
}
