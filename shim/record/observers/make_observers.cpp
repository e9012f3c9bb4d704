#include "shim/record/observers/make_observers.h"

#include "shim/record/observers/bundle/bundle_observer.h"
#include "shim/record/observers/op_timer.h"
#include "shim/record/observers/probe/probe_observer.h"

namespace nimble::shim {

// In the order of their before(). The time of a call must not include reading memory: the timer comes last.
RecordObservers make_observers(const ObserverOptions& options, CallContext& context) {
  RecordObservers observers;
  if (!options.bundle.empty())
    observers.push_back(
        std::make_unique<BundleObserver>(StepSaverOptions{options.bundle, options.bundle_limit_bytes}, context));
  if (options.probe)
    observers.push_back(std::make_unique<ProbeObserver>(options.probe_limit_bytes, options.probe_first,
                                                        options.probe_on_request, context));
  if (options.timing != Timing::none || options.coverage)
    observers.push_back(std::make_unique<OpTimer>(options.timing, options.coverage, context));
  return observers;
}

}  // namespace nimble::shim
