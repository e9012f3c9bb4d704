// Keeps this thread from being cancelled (pthread_cancel) for a scope: where we wait or write on a thread of the
// program's, the program is not told that such calls are places at which its thread may end, and ours unwind nothing.
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
