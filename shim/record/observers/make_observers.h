// Makes the observers of a recording from the user's options: one line for each kind.
#pragma once

#include <cstdint>
#include <string>

#include "nimble/internal/call.h"
#include "shim/options/timing.h"
#include "shim/record/observer.h"

namespace nimble::shim {

struct ObserverOptions {
  Timing timing = Timing::none;
  bool coverage = false;  // let CUPTI count the driver's calls
  bool probe = false;     // see what kernels write
  std::uint64_t probe_limit_bytes = 0;
  std::uint64_t probe_first = 0;  // only the first so many launches; 0: all
  bool probe_on_request = false;  // only launches of threads that ask for it (ProbeObserver::probe_this_thread)
  std::string bundle{};           // where to save a step; empty: nowhere
  std::uint64_t bundle_limit_bytes = 0;
};

// `context` must outlive them.
RecordObservers make_observers(const ObserverOptions& options, CallContext& context);

}  // namespace nimble::shim
