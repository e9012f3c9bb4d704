#include "shim/modes/program_region.h"

#include <utility>

namespace nimble::shim {

ProgramRegion::ProgramRegion(std::uint64_t limit_bytes, CallContext& context)
    : store_(std::make_shared<TraceStore>(limit_bytes)),
      recorder_(std::make_unique<Recorder>(RecorderOptions{.path = "a region", .store = store_}, context)) {}

std::string ProgramRegion::why() const {
  const std::lock_guard lock(why_mutex_);
  return why_;
}

void ProgramRegion::becomes(State state, std::string why) {
  const std::lock_guard lock(why_mutex_);
  const State now = this->state();
  if (now == State::refused || now == State::stale) return;
  why_ = std::move(why);
  state_.store(state, std::memory_order_release);
}

}  // namespace nimble::shim
