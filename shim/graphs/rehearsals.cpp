#include "shim/graphs/rehearsals.h"

namespace nimble::shim {

namespace {

// The driver counts its captures from small numbers on.
constexpr std::uint64_t kOurs = std::uint64_t{1} << 63;

}  // namespace

std::uint64_t Rehearsals::begin(std::uint64_t stream) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = kOurs | ++last_;
  rehearsals_[number].streams.insert(stream);
  count_.fetch_add(1, std::memory_order_relaxed);
  return number;
}

void Rehearsals::end(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (rehearsals_.erase(number)) count_.fetch_sub(1, std::memory_order_relaxed);
}

void Rehearsals::follow(const Call& call) {
  const bool records = call.kind == CallKind::event_record, waits = call.kind == CallKind::event_wait;
  if (!records && !waits && call.ends != Ends::event && call.ends != Ends::stream) return;
  const std::lock_guard lock(mutex_);
  for (auto& [number, rehearsal] : rehearsals_) {
    if (records && rehearsal.streams.contains(call.stream.key)) {
      rehearsal.events.insert(call.event);
    } else if (records || call.ends == Ends::event) {
      rehearsal.events.erase(call.event);
    } else if (waits && rehearsal.events.contains(call.event)) {
      rehearsal.streams.insert(call.stream.key);
    } else if (call.ends == Ends::stream) {
      rehearsal.streams.erase(call.stream.key);
    }
  }
}

std::vector<std::uint64_t> Rehearsals::of(std::uint64_t stream) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, rehearsal] : rehearsals_)
    if (rehearsal.streams.contains(stream)) numbers.push_back(number);
  return numbers;
}

}  // namespace nimble::shim
