// See device_fault.h.
#include "tests/simcuda/engine/device_fault.h"

#include <signal.h>
#include <ucontext.h>

#include <atomic>

#include "tests/simcuda/driver/driver.h"

namespace simcuda {

namespace detail {

constinit Running g_running;

}  // namespace detail

namespace {

std::atomic<bool> g_catches{false};
struct sigaction g_before {};

// Whether the access was a write; where the machine does not say, a read.
bool is_write([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  constexpr greg_t kWrite = 2;
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWrite) != 0;
#else
  return false;
#endif
}

void touched(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uint64_t>(info->si_addr);
  detail::Running& running = detail::g_running;
  if (running.after_fault != nullptr && pthread_equal(running.thread, pthread_self()) != 0 &&
      driver().memory.on_device(address)) {
    running.fault = {address, is_write(context)};
    siglongjmp(*running.after_fault, 1);
  }
  // Not ours: the instruction runs again, and this time it is the program's.
  sigaction(signal, &g_before, nullptr);
}

}  // namespace

void catch_device_faults() {
  if (g_catches.exchange(true)) return;
  struct sigaction action {};
  action.sa_sigaction = touched;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &g_before);
}

bool catches_device_faults() { return g_catches.load(std::memory_order_relaxed); }

}  // namespace simcuda
