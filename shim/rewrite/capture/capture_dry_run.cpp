#include "shim/rewrite/capture/capture_dry_run.h"

namespace nimble::shim {

namespace {

// The driver numbers its captures from small numbers up.
constexpr std::uint64_t kOurs = std::uint64_t{1} << 63;

}  // namespace

std::uint64_t Rehearsals::begin(std::uint64_t stream) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = kOurs | ++last_;
  rehearsals_[number].streams.insert(stream);
  count_.fetch_add(1, std::memory_order_relaxed);
  return number;
}

std::size_t Rehearsals::end(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = rehearsals_.find(number);
  if (found == rehearsals_.end()) return 0;
  const std::size_t streams = found->second.streams.size();
  rehearsals_.erase(found);
  count_.fetch_sub(1, std::memory_order_relaxed);
  return streams;
}

void Rehearsals::follow(const Call& call) {
  const bool waits = call.kind == CallKind::event_wait;
  // Launches may record events, too.
  const bool records = call.kind == CallKind::event_record || (call.kind == CallKind::launch && call.event);
  if (!waits && !records) return;
  const std::lock_guard lock(mutex_);
  for (auto& [number, rehearsal] : rehearsals_) {
    const bool is_part = rehearsal.streams.contains(call.stream.key);
    if (waits) {
      if (rehearsal.events.contains(call.event)) rehearsal.streams.insert(call.stream.key);
      continue;
    }
    for (CUevent const event : {call.event, call.event2}) {
      if (!event) continue;
      if (is_part) {
        rehearsal.events.insert(event);
      } else {
        rehearsal.events.erase(event);
      }
    }
  }
}

void Rehearsals::ending(const Call& call) {
  if (call.ends != Ends::event && call.ends != Ends::stream) return;
  const std::lock_guard lock(mutex_);
  for (auto& [number, rehearsal] : rehearsals_) {
    if (call.ends == Ends::event) rehearsal.events.erase(call.event);
    if (call.ends == Ends::stream) rehearsal.streams.erase(call.stream.key);
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
