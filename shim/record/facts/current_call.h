// The recorded call that this thread is in, for callbacks that the driver makes meanwhile (CUPTI's run on the calling
// thread, inside the driver's call). Thread-local: nothing to synchronise.
#pragma once

#include <cstdint>

namespace nimble::shim {

struct CurrentCall {
  const char* symbol = nullptr;  // of the entry point, null outside of recorded calls
  std::uint64_t ticket = 0;      // by which times that arrive later name this op; 0: none will come
};

inline CurrentCall& current_call() {
  static thread_local CurrentCall call __attribute__((tls_model("initial-exec")));
  return call;
}

}  // namespace nimble::shim
