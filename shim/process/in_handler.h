// Whether this thread may be in a signal handler of the program's, which may have interrupted anything: malloc, with
// its lock taken, too. Then nothing may be done that such a lock would stop for ever.
//
// No state, allocates nothing, throws nothing; any thread.
#pragma once

#include <csignal>

namespace nimble::shim {

// While a handler runs its signal is blocked, unless the program has said otherwise (SA_NODEFER). So it may be in one
// if a signal that has a handler is blocked. Programs that block such signals anyway are taken to be in one.
inline bool may_be_in_handler() noexcept {
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

}  // namespace nimble::shim
