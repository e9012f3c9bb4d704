#include "shim/record/observers/events/event_timer.h"

#include "shim/record/trace/record_queue.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kMostPending = 1024;  // pairs; beyond that they are read

// Between begin() and end(), on one thread.
struct Open {
  CUcontext context = nullptr;
  CUevent begin = nullptr, end = nullptr;
  std::uint64_t ticket = 0;
};
thread_local Open t_open __attribute__((tls_model("initial-exec")));

}  // namespace

// While it lives, this thread's calls do not invalidate other threads' captures.
class EventTimer::Relaxed {
 public:
  explicit Relaxed(const EventTimer& timer) : exchange_(timer.exchange_mode_) { exchange_(&mode_); }
  ~Relaxed() { exchange_(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  decltype(&::cuThreadExchangeStreamCaptureMode) exchange_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

EventTimer::EventTimer(CallContext& context, std::function<void(std::span<const DeviceTime>)> on_times)
    : on_times_(std::move(on_times)) {
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(context.driver_symbol(name));
    if (!function) why_not_ = name;
  };
  find(get_current_, "cuCtxGetCurrent");
  find(exchange_mode_, "cuThreadExchangeStreamCaptureMode");
  find(create_stream_, "cuStreamCreate");
  find(create_, "cuEventCreate");
  find(record_, "cuEventRecord");
  find(query_, "cuEventQuery");
  find(synchronize_, "cuEventSynchronize");
  find(elapsed_, "cuEventElapsedTime");
}

EventTimer::Origin* EventTimer::origin_of(CUcontext context) {
  const auto [found, is_new] = origins_.try_emplace(context);
  Origin& origin = found->second;
  if (!is_new) return origin.event ? &origin : nullptr;
  if (create_stream_(&origin.stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
      create_(&origin.event, CU_EVENT_DEFAULT) != CUDA_SUCCESS ||
      record_(origin.event, origin.stream) != CUDA_SUCCESS || synchronize_(origin.event) != CUDA_SUCCESS) {
    origin.event = nullptr;
    return nullptr;
  }
  origin.host_ns = now_ns();
  return &origin;
}

CUevent EventTimer::take(Origin& origin) {
  CUevent event = nullptr;
  if (!origin.free.empty()) {
    event = origin.free.back();
    origin.free.pop_back();
  } else if (create_(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
    return nullptr;
  }
  return event;
}

void EventTimer::begin(const Call& call, std::uint64_t ticket) {
  t_open = {};
  CUcontext context = nullptr;
  if (get_current_(&context) != CUDA_SUCCESS || !context) return;
  Open open{context, nullptr, nullptr, ticket};
  const Relaxed relaxed(*this);
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    if (pending_.size() > kMostPending) collect(kMostPending / 2);
    Origin* const origin = origin_of(context);
    if (!origin) return;
    open.begin = take(*origin);
    open.end = take(*origin);
  }
  // Fails if the stream belongs to another context than the current one: then the op is not timed.
  if (!open.begin || !open.end || record_(open.begin, call.stream.handle) != CUDA_SUCCESS) {
    put_back(context, open.begin, open.end);
    return;
  }
  t_open = open;
}

bool EventTimer::end(const Call& call, bool submitted) {
  const Open open = t_open;
  t_open = {};
  if (!open.begin) return false;
  const Relaxed relaxed(*this);
  if (!submitted || record_(open.end, call.stream.handle) != CUDA_SUCCESS) {
    put_back(open.context, open.begin, open.end);
    return false;
  }
  const std::lock_guard lock(mutex_);
  if (stopped_) return false;
  pending_.push_back({open.context, open.begin, open.end, open.ticket});
  return true;
}

void EventTimer::put_back(CUcontext context, CUevent begin, CUevent end) {
  const std::lock_guard lock(mutex_);
  const auto found = origins_.find(context);
  if (found == origins_.end()) return;
  for (const CUevent event : {begin, end}) {
    if (event) found->second.free.push_back(event);
  }
}

// Reads the pairs that have completed, oldest first.
void EventTimer::collect(std::size_t leave) {
  std::vector<DeviceTime> times;
  while (pending_.size() > leave) {
    const Pair pair = pending_.front();
    const CUresult state = query_(pair.end);
    if (state == CUDA_ERROR_NOT_READY) break;
    pending_.pop_front();
    const auto found = origins_.find(pair.context);
    if (found == origins_.end() || state != CUDA_SUCCESS) continue;
    float begin_ms = 0, end_ms = 0;
    if (elapsed_(&begin_ms, found->second.event, pair.begin) == CUDA_SUCCESS &&
        elapsed_(&end_ms, found->second.event, pair.end) == CUDA_SUCCESS && begin_ms >= 0 && end_ms >= begin_ms) {
      const auto at = [&](float ms) { return found->second.host_ns + static_cast<std::uint64_t>(double{ms} * 1e6); };
      times.push_back({pair.ticket, at(begin_ms), at(end_ms)});
    }
    found->second.free.push_back(pair.begin);
    found->second.free.push_back(pair.end);
  }
  if (!times.empty()) on_times_(times);
}

void EventTimer::context_ends() {
  CUcontext context = nullptr;
  if (get_current_(&context) != CUDA_SUCCESS) return;
  const Relaxed relaxed(*this);
  const std::lock_guard lock(mutex_);
  collect(0);
  // Only the driver knows which context ends: we reuse none of the events. They end with it.
  pending_.clear();
  origins_.clear();
}

void EventTimer::stop() {
  if (!why_not_.empty()) return;
  const Relaxed relaxed(*this);
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  collect(0);
  stopped_ = true;
}

}  // namespace nimble::shim
