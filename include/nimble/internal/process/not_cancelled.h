// Keeps this thread from being cancelled (pthread_cancel) for a scope: when we wait or write on a program thread, the
// program does not expect cancellation points there, and our code does not unwind for them.
#pragma once

#include <pthread.h>

namespace nimble {

class NotCancelled {
 public:
  NotCancelled() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NotCancelled() { pthread_setcancelstate(before_, nullptr); }
  NotCancelled(const NotCancelled&) = delete;
  NotCancelled& operator=(const NotCancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace nimble
