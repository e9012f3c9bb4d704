// The part of a simcuda image that is the same in every image: the table of its kernels, simcuda_image(), and in an
// instrumented image the callbacks that -fsanitize=thread code calls for each load and store. No sanitizer's run-time
// library is linked: these callbacks are all there is, and they hand each access to the hooks of the simulated driver,
// which knows which addresses are device memory.
//
// This file is compiled without the sanitizer, once for each image. Not thread-safe, as the driver runs one kernel at a
// time; the table is filled by static initialisers, while the image is loaded.
#include <cstdlib>
#include <cstring>

#include "tests/simcuda/image/image_abi.h"

#define SIMCUDA_HIDDEN __attribute__((visibility("hidden")))

namespace nimble_simcuda {
namespace {

// Plain zero-initialised storage, since kernels register themselves before this file's own initialisers may have run.
SimKernel* kernels;
std::uint32_t kernel_count, kernel_capacity;

}  // namespace

SIMCUDA_HIDDEN void register_kernel(const SimKernel& kernel) {
  if (kernel_count == kernel_capacity) {
    const std::uint32_t capacity = kernel_capacity == 0 ? 32 : kernel_capacity * 2;
    void* grown = std::realloc(kernels, capacity * sizeof(SimKernel));
    if (grown == nullptr) std::abort();
    kernels = static_cast<SimKernel*>(grown);
    kernel_capacity = capacity;
  }
  kernels[kernel_count++] = kernel;
}

namespace {

__attribute__((destructor)) void release_kernels() {
  std::free(kernels);
  kernels = nullptr;
}

}  // namespace
}  // namespace nimble_simcuda

#if defined(SIMCUDA_INSTRUMENTED)

namespace {

const SimHooks* hooks;

void set_hooks(const SimHooks* given) { hooks = given; }

inline void touch(const volatile void* address, std::uint64_t bytes, bool write) {
  if (hooks != nullptr) hooks->access(const_cast<const void*>(address), bytes, write);
}

}  // namespace

extern "C" {

// Loads and stores. The volatile names stand for volatile accesses, where the compiler is told to tell them apart.
#define SIMCUDA_ACCESS(size)                                                                   \
  SIMCUDA_HIDDEN void __tsan_read##size(void* p) { touch(p, size, false); }                    \
  SIMCUDA_HIDDEN void __tsan_write##size(void* p) { touch(p, size, true); }                    \
  SIMCUDA_HIDDEN void __tsan_unaligned_read##size(void* p) { touch(p, size, false); }          \
  SIMCUDA_HIDDEN void __tsan_unaligned_write##size(void* p) { touch(p, size, true); }          \
  SIMCUDA_HIDDEN void __tsan_volatile_read##size(void* p) { touch(p, size, false); }           \
  SIMCUDA_HIDDEN void __tsan_volatile_write##size(void* p) { touch(p, size, true); }           \
  SIMCUDA_HIDDEN void __tsan_unaligned_volatile_read##size(void* p) { touch(p, size, false); } \
  SIMCUDA_HIDDEN void __tsan_unaligned_volatile_write##size(void* p) { touch(p, size, true); } \
  SIMCUDA_HIDDEN void __tsan_read_write##size(void* p) {                                       \
    touch(p, size, false);                                                                     \
    touch(p, size, true);                                                                      \
  }                                                                                            \
  SIMCUDA_HIDDEN void __tsan_unaligned_read_write##size(void* p) {                             \
    touch(p, size, false);                                                                     \
    touch(p, size, true);                                                                      \
  }
SIMCUDA_ACCESS(1)
SIMCUDA_ACCESS(2)
SIMCUDA_ACCESS(4)
SIMCUDA_ACCESS(8)
SIMCUDA_ACCESS(16)
#undef SIMCUDA_ACCESS

SIMCUDA_HIDDEN void __tsan_read_range(void* p, unsigned long bytes) { touch(p, bytes, false); }
SIMCUDA_HIDDEN void __tsan_write_range(void* p, unsigned long bytes) { touch(p, bytes, true); }
SIMCUDA_HIDDEN void __tsan_vptr_read(void** p) { touch(p, sizeof(void*), false); }
SIMCUDA_HIDDEN void __tsan_vptr_update(void** p, void*) { touch(p, sizeof(void*), true); }

// What only a run-time library would need.
SIMCUDA_HIDDEN void __tsan_init() {}
SIMCUDA_HIDDEN void __tsan_func_entry(void*) {}
SIMCUDA_HIDDEN void __tsan_func_exit() {}
SIMCUDA_HIDDEN void __tsan_ignore_thread_begin() {}
SIMCUDA_HIDDEN void __tsan_ignore_thread_end() {}
SIMCUDA_HIDDEN void __tsan_atomic_thread_fence(int) {}
SIMCUDA_HIDDEN void __tsan_atomic_signal_fence(int) {}

