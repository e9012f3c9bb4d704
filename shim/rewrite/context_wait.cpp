#include "shim/rewrite/context_wait.h"

#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <thread>

#include "nimble/internal/process/not_cancelled.h"
#include "nimble/internal/process/own_thread.h"
#include "nimble/internal/process/patience.h"

namespace nimble::shim {

namespace {

constexpr std::chrono::microseconds kLook{100};
// Time for a thread to get from its last step before the driver call into the driver's wait.
constexpr std::chrono::milliseconds kEntering{20};

enum class State : int { begun, waits, given_up, done, failed };

std::atomic<CUcontext> g_context{nullptr};  // of the waiting thread

}  // namespace

bool is_done_within(std::chrono::milliseconds patience, CUcontext cu_context, CallContext& context,
                    const std::function<void()>& enter_helper_thread) {
  const auto find = [&]<class Function>(Function* function, const char* name) {
    return reinterpret_cast<Function*>(context.driver_symbol(name));
  };
  const auto set = find(&::cuCtxSetCurrent, "cuCtxSetCurrent");
  const auto wait = find(&::cuCtxSynchronize, "cuCtxSynchronize");
  const auto exchange = find(&::cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  CUcontext none = nullptr;
  if (!set || !wait || !cu_context || !g_context.compare_exchange_strong(none, cu_context)) return false;
  std::shared_ptr<std::atomic<State>> state;
  try {
    state = std::make_shared<std::atomic<State>>(State::begun);
    const bool runs = start_own_thread([=] {
      if (enter_helper_thread) enter_helper_thread();
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      if (exchange) exchange(&mode);
      State expected = State::begun;
      if (set(cu_context) == CUDA_SUCCESS && state->compare_exchange_strong(expected, State::waits)) {
        const bool good = wait() == CUDA_SUCCESS;
        state->store(good ? State::done : State::failed, std::memory_order_release);
      } else {
        state->store(State::failed, std::memory_order_release);
      }
      set(nullptr);
      g_context.store(nullptr);
    });
    if (!runs) throw std::bad_alloc();
  } catch (const std::exception&) {  // out of memory or threads
    g_context.store(nullptr);
    return false;
  }
  const NotCancelled not_cancelled;
  Patience left(patience);
  const auto is_over = [&] {
    const State now = state->load(std::memory_order_acquire);
    return now == State::done || now == State::failed;
  };
  while (!is_over() && left.sleep(kLook)) {
  }
  State expected = State::begun;
  if (!state->compare_exchange_strong(expected, State::given_up) && !is_over()) std::this_thread::sleep_for(kEntering);
  return state->load(std::memory_order_acquire) == State::done;
}

void wait_for_helper(CUcontext cu_context) {
  const NotCancelled not_cancelled;
  while (cu_context && g_context.load(std::memory_order_acquire) == cu_context) std::this_thread::sleep_for(kLook);
}

}  // namespace nimble::shim
