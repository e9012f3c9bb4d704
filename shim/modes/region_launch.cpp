// How regions are launched, and how what they have for that goes back to a program that needs it.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "nimble/internal/process/not_cancelled.h"
#include "nimble/internal/process/patience.h"
#include "replayer/driver/current_context.h"
#include "shim/driver/guard.h"
#include "shim/modes/region_sink.h"
#include "shim/rewrite/context_wait.h"
#include "shim/state/device_reader.h"
#include "shim/state/stream_ref.h"

namespace nimble::shim {

namespace {

// With work on the GPU, and with launches, which wait for it where the driver's queue is full: it may be waiting for
// this very thread.
constexpr std::chrono::milliseconds kPatience{1000};
constexpr std::chrono::microseconds kBetweenTries{20};

}  // namespace

Answer RegionSink::launch(ProgramRegion& region, CUstream stream) {
  if (region.state() != ProgramRegion::State::compiled) return std::nullopt;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (captures_.load() &&
      (driver_.cuStreamIsCapturing_(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE)) {
    const std::lock_guard lock(region.work_->lock());
    if (!region.region_) return std::nullopt;
    launches_.fetch_add(1, std::memory_order_relaxed);
    return region.region_->launch(stream, /*in_program_order=*/true);
  }
  const StreamRef ref = stream_ref(DefaultStream::legacy, stream);
  if (!region.has_two_orders_ || region.in_program_order_.load(std::memory_order_acquire) ||
      !Onlookers::enter_gate(*region.work_, ref))
    return launch_by_lock(region, ref);
  const CUresult result = region.region_->launch(stream, /*in_program_order=*/false);
  if (result == CUDA_SUCCESS) region.work_->launched_by_gate();
  // One at a time is in the gate.
  if (result != CUDA_ERROR_INVALID_CONTEXT)
    region.by_gate_.store(region.by_gate_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  Onlookers::leave_gate(*region.work_);
  // The thread has no context: the other way has the region's.
  return result == CUDA_ERROR_INVALID_CONTEXT ? launch_by_lock(region, ref) : result;
}

// In our order, or with nothing running any more that it could meet.
Answer RegionSink::launch_by_lock(ProgramRegion& region, const StreamRef& stream) {
  Onlookers::Works met;
  std::optional<Onlookers::Launch> unseen;
  const std::shared_ptr<Onlookers::Work> onlooked = region.work_;
  if (region.has_two_orders_ && !region.in_program_order_.load(std::memory_order_acquire))
    unseen = onlookers_.begins(onlooked, stream, {}, met);
  Call call;
  call.kind = CallKind::graph_launch;
  call.traced = call.has_stream = true;
  call.stream = stream;
  Onlookers::Passage passage;
  if (!unseen) passage = onlookers_.comes(call, met, onlooked);
  if (!met.empty()) keep(met);
  Answer result;
  {
    const std::lock_guard only_one(region.work_->lock());
    if (region.region_) result = launch_in_an_order(region, stream, unseen);
    if (unseen) onlookers_.begun(onlooked, *unseen, result == CUDA_SUCCESS, /*in_our_order=*/true);
  }
  if (result) launches_.fetch_add(1, std::memory_order_relaxed);
  if (!unseen) onlookers_.went(call, result ? *result : CUDA_ERROR_NOT_FOUND, passage);
  return result;
}

// With the lock of its work. `unseen`: in our order.
CUresult RegionSink::launch_in_an_order(ProgramRegion& region, const StreamRef& stream,
                                        std::optional<Onlookers::Launch>& unseen) {
  if (!region.has_two_orders_) return region.region_->launch(stream.handle, false);
  RegionWork& work = *region.work_;
  onlookers_.close_gate(work);  // by which this one would be passed
  const CurrentContext current(driver_, region.cu_context_);
  const bool in_program_order = !unseen;
  // The two are different graphs, which the driver orders only on the same stream.
  CUresult result = CUDA_SUCCESS;
  if (region.last_in_program_order_ != in_program_order) result = work.order_after_last(stream);
  if (result == CUDA_SUCCESS) result = region.region_->launch(stream.handle, in_program_order);
  const bool captures = captures_.load();
  if (result == CUDA_SUCCESS) {
    work.launched(stream, captures);
    region.last_in_program_order_ = in_program_order;
  }
  // Where each launch has to be followed by a record at once, none may pass by the gate.
  if (unseen) unseen->repeats = unseen->repeats && !captures && !stream.is_per_thread();
  return result;
}

bool RegionSink::give_graphs_back(const Call& call) {
  if (!loaded_.load(std::memory_order_acquire)) return false;
  Patience patience(kPatience);
  const auto gets = [&](const auto& try_it) {
    while (!try_it())
      if (!patience.sleep(kBetweenTries)) return false;
    return true;
  };
  const NotCancelled not_cancelled;
  // Graphs are destroyed without a lock, when a capture may have begun again.
  const RelaxedCaptures relaxed(driver_.cuThreadExchangeStreamCaptureMode_);
  std::vector<std::unique_ptr<RegionGraph>> given;
  const std::lock_guard no_capture(mutex_);  // begins: the wait below would end it
  CUcontext context = nullptr;
  if (captures_.load() || driver_.cuCtxGetCurrent_(&context) != CUDA_SUCCESS) return false;
  const std::vector<ProgramRegion*> enough = enough_for(call, context);
  if (enough.empty()) return false;
  std::vector<std::unique_lock<std::mutex>> no_launches;
  for (ProgramRegion* const region : enough) {
    std::unique_lock<std::mutex>& lock = no_launches.emplace_back(region->work_->lock(), std::defer_lock);
    if (!gets([&] { return lock.try_lock(); })) return false;
    if (!gets([&] { return onlookers_.try_close_gate(*region->work_); })) return false;
  }
  if (!is_done_within(kPatience, context, context_, Guard::stay_inside)) return false;
  for (ProgramRegion* const region : enough) {
    region->becomes(ProgramRegion::State::stale, "the program needed its memory");
    given.push_back(std::move(region->region_));
  }
  return true;
}

// What can no longer be launched gives its memory back first; what can, only if that helps.
std::vector<ProgramRegion*> RegionSink::enough_for(const Call& call, CUcontext context) const {
  std::vector<ProgramRegion*> holders;
  for (ProgramRegion* const region : regions_)
    if (region->cu_context_ == context && region->bytes() != 0) holders.push_back(region);
  const auto is_of_use = [](const ProgramRegion* one) { return one->state() == ProgramRegion::State::compiled; };
  std::sort(holders.begin(), holders.end(), [&](const ProgramRegion* one, const ProgramRegion* other) {
    if (is_of_use(one) != is_of_use(other)) return is_of_use(other);
    return one->bytes() > other->bytes();
  });
  std::size_t free = 0, total = 0;
  CUresult (*get_info)(std::size_t*, std::size_t*) = nullptr;
  get_info = reinterpret_cast<decltype(get_info)>(context_.driver_symbol("cuMemGetInfo_v2"));
  if (!get_info || get_info(&free, &total) != CUDA_SUCCESS) return {};
  std::uint64_t there = free;
  std::size_t count = 0;
  while (count < holders.size() && (call.memory.size == 0 || there < call.memory.size))
    there += holders[count++]->bytes();
  if (there < call.memory.size) count = 0;
  holders.resize(count);
  return holders;
}

}  // namespace nimble::shim
