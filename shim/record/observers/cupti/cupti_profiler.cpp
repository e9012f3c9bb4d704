#include "shim/record/observers/cupti/cupti_profiler.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "nimble/internal/process/blocked_signals.h"
#include "shim/driver/guard.h"
#include "shim/record/facts/current_call.h"
#include "shim/record/observers/cupti/cupti_library.h"
#include "shim/record/trace/record_queue.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kMostCallbacks = 4096;  // more than any driver has entry points
constexpr std::size_t kBufferBytes = std::size_t{2} << 20;
constexpr std::uint32_t kFlushMilliseconds = 500;  // how often CUPTI hands over what it has

// Whether this is a driver entry point that puts a launch, copy or set on a stream. By name, so that entry points of
// future drivers count too, as missed if the shim does not know them.
bool is_work(std::string_view name) {
  for (const std::string_view prefix : {"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset"}) {
    if (name.starts_with(prefix)) return name != "cuLaunchHostFunc" && name != "cuLaunchHostFunc_ptsz";
  }
  return false;
}

// Never GRAPH_TRACE: together with MEMCPY or MEMCPY2 it makes graph launches fault (shim/record/observers/op_timer.h).
constexpr CUpti_ActivityKind kActivities[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                              CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET};

}  // namespace

class CuptiProfiler::Client {
 public:
  explicit Client(Options options) : options_(std::move(options)) {}

  std::string start(int driver_version);
  void stop_times();
  void stop();
  Coverage coverage() const;

 private:
  struct EntryPoint {
    const char* name = nullptr;  // owned by CUPTI, valid for good; null for those that are not counted
    // Every call counts as one or the other, so a read at any moment sees whole calls.
    std::atomic<std::uint64_t> recorded{0}, missed{0};
  };

  std::string subscribe();
  std::string ask_for_times();
  void release();
  void entered(CUpti_CallbackId id, const CUpti_CallbackData& data);
  void completed(std::uint8_t* buffer, std::size_t bytes);

  static void CUPTIAPI on_call(void* client, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data);
  static void CUPTIAPI on_request(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records);
  static void CUPTIAPI on_complete(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t bytes,
                                   std::size_t valid_bytes);

  const Options options_;
  CuptiLibrary cupti_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  bool times_on_ = false;                // CUPTI has our buffer callbacks
  std::atomic<bool> collecting_{false};  // and collects activities
  std::int64_t clock_offset_ns_ = 0;     // from CUPTI's clock to ours
  std::array<EntryPoint, kMostCallbacks> entry_points_;
  std::atomic<bool> running_{false};

  // Activities carry no user pointer, so CUPTI's callbacks for them find the client here.
  static std::atomic<Client*> current_;
};

std::atomic<CuptiProfiler::Client*> CuptiProfiler::Client::current_{nullptr};

CuptiProfiler::CuptiProfiler(Options options) : client_(new Client(std::move(options))) {}
CuptiProfiler::~CuptiProfiler() { stop(); }
std::string CuptiProfiler::start(int driver_version) { return client_->start(driver_version); }
void CuptiProfiler::stop_times() { client_->stop_times(); }
void CuptiProfiler::stop() { client_->stop(); }
Coverage CuptiProfiler::coverage() const { return client_->coverage(); }

std::string CuptiProfiler::Client::start(int driver_version) {
  const BlockedSignals blocked;  // in the threads that CUPTI starts
  std::string why;
  if (!cupti_.load(driver_version, why)) return why;
  if (why = subscribe(); !why.empty()) {
    release();
    return why;
  }
  running_.store(true, std::memory_order_release);
  return {};
}

std::string CuptiProfiler::Client::subscribe() {
  CUptiResult result = cupti_.cuptiSubscribe_(&subscriber_, &Client::on_call, this);
  if (result != CUPTI_SUCCESS) {
    subscriber_ = nullptr;
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) return "another profiler uses CUPTI in this process";
    return fmt::format("cuptiSubscribe gave {}", cupti_.text(result));
  }
  std::size_t counted = 0;
  for (CUpti_CallbackId id = 1; id < kMostCallbacks; ++id) {
    const char* name = nullptr;
    if (cupti_.cuptiGetCallbackName_(CUPTI_CB_DOMAIN_DRIVER_API, id, &name) != CUPTI_SUCCESS || !name) continue;
    if (!is_work(name)) continue;
    entry_points_[id].name = name;
    result = cupti_.cuptiEnableCallback_(1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, id);
    if (result != CUPTI_SUCCESS) return fmt::format("cuptiEnableCallback gave {} for {}", cupti_.text(result), name);
    ++counted;
  }
  if (counted == 0) return "CUPTI knows no entry points of this driver";
  return options_.times ? ask_for_times() : std::string();
}

