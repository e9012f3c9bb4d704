// Blocks all signals of this thread for a scope: threads created in it inherit that, so that none of the program's
// signal handlers runs on our threads. Restores the thread's own mask at the end, whatever happens in between.
#pragma once

#include <pthread.h>
#include <csignal>

namespace nimble {

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace nimble
