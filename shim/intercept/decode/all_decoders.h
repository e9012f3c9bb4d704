// All decoders; a new one goes into the header of its subject (a new kind of call begins in nimble/internal/trace.h).
// And those of the calls with which a program finds the driver: its start, and cuGetProcAddress, which
// hands out wrappers.
#pragma once

#include "shim/driver/real_driver.h"
#include "shim/driver/va_reservation.h"
#include "shim/intercept/decode/code.h"
#include "shim/intercept/decode/copy.h"
#include "shim/intercept/decode/graph.h"
#include "shim/intercept/decode/launch.h"
#include "shim/intercept/decode/memory.h"
#include "shim/intercept/decode/question.h"
#include "shim/intercept/decode/stream.h"

namespace nimble::shim::decode {

// Sets the driver up: the moment at which addresses can still be reserved. Asking what there is does not use it yet.
struct Start {
  static void passed(unsigned) { keep_low_addresses_free(); }
};

// Hands out entry points: wrappers for those that are intercepted.
//
// The real driver decides on names, versions and flags. Where its answer is a pointer whose wrapper we have, the
// program gets the wrapper.
struct GetProcAddress {
  template <class... Rest>
  static void before(Entry, Call&, const char*, void**, Rest...) {}
  template <class... Rest>
  static void after(Call&, const char*, void** out, Rest...) {
    if (out) *out = wrapper_for_pointer(*out);
  }
};

}  // namespace nimble::shim::decode
