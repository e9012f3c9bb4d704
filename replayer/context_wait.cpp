#include "replayer/context_wait.h"

#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <thread>

#include "nimble/own_thread.h"

namespace nimble {

namespace {

constexpr std::chrono::microseconds kLook{100};

enum class Outcome : int { none, done, failed };

std::atomic<bool> g_waits{false};  // one does

}  // namespace

bool is_done_within(std::chrono::milliseconds patience, CUcontext cu_context, CallContext& context,
                    const std::function<void()>& enter_helper_thread) {
  const auto find = [&]<class Function>(Function* function, const char* name) {
    return reinterpret_cast<Function*>(context.driver_symbol(name));
  };
  const auto set = find(&::cuCtxSetCurrent, "cuCtxSetCurrent");
  const auto wait = find(&::cuCtxSynchronize, "cuCtxSynchronize");
  const auto exchange = find(&::cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  if (!set || !wait || !cu_context || g_waits.exchange(true)) return false;
  std::shared_ptr<std::atomic<Outcome>> outcome;
  try {
    outcome = std::make_shared<std::atomic<Outcome>>(Outcome::none);
    const bool runs = start_own_thread([=] {
      if (enter_helper_thread) enter_helper_thread();
      // Another thread may begin a capture meanwhile, which this must not end.
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      if (exchange) exchange(&mode);
      const bool good = set(cu_context) == CUDA_SUCCESS && wait() == CUDA_SUCCESS;
      outcome->store(good ? Outcome::done : Outcome::failed, std::memory_order_release);
      g_waits.store(false);
    });
    if (!runs) throw std::bad_alloc();
  } catch (const std::exception&) {  // no memory, or no thread to be had
    g_waits.store(false);
    return false;
  }
  const auto end = std::chrono::steady_clock::now() + patience;
  while (outcome->load(std::memory_order_acquire) == Outcome::none && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(kLook);
  return outcome->load(std::memory_order_acquire) == Outcome::done;
}

}  // namespace nimble
