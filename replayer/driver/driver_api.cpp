#include "replayer/driver/driver_api.h"

namespace nimble {

namespace {

// Two steps, so that cuda.h's version macros are expanded before the name becomes text.
#define NIMBLE_TEXT_(name) #name
#define NIMBLE_TEXT(name) NIMBLE_TEXT_(name)

}  // namespace

const char* DriverApi::load(CallContext& context, bool audits) {
  bool needed = true;
#define X(function)                                                                                    \
  function##_ = reinterpret_cast<decltype(function##_)>(context.driver_symbol(NIMBLE_TEXT(function))); \
  if (!function##_ && needed) return NIMBLE_TEXT(function);
  NIMBLE_REPLAY_FUNCTIONS(X)
  NIMBLE_MEMORY_FUNCTIONS(X)
  cuEventElapsedTime_ = reinterpret_cast<decltype(cuEventElapsedTime_)>(context.driver_symbol("cuEventElapsedTime"));
  needed = audits;
  NIMBLE_AUDIT_FUNCTIONS(X)
#undef X
  return cuMemAlloc_ ? nullptr : "cuMemAlloc";
}

}  // namespace nimble
