#include "shim/record/observers/bundle/bundle_observer.h"

#include <utility>

#include "shim/state/code/image_facts.h"

namespace nimble::shim {

BundleObserver::BundleObserver(StepSaverOptions options, CallContext& context)
    : options_(std::move(options)), context_(context) {
  keep_image_bytes();
}

bool BundleObserver::start(const Times&) {
  capture_ = std::make_unique<StepSaver>(options_, context_);
  ready_.store(capture_.get(), std::memory_order_release);
  return false;
}

void BundleObserver::before(const Call& call, std::uint64_t, const std::atomic<bool>& any_captures) {
  if (StepSaver* const capture = ready()) capture->before(call, any_captures);
}

void BundleObserver::kept(const Call& call, CUresult result, std::uint64_t seq) {
  if (StepSaver* const capture = ready()) capture->after(call, result, seq);
}

void BundleObserver::ends(const Call& call, const std::atomic<bool>& any_captures) {
  if (StepSaver* const capture = ready()) capture->before(call, any_captures);
}

void BundleObserver::finish(const std::string& trace) noexcept {
  if (StepSaver* const capture = ready()) capture->finish(trace);
}

void BundleObserver::forked() noexcept {
  if (StepSaver* const capture = ready()) capture->forked();
}

}  // namespace nimble::shim
