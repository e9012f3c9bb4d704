// Turns a touch of memory that is closed to the device into what a GPU makes of it: the op ends there, and faults.
//
// The memory of a mapping is protected from the process itself; a signal handler sees the touch. It is there from the
// first time that a program takes access away. Ops run on one thread at a time, which the driver's mutex sees to.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <csetjmp>
#include <cstdint>

namespace simcuda {

struct DeviceFault {
  std::uint64_t address = 0;
  bool write = false;
};

// From now on such touches end ops; before that, they end the process.
void catch_device_faults();
bool catches_device_faults();

namespace detail {

// Of the op that runs: where it goes on if it faults, null if none runs; on which thread; and its fault. Not variables
// of a thread: these would lie on the stack of each.
struct Running {
  sigjmp_buf* after_fault = nullptr;
  pthread_t thread{};
  DeviceFault fault;
};
extern Running g_running;

// Ops may run on a thread that blocks all signals.
class FaultsUnblocked {
 public:
  FaultsUnblocked() {
    sigset_t faults;
    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    pthread_sigmask(SIG_UNBLOCK, &faults, &before_);
  }
  ~FaultsUnblocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  FaultsUnblocked(const FaultsUnblocked&) = delete;
  FaultsUnblocked& operator=(const FaultsUnblocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace detail

// Runs it. False if it has faulted: then what it held on its stack is lost without being destroyed.
template <typename Run>
bool runs_without_fault(Run run, DeviceFault& fault) {
  if (!catches_device_faults()) {
    run();
    return true;
  }
  const detail::FaultsUnblocked unblocked;
  sigjmp_buf after;
  detail::g_running.thread = pthread_self();
  if (sigsetjmp(after, 1) != 0) {
    detail::g_running.after_fault = nullptr;
    fault = detail::g_running.fault;
    return false;
  }
  detail::g_running.after_fault = &after;
  run();
  detail::g_running.after_fault = nullptr;
  return true;
}

}  // namespace simcuda
