#include "replayer/driver_api.h"

namespace nimble {

namespace {

// Two steps, so that cuda.h's version macros are expanded before the name becomes text.
#define NIMBLE_TEXT_(name) #name
#define NIMBLE_TEXT(name) NIMBLE_TEXT_(name)

}  // namespace

const char* DriverApi::load(CallContext& context, bool audits) {
#define X(function)                                                                                    \
  function##_ = reinterpret_cast<decltype(function##_)>(context.driver_symbol(NIMBLE_TEXT(function))); \
  if (!function##_) return NIMBLE_TEXT(function);
  NIMBLE_REPLAY_FUNCTIONS(X)
  cuEventElapsedTime_ = reinterpret_cast<decltype(cuEventElapsedTime_)>(context.driver_symbol("cuEventElapsedTime"));
  if (!audits) return nullptr;
  NIMBLE_AUDIT_FUNCTIONS(X)
#undef X
  return nullptr;
}

}  // namespace nimble
