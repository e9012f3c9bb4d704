// A program with a world of its own around its steps.
//
//   own_world clock     its own clock_gettime stands still
//   own_world sandbox   a filter traps openat, and its handler of SIGSYS refuses that
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "tests/integration/programs/common/driver.h"

static bool g_stands_still = false;

// Exported, so that libraries get this one.
extern "C" [[gnu::visibility("default")]] int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (!g_stands_still) return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  *time = {1'000'000, 0};
  return 0;
}

namespace {

void refuse(int /*signal*/, siginfo_t* /*info*/, void* context) {
  mcontext_t& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  machine.gregs[REG_RAX] = -EACCES;
#else
  machine.regs[0] = static_cast<std::uint64_t>(-EACCES);
#endif
}

bool enter_sandbox() {
  struct sigaction action {};
  action.sa_sigaction = refuse;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSYS, &action, nullptr);
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{sizeof filter / sizeof filter[0], filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

}  // namespace

int main(int count, char** arguments) {
  const bool is_clock = count > 1 && std::strcmp(arguments[1], "clock") == 0;
  start_driver();
  if (!is_clock && !enter_sandbox()) return std::puts("no filters here"), 0;
  g_stands_still = is_clock;
  CUdeviceptr memory = 0;
  CHECK(cuMemAlloc(&memory, 4096));
  std::uint64_t sum = 0;
  for (unsigned step = 0; step < 200; ++step) {
    unsigned char seen[16];
    CHECK(cuMemsetD8Async(memory, static_cast<unsigned char>(step), 4096, nullptr));
    CHECK(cuMemsetD8Async(memory + 8, 7, 4, nullptr));
    CHECK(cuMemcpyDtoH(seen, memory, sizeof seen));
    for (const unsigned char byte : seen) sum = sum * 31 + byte;
  }
  std::printf("%llu\n", static_cast<unsigned long long>(sum));
}
