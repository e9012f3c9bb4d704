// Functions that the C++ library takes from a newer glibc than libnimble.so requires, in terms of older ones. See
// glibc_floor.S. None of them is exported; all may be called by any thread.
#include <dlfcn.h>
#include <features.h>
#include <link.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>

extern "C" {

// 2.32. Whether atomic operations may be skipped. We do not hear of threads that a program starts: never.
extern const char __libc_single_threaded;
const char __libc_single_threaded = 0;

// 2.33. Before, it was an inline function in a header.
int fstat64(int file, struct stat64* status) noexcept { return static_cast<int>(syscall(SYS_fstat, file, status)); }

// 2.36.
std::uint32_t arc4random() noexcept {
  std::uint32_t value = 0;
  if (getentropy(&value, sizeof value) != 0) value = static_cast<std::uint32_t>(time(nullptr));
  return value;
}

// 2.30. A wait of the same length on the other clock differs only if that clock is set meanwhile; the waiter then
// checks its own clock again.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  if (clock == CLOCK_REALTIME) return pthread_cond_timedwait(condition, mutex, until);
  timespec now, real;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  constexpr long kSecond = 1'000'000'000;
  real.tv_sec += until->tv_sec - now.tv_sec;
  real.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (real.tv_nsec < 0) real.tv_nsec += kSecond, --real.tv_sec;
  if (real.tv_nsec >= kSecond) real.tv_nsec -= kSecond, ++real.tv_sec;
  return pthread_cond_timedwait(condition, mutex, &real);
}

#if __GLIBC_PREREQ(2, 35)
// 2.35. Finds the unwind tables for a piece of code; the unwinder did that itself before.
int _dl_find_object(void* address, struct dl_find_object* result) noexcept {
  struct Search {
    std::uintptr_t address;
    struct dl_find_object* result;
  } search{reinterpret_cast<std::uintptr_t>(address), result};
  const auto look = [](dl_phdr_info* info, std::size_t, void* data) {
    const auto& wanted = *static_cast<const Search*>(data);
    const ElfW(Phdr)* tables = nullptr;
    bool inside = false;
    for (const ElfW(Phdr)* segment = info->dlpi_phdr; segment != info->dlpi_phdr + info->dlpi_phnum; ++segment) {
      const std::uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
      if (segment->p_type == PT_GNU_EH_FRAME) tables = segment;
      if (segment->p_type != PT_LOAD || wanted.address < begin || wanted.address >= begin + segment->p_memsz) continue;
      inside = true;
      wanted.result->dlfo_map_start = reinterpret_cast<void*>(begin);
      wanted.result->dlfo_map_end = reinterpret_cast<void*>(begin + segment->p_memsz);
    }
    if (!inside || !tables) return 0;
    wanted.result->dlfo_flags = 0;
    wanted.result->dlfo_link_map = nullptr;
    wanted.result->dlfo_eh_frame = reinterpret_cast<void*>(info->dlpi_addr + tables->p_vaddr);
    return 1;
  };
  return dl_iterate_phdr(look, &search) == 1 ? 0 : -1;
}
#endif

// From libm, to print fractions: these two alone would make us load another library. Taken from the processor, which
// rounds the same way in both of its units.
int fegetround() noexcept {
  std::uint16_t control = 0;
  __asm__ volatile("fnstcw %0" : "=m"(control));
  return control & 0xc00;
}
int fesetround(int rounding) noexcept {
  if (rounding & ~0xc00) return 1;
  std::uint16_t control = 0;
  __asm__ volatile("fnstcw %0" : "=m"(control));
  control = static_cast<std::uint16_t>((control & ~0xc00) | rounding);
  __asm__ volatile("fldcw %0" : : "m"(control));
  std::uint32_t vector = 0;
  __asm__ volatile("stmxcsr %0" : "=m"(vector));
  vector = (vector & ~0x6000u) | (static_cast<std::uint32_t>(rounding) << 3);
  __asm__ volatile("ldmxcsr %0" : : "m"(vector));
  return 0;
}
}
