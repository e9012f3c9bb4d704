#include "shim/rewrite/capture/dry_runs.h"

#include <vector>

#include "shim/state/stream_ref.h"

namespace nimble::shim {

std::uint64_t DryRuns::begin_capture(std::uint64_t stream, std::uint32_t thread) {
  const std::uint64_t number = rehearsals_.begin(stream);
  strays_.began(number, thread);
  return number;
}

// Returns how much bypassed it.
std::uint64_t DryRuns::end_capture(std::uint64_t number) {
  const std::uint64_t past = strays_.ended(number, nullptr);  // first: other threads may still be submitting
  rehearsals_.end(number);
  return past;
}

bool DryRuns::begin(CUstream stream) {
  const StreamRef ref = stream_ref(DefaultStream::legacy, stream);
  if (ref.is_legacy()) return false;
  const std::uint32_t index = thread_index();
  const std::lock_guard lock(mutex_);
  if (threads_.contains(index)) return false;
  threads_[index] = Rehearsing{begin_capture(ref.key, index), ref.key, std::nullopt, 0};
  return true;
}

bool DryRuns::begin_part() {
  const std::uint32_t index = thread_index();
  const std::lock_guard lock(mutex_);
  const auto found = threads_.find(index);
  if (found == threads_.end()) return false;
  Rehearsing& mine = found->second;
  if (mine.part) mine.behind += end_capture(*mine.part);
  mine.part = begin_capture(mine.stream, index);
  return true;
}

std::optional<DryRuns::Rehearsed> DryRuns::end() {
  const std::lock_guard lock(mutex_);
  const auto found = threads_.find(thread_index());
  if (found == threads_.end()) return std::nullopt;
  const Rehearsing mine = found->second;
  threads_.erase(found);
  const std::uint64_t behind = mine.behind + (mine.part ? end_capture(*mine.part) : 0);
  return Rehearsed{end_capture(mine.capture), behind};
}

void DryRuns::began(std::uint64_t capture) { strays_.began(capture, thread_index()); }

// Allocations are not work, nor are events, which bring work into a capture.
void DryRuns::submitted(const Call& call) {
  const bool are_rehearsed = rehearsals_.any();
  if (are_rehearsed) rehearsals_.follow(call);
  if (!captures_.any() && !are_rehearsed) return;
  if (!call.traced) return;  // such as setting a kernel's attribute: `kind` is not set then
  switch (call.kind) {
    case CallKind::launch:
    case CallKind::copy:
    case CallKind::set:
    case CallKind::host_function:
    case CallKind::graph_launch:
    case CallKind::opaque: {
      const std::optional<CapturesUnderWay::Capturing> capture = captures_.of(call);
      const std::vector<std::uint64_t> rehearsed =
          are_rehearsed ? rehearsals_.of(call.stream.key) : std::vector<std::uint64_t>();
      strays_.submitted(call.thread, capture ? capture->id : 0, call.caller, rehearsed);
      break;
    }
    default:
      break;
  }
}

}  // namespace nimble::shim