// Atomics. The instrumentation replaces the operation by the call, so these also do it; sequentially consistent always.
#define SIMCUDA_FETCH(bits, type, name, operation)                                            \
  SIMCUDA_HIDDEN type __tsan_atomic##bits##_fetch_##name(volatile type* p, type value, int) { \
    touch(p, sizeof(type), false);                                                            \
    touch(p, sizeof(type), true);                                                             \
    return operation(p, value, __ATOMIC_SEQ_CST);                                             \
  }
#define SIMCUDA_EXCHANGE(bits, type, name)                                                                          \
  SIMCUDA_HIDDEN int __tsan_atomic##bits##_compare_exchange_##name(volatile type* p, type* expected, type desired,  \
                                                                   int, int) {                                      \
    touch(p, sizeof(type), false);                                                                                  \
    const bool done = __atomic_compare_exchange_n(p, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    if (done) touch(p, sizeof(type), true);                                                                         \
    return done;                                                                                                    \
  }
#define SIMCUDA_ATOMIC(bits, type)                                                                                   \
  SIMCUDA_HIDDEN type __tsan_atomic##bits##_load(const volatile type* p, int) {                                      \
    touch(p, sizeof(type), false);                                                                                   \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                                     \
  }                                                                                                                  \
  SIMCUDA_HIDDEN void __tsan_atomic##bits##_store(volatile type* p, type value, int) {                               \
    touch(p, sizeof(type), true);                                                                                    \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                                    \
  }                                                                                                                  \
  SIMCUDA_HIDDEN type __tsan_atomic##bits##_exchange(volatile type* p, type value, int) {                            \
    touch(p, sizeof(type), false);                                                                                   \
    touch(p, sizeof(type), true);                                                                                    \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                                          \
  }                                                                                                                  \
  SIMCUDA_FETCH(bits, type, add, __atomic_fetch_add)                                                                 \
  SIMCUDA_FETCH(bits, type, sub, __atomic_fetch_sub)                                                                 \
  SIMCUDA_FETCH(bits, type, and, __atomic_fetch_and)                                                                 \
  SIMCUDA_FETCH(bits, type, or, __atomic_fetch_or)                                                                   \
  SIMCUDA_FETCH(bits, type, xor, __atomic_fetch_xor)                                                                 \
  SIMCUDA_FETCH(bits, type, nand, __atomic_fetch_nand)                                                               \
  SIMCUDA_EXCHANGE(bits, type, strong)                                                                               \
  SIMCUDA_EXCHANGE(bits, type, weak)                                                                                 \
  SIMCUDA_HIDDEN type __tsan_atomic##bits##_compare_exchange_val(volatile type* p, type expected, type desired, int, \
                                                                 int) {                                              \
    __tsan_atomic##bits##_compare_exchange_strong(p, &expected, desired, 0, 0);                                      \
    return expected;                                                                                                 \
  }
SIMCUDA_ATOMIC(8, std::uint8_t)
SIMCUDA_ATOMIC(16, std::uint16_t)
SIMCUDA_ATOMIC(32, std::uint32_t)
SIMCUDA_ATOMIC(64, std::uint64_t)
#undef SIMCUDA_ATOMIC
#undef SIMCUDA_EXCHANGE
#undef SIMCUDA_FETCH

// Block operations: newer clang calls them by these names, everything else by libc's names, which the link of an
// instrumented image wraps (-Wl,--wrap).
void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __real_memset(void* to, int value, std::size_t bytes);

SIMCUDA_HIDDEN void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  touch(from, bytes, false);
  touch(to, bytes, true);
  return __real_memcpy(to, from, bytes);
}
SIMCUDA_HIDDEN void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  touch(from, bytes, false);
  touch(to, bytes, true);
  return __real_memmove(to, from, bytes);
}
SIMCUDA_HIDDEN void* __wrap_memset(void* to, int value, std::size_t bytes) {
  touch(to, bytes, true);
  return __real_memset(to, value, bytes);
}
SIMCUDA_HIDDEN void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
  return __wrap_memcpy(to, from, bytes);
}
SIMCUDA_HIDDEN void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
  return __wrap_memmove(to, from, bytes);
}
SIMCUDA_HIDDEN void* __tsan_memset(void* to, int value, std::size_t bytes) { return __wrap_memset(to, value, bytes); }
}

#endif

extern "C" __attribute__((visibility("default"))) const SimImage* simcuda_image() {
  static SimImage image;
  image.kernels = nimble_simcuda::kernels;
  image.kernel_count = nimble_simcuda::kernel_count;
#if defined(SIMCUDA_INSTRUMENTED)
  image.set_hooks = &set_hooks;
#endif
  return &image;
}