std::string CuptiProfiler::Client::ask_for_times() {
  current_.store(this, std::memory_order_release);
  CUptiResult result = cupti_.cuptiActivityRegisterCallbacks_(&Client::on_request, &Client::on_complete);
  if (result != CUPTI_SUCCESS) return fmt::format("cuptiActivityRegisterCallbacks gave {}", cupti_.text(result));
  std::uint64_t before = now_ns(), theirs = 0;
  cupti_.cuptiGetTimestamp_(&theirs);
  clock_offset_ns_ = static_cast<std::int64_t>(before + (now_ns() - before) / 2 - theirs);
  cupti_.cuptiActivityFlushPeriod_(kFlushMilliseconds);
  times_on_ = true;
  for (const CUpti_ActivityKind kind : kActivities) {
    result = cupti_.cuptiActivityEnable_(kind);
    if (result != CUPTI_SUCCESS) return fmt::format("cuptiActivityEnable gave {}", cupti_.text(result));
  }
  collecting_.store(true, std::memory_order_release);
  return {};
}

void CuptiProfiler::Client::stop_times() {
  if (!collecting_.exchange(false, std::memory_order_acq_rel)) return;
  const Guard guard;
  for (const CUpti_ActivityKind kind : kActivities) cupti_.cuptiActivityDisable_(kind);
  cupti_.cuptiActivityFlushAll_(0);
}

void CuptiProfiler::Client::stop() {
  if (!running_.exchange(false, std::memory_order_acq_rel)) return;
  const Guard guard;  // CUPTI itself calls the driver
  if (times_on_) cupti_.cuptiActivityFlushAll_(0);
  release();
}

void CuptiProfiler::Client::release() {
  if (times_on_) {
    for (const CUpti_ActivityKind kind : kActivities) cupti_.cuptiActivityDisable_(kind);
    cupti_.cuptiActivityFlushAll_(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    times_on_ = false;
  }
  if (subscriber_) cupti_.cuptiUnsubscribe_(subscriber_);
  subscriber_ = nullptr;
  current_.store(nullptr, std::memory_order_release);
}

Coverage CuptiProfiler::Client::coverage() const {
  Coverage coverage;
  for (const EntryPoint& entry : entry_points_) {
    if (!entry.name) continue;
    const std::uint64_t recorded = entry.recorded.load(std::memory_order_relaxed);
    const std::uint64_t missed = entry.missed.load(std::memory_order_relaxed);
    coverage.seen += recorded + missed;
    coverage.recorded += recorded;
    if (missed) coverage.missed.emplace_back(entry.name, missed);
  }
  return coverage;
}

// Counts calls that enter the driver from outside: what the driver or Nimble itself calls meanwhile is part of the
// call whose wrapper this thread is in.
void CuptiProfiler::Client::entered(CUpti_CallbackId id, const CUpti_CallbackData& data) {
  if (id >= kMostCallbacks || !entry_points_[id].name) return;
  EntryPoint& entry = entry_points_[id];
  CurrentCall& current = current_call();
  const bool ours = current.symbol && std::strcmp(current.symbol, entry.name) == 0;
  if (!ours && Guard::inside()) return;
  (ours ? entry.recorded : entry.missed).fetch_add(1, std::memory_order_relaxed);
  if (ours && collecting_.load(std::memory_order_relaxed)) current.ticket = data.correlationId;
}

void CUPTIAPI CuptiProfiler::Client::on_call(void* client, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                             const void* data) {
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API) return;
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  if (call.callbackSite == CUPTI_API_ENTER) static_cast<Client*>(client)->entered(id, call);
}

void CUPTIAPI CuptiProfiler::Client::on_request(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(ACTIVITY_RECORD_ALIGNMENT, kBufferBytes));
  *bytes = *buffer ? kBufferBytes : 0;
  *most_records = 0;
}

void CUPTIAPI CuptiProfiler::Client::on_complete(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                                                 std::size_t valid_bytes) {
  if (Client* const client = current_.load(std::memory_order_acquire)) {
    try {
      client->completed(buffer, valid_bytes);
    } catch (...) {  // out of memory: these times stay unknown
    }
  }
  std::free(buffer);
}

void CuptiProfiler::Client::completed(std::uint8_t* buffer, std::size_t bytes) {
  std::vector<DeviceTime> times;
  const auto add = [&](std::uint32_t correlation, std::uint64_t begin, std::uint64_t end) {
    if (begin == 0 || end < begin) return;  // unknown to CUPTI
    const auto ours = [&](std::uint64_t at) {
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(at) + clock_offset_ns_);
    };
    times.push_back({correlation, ours(begin), ours(end)});
  };
  CUpti_Activity* activity = nullptr;
  while (cupti_.cuptiActivityGetNextRecord_(buffer, bytes, &activity) == CUPTI_SUCCESS) {
    switch (activity->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(activity);
        add(kernel.correlationId, kernel.start, kernel.end);
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(activity);
        add(copy.correlationId, copy.start, copy.end);
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY2: {
        const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(activity);
        add(copy.correlationId, copy.start, copy.end);
        break;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& set = *reinterpret_cast<const CUpti_ActivityMemset4*>(activity);
        add(set.correlationId, set.start, set.end);
        break;
      }
      default:
        break;
    }
  }
  if (!times.empty()) options_.on_times(times);
}

}  // namespace nimble::shim
