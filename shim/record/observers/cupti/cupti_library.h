// libcupti, loaded at run time: Nimble works without it, and links to nothing of the toolkit.
#pragma once

#include <cupti.h>

#include <string>

namespace nimble::shim {

// The part of CUPTI that we use. Activity records have only grown at their ends over the versions; the fields read here
// are where they were in CUDA 11.
// clang-format off
#define NIMBLE_CUPTI_FUNCTIONS(X)                                                                    \
  X(cuptiGetVersion) X(cuptiGetResultString) X(cuptiGetTimestamp)                                    \
  X(cuptiSubscribe) X(cuptiUnsubscribe) X(cuptiEnableCallback) X(cuptiGetCallbackName)               \
  X(cuptiActivityRegisterCallbacks) X(cuptiActivityEnable) X(cuptiActivityDisable)                   \
  X(cuptiActivityFlushAll) X(cuptiActivityFlushPeriod) X(cuptiActivityGetNextRecord)
// clang-format on

struct CuptiLibrary {
#define X(function) decltype(&::function) function##_ = nullptr;
  NIMBLE_CUPTI_FUNCTIONS(X)
#undef X

  // Finds the library of the driver's major version and all of its functions: one that the program has loaded already,
  // else by name, else next to other CUDA libraries of the program, else where toolkits are installed. False, with the
  // reason in `why`, if there is none. Takes the dynamic loader's lock.
  bool load(int driver_version, std::string& why);

  // "CUPTI_ERROR_...", or the number.
  std::string text(CUptiResult result) const;
};

}  // namespace nimble::shim
