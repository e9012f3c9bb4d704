// CUPTI's functions with which a client starts, as libnimble.so exports them: before a client of the program starts,
// Nimble's own releases CUPTI, since a process has room for one. Then the call goes on to the CUPTI that its caller
// would reach without us. So torch.profiler finds CUPTI free in a program that is being recorded.
//
// Any thread. No lock is held while the dynamic loader is called.
#include "shim/driver/dlsym_hook.h"
#include "shim/driver/exported_names.h"

namespace {

constexpr int kNotInitialized = 15;  // CUPTI_ERROR_NOT_INITIALIZED

template <class... Args>
int pass_on(const void* caller, const char* name, Args... args) {
  nimble::shim::cupti_client_comes();
  void* const function = nimble::shim::find_beyond(caller, name);
  return function ? reinterpret_cast<int (*)(Args...)>(function)(args...) : kNotInitialized;
}

}  // namespace

// In the section of our exports, by which lookups by name tell them from CUPTI's (shim/driver/dlsym_hook.cpp). Handles,
// callbacks and structures are opaque.
#define NIMBLE_EXPORT __attribute__((visibility("default"), section("nimble_exports"), noinline))

extern "C" {

NIMBLE_EXPORT int cuptiSubscribe(void* subscriber, void* callback, void* user) {
  return pass_on(__builtin_return_address(0), nimble::shim::kCuptiSubscribe, subscriber, callback, user);
}

NIMBLE_EXPORT int cuptiSubscribe_v2(void* subscriber, void* callback, void* user, void* params) {
  return pass_on(__builtin_return_address(0), nimble::shim::kCuptiSubscribeV2, subscriber, callback, user, params);
}

NIMBLE_EXPORT int cuptiActivityRegisterCallbacks(void* request, void* complete) {
  return pass_on(__builtin_return_address(0), nimble::shim::kCuptiRegister, request, complete);
}

}  // extern "C"
