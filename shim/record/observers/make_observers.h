// The observers of a recording, by what the user asks for: one line for each kind there is.
#pragma once

#include <cstdint>
#include <string>

#include "nimble/internal/call.h"
#include "shim/process/timing.h"
#include "shim/record/observer.h"

namespace nimble::shim {

struct ObserverOptions {
  Timing timing = Timing::none;
  bool coverage = false;  // let CUPTI count what the driver is called for
  bool probe = false;     // see what kernels write
  std::uint64_t probe_limit_bytes = 0;
  std::uint64_t probe_first = 0;  // so many, the first ones; 0: all
  bool probe_on_request = false;  // only launches of threads that ask for it (ProbeObserver::probe_this_thread)
  std::string bundle{};           // where a step is saved; empty: none is
  std::uint64_t bundle_limit_bytes = 0;
};

// `context` must outlive them.
RecordObservers make_observers(const ObserverOptions& options, CallContext& context);

}  // namespace nimble::shim
