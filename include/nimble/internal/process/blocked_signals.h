// Blocks signals of this thread for a scope: threads created in it inherit that, so that none of the program's signal
// handlers runs on our threads. Restores the thread's own mask at the end, whatever happens in between.
//
// Not those that the thread brings about itself: the kernel kills whoever blocks them instead of calling the handler,
// such as a sandbox's, which answers system calls that its filter traps (SECCOMP_RET_TRAP).
#pragma once

#include <pthread.h>

#include <csignal>

namespace nimble {

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int own : {SIGSYS, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&blocked, own);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace nimble
