// A simulated libcupti.so.13 for the simulated driver: callbacks on driver calls, and activities with simulated times.
// As much of it as shim/record/observers/ uses, with the real one's rules: one subscriber per process, buffers that the
// client brings, records that come late.
//
// Environment: SIMCUPTI_BUSY=1   another profiler is there already
#include <cupti.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

#include "tests/simcuda/simcuda.h"

namespace {

constexpr std::size_t kRecordsBeforeDelivery = 512;

struct Run {
  std::uint32_t call;
  int kind;
  double begin_us, end_us;
};

struct State {
  std::mutex mutex;  // guards all below
  CUpti_CallbackFunc callback = nullptr;
  void* user = nullptr;
  std::set<CUpti_CallbackId> enabled;
  std::set<CUpti_ActivityKind> kinds;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::vector<Run> runs;
  std::vector<const char*> symbols;  // by callback id - 1, sorted
};

State& state() {
  static auto* const made = [] {
    auto* fresh = new State;
    for (std::size_t i = 0; const char* name = simcuda_symbol(i); ++i) fresh->symbols.push_back(name);
    return fresh;
  }();
  return *made;
}

bool before(const char* a, const char* b) { return std::strcmp(a, b) < 0; }

void entered(void*, const char* symbol, std::uint32_t call) {
  State& s = state();
  CUpti_CallbackFunc callback = nullptr;
  void* user = nullptr;
  CUpti_CallbackId id = 0;
  {
    const std::lock_guard lock(s.mutex);
    // CUPTI 13.0 does so with GRAPH_TRACE beside MEMCPY or MEMCPY2; here with any activity, so that nothing depends on
    // which.
    if (!s.kinds.empty() && std::strncmp(symbol, "cuGraphLaunch", 13) == 0)
      simcuda_inject(symbol, 1, CUDA_ERROR_MISALIGNED_ADDRESS);
    const auto found = std::lower_bound(s.symbols.begin(), s.symbols.end(), symbol, before);
    if (found == s.symbols.end() || std::strcmp(*found, symbol) != 0) return;
    id = static_cast<CUpti_CallbackId>(found - s.symbols.begin()) + 1;
    if (!s.enabled.contains(id)) return;
    callback = s.callback;
    user = s.user;
  }
  CUpti_CallbackData data{};
  data.callbackSite = CUPTI_API_ENTER;
  data.functionName = symbol;
  data.correlationId = call;
  if (callback) callback(user, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
}

template <class Record>
void put(std::uint8_t*& at, CUpti_ActivityKind kind, const Run& run) {
  Record record{};
  record.kind = kind;
  record.correlationId = run.call;
  record.start = static_cast<std::uint64_t>(run.begin_us * 1000) + 1;  // 0 would say that it is not known
  record.end = static_cast<std::uint64_t>(run.end_us * 1000) + 1;
  std::memcpy(at, &record, sizeof record);
  at += sizeof record;
}

constexpr std::size_t size_of(int kind) {
  return kind == 0   ? sizeof(CUpti_ActivityKernel10)
         : kind == 1 ? sizeof(CUpti_ActivityMemcpy6)
                     : sizeof(CUpti_ActivityMemset4);
}

void deliver(std::vector<Run> runs) {
  State& s = state();
  for (std::size_t next = 0; next < runs.size();) {
    std::uint8_t* buffer = nullptr;
    std::size_t bytes = 0, most = 0;
    if (!s.request) return;
    s.request(&buffer, &bytes, &most);
    if (!buffer) return;
    std::uint8_t* at = buffer;
    while (next < runs.size() && static_cast<std::size_t>(at - buffer) + size_of(runs[next].kind) <= bytes) {
      const Run& run = runs[next++];
      if (run.kind == 0) put<CUpti_ActivityKernel10>(at, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, run);
      if (run.kind == 1) put<CUpti_ActivityMemcpy6>(at, CUPTI_ACTIVITY_KIND_MEMCPY, run);
      if (run.kind == 2) put<CUpti_ActivityMemset4>(at, CUPTI_ACTIVITY_KIND_MEMSET, run);
    }
    s.complete(nullptr, 0, buffer, bytes, static_cast<std::size_t>(at - buffer));
  }
}

CUpti_ActivityKind kind_of(int kind) {
  return kind == 0   ? CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
         : kind == 1 ? CUPTI_ACTIVITY_KIND_MEMCPY
                     : CUPTI_ACTIVITY_KIND_MEMSET;
}

void ran(void*, std::uint32_t call, int kind, double begin_us, double end_us) {
  State& s = state();
  std::vector<Run> full;
  {
    const std::lock_guard lock(s.mutex);
    if (!s.kinds.contains(kind_of(kind))) return;
    s.runs.push_back({call, kind, begin_us, end_us});
    if (s.runs.size() >= kRecordsBeforeDelivery) full.swap(s.runs);
  }
  deliver(std::move(full));
}

const SimcudaObserver kObserver{nullptr, entered, ran, nullptr};

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT CUptiResult cuptiGetVersion(std::uint32_t* version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  *text = result == CUPTI_SUCCESS ? "CUPTI_SUCCESS" : "CUPTI_ERROR_UNKNOWN";
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiGetTimestamp(std::uint64_t* timestamp) {
  *timestamp = static_cast<std::uint64_t>(simcuda_host_time_us() * 1000);
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void* user) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const char* const busy = std::getenv("SIMCUPTI_BUSY");
  if (s.callback || (busy && *busy == '1')) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  s.callback = callback;
  s.user = user;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&s);
  simcuda_observe(&kObserver);
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!s.callback) return CUPTI_ERROR_INVALID_PARAMETER;
  s.callback = nullptr;
  s.enabled.clear();
  simcuda_observe(nullptr);
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiEnableCallback(std::uint32_t enable, CUpti_SubscriberHandle, CUpti_CallbackDomain domain,
                                       CUpti_CallbackId id) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API || id == 0 || id > s.symbols.size()) return CUPTI_ERROR_INVALID_PARAMETER;
  if (enable) {
    s.enabled.insert(id);
  } else {
    s.enabled.erase(id);
  }
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, std::uint32_t id, const char** name) {
  State& s = state();
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API || id == 0 || id > s.symbols.size()) return CUPTI_ERROR_INVALID_PARAMETER;
  *name = s.symbols[id - 1];
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                  CUpti_BuffersCallbackCompleteFunc complete) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.request = request;
  s.complete = complete;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.kinds.insert(kind);
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.kinds.erase(kind);
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  State& s = state();
  std::vector<Run> runs;
  {
    const std::lock_guard lock(s.mutex);
    runs.swap(s.runs);
  }
  deliver(std::move(runs));
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityFlushPeriod(std::uint32_t) { return CUPTI_SUCCESS; }

EXPORT CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t bytes, CUpti_Activity** record) {
  std::uint8_t* next = buffer;
  if (*record) {
    const auto kind = (*record)->kind;
    next = reinterpret_cast<std::uint8_t*>(*record) + size_of(kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? 0
                                                              : kind == CUPTI_ACTIVITY_KIND_MEMCPY          ? 1
                                                                                                            : 2);
  }
  if (next >= buffer + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}
