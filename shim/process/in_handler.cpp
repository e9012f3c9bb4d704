#include "shim/process/in_handler.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>

namespace nimble::shim {

namespace {

bool blocks_handled_signal() noexcept {
  sigset_t blocked;
  if (pthread_sigmask(SIG_SETMASK, nullptr, &blocked) != 0) return false;
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&blocked, signal) != 1) continue;
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) return true;
  }
  return false;
}

bool is_on_handler_stack() noexcept {
  stack_t stack{};
  return sigaltstack(nullptr, &stack) == 0 && (stack.ss_flags & SS_ONSTACK) != 0;
}

#if defined(__x86_64__)

// As the kernel has it (struct sigaction of arch/x86/include/uapi/asm/signal.h): libc's does not tell the restorer.
struct KernelAction {
  void* handler = nullptr;
  unsigned long flags = 0;
  std::uintptr_t restorer = 0;
  std::uint64_t mask = 0;
};

// Where handlers return to: mostly one place, which is the C library's.
struct Restorers {
  std::array<std::uintptr_t, NSIG> places{};
  std::size_t count = 0;
};

Restorers restorers() noexcept {
  constexpr unsigned long kRestorer = 0x04000000;  // SA_RESTORER
  Restorers found;
  for (int signal = 1; signal < NSIG; ++signal) {
    KernelAction action;
    if (syscall(SYS_rt_sigaction, signal, nullptr, &action, sizeof action.mask) != 0) continue;
    if ((action.flags & kRestorer) == 0 || action.restorer == 0) continue;
    const auto end = found.places.begin() + found.count;
    if (std::find(found.places.begin(), end, action.restorer) == end) found.places[found.count++] = action.restorer;
  }
  return found;
}

// Without a call that a sandbox might not know. The kernel looks at the set before it refuses the operation.
bool is_readable(std::uintptr_t address) noexcept {
  constexpr int kNone = -1;  // no operation
  return syscall(SYS_rt_sigprocmask, kNone, address, nullptr, sizeof KernelAction::mask) == 0 || errno != EFAULT;
}

// The kernel has put it onto the stack as the handler's return address, above all that the handler has called. The
// sanitizers know only parts of the stack that may be read by name.
[[gnu::noinline, gnu::no_sanitize("address", "thread", "undefined")]] bool stack_returns_to_handler() noexcept {
  constexpr std::uintptr_t kPage = 4096, kMostPages = (64 << 20) / kPage;  // deeper, it counts as in one
  const Restorers handlers = restorers();
  if (handlers.count == 0) return false;
  // This function's own copies lie below.
  auto at = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  for (std::uintptr_t pages = 0; pages < kMostPages; ++pages) {
    if (!is_readable(at)) return false;  // the stack has ended
    for (const std::uintptr_t end = (at / kPage + 1) * kPage; at < end; at += sizeof at) {
      const std::uintptr_t word = *reinterpret_cast<const std::uintptr_t*>(at);
      for (std::size_t i = 0; i < handlers.count; ++i)
        if (word == handlers.places[i]) return true;
    }
  }
  return true;
}

#else

// The address is only in a register there, and wherever the handler has put it.
bool stack_returns_to_handler() noexcept { return false; }

#endif

}  // namespace

bool may_be_in_handler() noexcept {
  return blocks_handled_signal() || is_on_handler_stack() || stack_returns_to_handler();
}

}  // namespace nimble::shim
