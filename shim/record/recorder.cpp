#include "shim/record/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "nimble/internal/launch_params.h"
#include "nimble/internal/process/kept_errno.h"
#include "nimble/internal/process/memory_reserve.h"
#include "nimble/internal/process/not_cancelled.h"
#include "shim/driver/guard.h"
#include "shim/process/host_room.h"
#include "shim/process/log.h"
#include "shim/process/per_thread.h"
#include "shim/record/facts/current_call.h"
#include "shim/state/contexts.h"
#include "shim/state/stream_table.h"

namespace nimble::shim {

namespace {

// What before() keeps for after(), on the same thread: the guard ensures that calls do not nest.
struct Pending {
  std::uint64_t seq = 0;
  std::uint64_t begin_ns = 0;
  bool has_seq = false;
};
thread_local Pending t_pending __attribute__((tls_model("initial-exec")));

// Assembled before the queue is locked: one per thread, so that most calls allocate nothing.
struct Gathered {
  std::vector<TraceAccess> accesses;  // few calls have any
  std::vector<std::uint8_t> params;
  std::vector<TraceWord> words;  // that a copy carries
};
constexpr std::size_t kMostAccesses = 4096;  // of one call; more are not worth the space

// The context that the call concerns.
CUcontext context_of(const Call& call) {
  // Only the context distinguishes legacy default streams; the same holds for the pseudo-stream of a graph.
  if (call.has_stream && (call.stream.is_legacy() || call.stream.is_of_graph()))
    return reinterpret_cast<CUcontext>(call.stream.key & ~std::uint64_t{3});
  if (call.has_stream) return streams().context(call.stream);
  switch (call.kind) {
    case CallKind::context_end:
      return call.context;
    case CallKind::context_synchronize:
    case CallKind::alloc:
      return call.context ? call.context : current_context();
    default:
      return nullptr;
  }
}

}  // namespace

Recorder::Recorder(RecorderOptions options, CallContext& context, RecordObservers observers)
    : options_(std::move(options)),
      context_(context),
      graphs_(context),
      queue_({options_.path, options_.store, options_.limit_bytes, options_.steps != 0, [this] { step_aside(); },
              [this] { tell_observers_end(); }}),
      observers_(std::move(observers)) {
  if (options_.steps != 0) {
    steps_ = std::make_unique<StepCount>(options_.steps, options_.look_limit_bytes, queue_);
  }
}

// Exit handlers take no argument.
static std::atomic<Recorder*> g_watching{nullptr};
static void watches_no_more(Recorder* recorder) { g_watching.compare_exchange_strong(recorder, nullptr); }

Recorder::~Recorder() {
  stop_watching();
  watches_no_more(this);  // in case it was not stopped
  steps_.reset();
  queue_.join();  // its thread may be calling us
}

void Recorder::start_watching() {
  queue_.start_clock();
  strays_.start(context_);
  bool stops_early = false;
  for (const auto& observer : observers_)
    stops_early |= observer->start([this](std::span<const DeviceTime> times) { queue_.push(times); });
  if (!stops_early) return;
  // Libraries that were loaded later are torn down before us, and libcupti is one of them: release it while it is
  // intact. Exit handlers run in reverse order of registration, and libcupti has registered its own by now. Not in the
  // middle of a call that a signal has interrupted, nor in a child that shares our handlers.
  g_watching.store(this);
  watching_process_ = getpid();
  std::atexit([] {
    Recorder* const recorder = g_watching.load();
    if (recorder && recorder->watching_process_ == getpid() && !Guard::inside()) recorder->stop_watching();
  });
}

// A second caller waits for the first: libcupti must not be torn down while a thread is in it. Bounded, like all
// waiting at exit.
void Recorder::stop_watching() noexcept try {
  const NotCancelled not_cancelled;
  std::unique_lock lock(stop_watching_mutex_, std::try_to_lock);
  for (int i = 0; i < 5000 && !lock; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.try_lock();
  }
  if (!lock) return;
  watches_no_more(this);
  for (const auto& observer : observers_) observer->stop();
} catch (...) {
}

void Recorder::start() {
  // Test before storing: a store would cost every other thread a cache miss.
  if (watching_.load(std::memory_order_acquire)) return;
  queue_.prepare();  // by each of the first threads, before there is anything to write
  if (watching_.exchange(true, std::memory_order_acq_rel)) return;
  start_watching();
  if (steps_) steps_->look([this] { return calls(); });
}

void Recorder::skip() noexcept {
  t_pending = {};
  current_call() = {};
}

Answer Recorder::before(Call& call) noexcept try {
  const KeptErrno kept_errno;
  skip();
  if (passes_.load(std::memory_order_relaxed)) [[unlikely]]
    return std::nullopt;
  if (call.ends != Ends::nothing) {
    if (!watching_.load(std::memory_order_acquire)) queue_.prepare();  // this may be the first record written
    if (call.ends == Ends::stream) follow_captures(call, CUDA_SUCCESS);
    RecordFacts facts;
    queue_.push(facts, call, [](Record&) {});
    for (const auto& observer : observers_) observer->ends(call, any_captures_);
    return std::nullopt;
  }
  for (const auto& observer : observers_) observer->comes(call);
  if (!call.traced) return std::nullopt;
  start();
  // A freed address may be reused at once, and an allocated one is known only after the call: so a free counts from its
  // entry, an allocation from its return.
  if (!is_allocation(call.kind)) {
    t_pending.seq = next_seq_.fetch_add(1, std::memory_order_relaxed);
    t_pending.has_seq = true;
  }
  // A stream's kind cannot be queried once it captures.
  if (call.kind == CallKind::capture_begin) streams().kind(call.stream);
  for (const auto& observer : observers_) observer->before(call, t_pending.seq, any_captures_);
  current_call() = {call.symbol, 0};
  t_pending.begin_ns = now_ns();
  return std::nullopt;
} catch (const std::exception& error) {
  give_up(error);
  return std::nullopt;
}

bool Recorder::is_capturing(const StreamRef& stream) {
  const auto ask = reinterpret_cast<decltype(&::cuStreamIsCapturing)>(context_.driver_symbol("cuStreamIsCapturing"));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask && ask(stream.handle, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Streams join a capture by waiting for an event, and leave it when it ends: so we ask the driver at each call while
// any capture is under way.
bool Recorder::captured(const Call& call) {
  return any_captures_.load(std::memory_order_relaxed) && call.has_stream && is_capturing(call.stream);
}

void Recorder::follow_captures(const Call& call, CUresult result) {
  const bool begins = call.kind == CallKind::capture_begin, ends = call.kind == CallKind::capture_end;
  if (!begins && !ends && call.ends != Ends::stream) return;
  if (begins && result != CUDA_SUCCESS) return;
  // A capture may go on after a call that should have ended it, and end in a call that failed.
  if (ends && is_capturing(call.stream)) return;
  const std::lock_guard lock(captures_mutex_);
  if (begins) {
    captures_.insert(call.stream.key);
  } else {
    captures_.erase(call.stream.key);
  }
  any_captures_.store(!captures_.empty(), std::memory_order_relaxed);
}

void Recorder::after(const Call& call, CUresult result) noexcept try {
  const KeptErrno kept_errno;
  // Driver calls of observers from here on are not part of the program's call.
  const std::uint64_t ticket = std::exchange(current_call(), {}).ticket;
  // The recording may end in the middle of a call.
  struct Leaves {
    const RecordObservers& observers;
    ~Leaves() {
      for (const auto& observer : observers) observer->leave();
    }
  } const leaves{observers_};
  if (passes_.load(std::memory_order_relaxed)) [[unlikely]]
    return;
  if (call.graph.edit != GraphEdit::none) graphs_.edited(call, result == CUDA_SUCCESS);
  if (is_allocation(call.kind)) {
    if (result == CUDA_SUCCESS) strays_.memory_has_come(call.memory.address, call.memory.size);
  } else if (call.kind == CallKind::hidden || call.brings_code) {
    strays_.memory_may_have_come();
  }
  if (!call.traced) return;
  RecordFacts facts;
  facts.end_ns = now_ns();
  follow_captures(call, result);
  Observed observed{ticket, nullptr};
  for (auto observer = observers_.rbegin(); observer != observers_.rend(); ++observer)
    (*observer)->after(call, result, t_pending.seq, observed);
  const bool in_graph = is_op(call.kind) && captured(call);
  if (in_graph && (call.kind != CallKind::alloc_async || result != CUDA_SUCCESS)) return;
  facts.ticket = observed.ticket;
  facts.begin_ns = t_pending.begin_ns ? t_pending.begin_ns : facts.end_ns;
  facts.seq = t_pending.has_seq ? t_pending.seq : next_seq_.fetch_add(1, std::memory_order_relaxed);
  facts.result = result;
  if (in_graph || call.kind == CallKind::alloc) return keep_memory(facts, call, in_graph, observed.accesses);
  keep(facts, call, observed.accesses);
} catch (const std::exception& error) {
  give_up(error);
}

void Recorder::keep_memory(RecordFacts& facts, Call call, bool of_graph, const std::vector<TraceAccess>* seen) {
  if (of_graph) {  // from now on it has its address
    call.kind = CallKind::alloc;
    call.memory.kind = MemoryKind::mapped;
    call.has_stream = false;
    facts.ticket = 0;
  }
  call.context = context_of(call);
  keep(facts, call, seen);
}

bool Recorder::look_at_payload(const Call& call, std::vector<TraceWord>& words) {
  if (call.transfer.height != 1 || call.transfer.width == 0 || call.transfer.device_source) return false;
  // Entry points for host memory accept device memory, too.
  if (!call.transfer.host_source ||
      (call.transfer.src.address >= allocated_.begin() && call.transfer.src.address < allocated_.end())) {
    const auto ask =
        reinterpret_cast<decltype(&::cuPointerGetAttribute)>(context_.driver_symbol("cuPointerGetAttribute"));
    unsigned type = 0, managed = 0;
    const bool is_known =
        ask && ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, call.transfer.src.address) == CUDA_SUCCESS;
    if (!is_known && !(ask && call.transfer.host_source))
      return false;  // if the driver does not know it, trust the entry point
    if (is_known &&
        (type != CU_MEMORYTYPE_HOST ||
         ask(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, call.transfer.src.address) != CUDA_SUCCESS || managed))
      return false;
  }
  return find_words(reinterpret_cast<const void*>(call.transfer.src.address), call.transfer.width,
                    call.transfer.dst.address, allocated_, words);
}

// What it is given: its function, and the packed parameters, in `params`. Returns which of their words lead nowhere;
// null if that is not known.
const std::vector<std::uint32_t>* Recorder::keep_launch(RecordFacts& facts, const Call& call,
                                                        std::vector<std::uint8_t>& params) {
  const std::vector<std::uint32_t>* strays = nullptr;
  const FunctionInfo& function = context_.function(call.launch.function);
  facts.function = &function;
  if (function.params && (call.launch.kernel_params || call.launch.extra)) facts.param_bytes = function.param_bytes;
  if (facts.param_bytes) {
    params.resize(facts.param_bytes);
    if (pack_params(call, function, params.data())) {
      strays = &strays_.of(function, params.data());
      facts.stray_count = static_cast<std::uint32_t>(strays->size());
    } else {
      facts.function = nullptr;  // not reached by callers that follow the driver's rules
      facts.param_bytes = 0;
    }
  }
  for (std::uint32_t i = 0; i < call.launch.attribute_count; ++i)
    facts.attribute_count += meaningful(call.launch.attributes[i]);
  if (function.proof)
    for (const ProvenGlobal& global : function.proof->globals) allocated_.add(global.address, global.bytes);
  return strays;
}

void Recorder::keep(RecordFacts& facts, const Call& call, const std::vector<TraceAccess>* seen) {
  Gathered& gathered = PerThread<Gathered>::get();
  if (call.has_stream) facts.stream_kind = streams().kind(call.stream);
  facts.context = context_of(call);
  const std::vector<std::uint32_t>* const strays =
      call.kind == CallKind::launch ? keep_launch(facts, call, gathered.params) : nullptr;
  if (is_allocation(call.kind) && facts.result == CUDA_SUCCESS) allocated_.add(call.memory.address, call.memory.size);
  GraphShare graph;
  if (call.kind == CallKind::graph_launch) graph = graphs_.of(call.graph.exec);
  facts.graph = graph.get();
  const std::vector<TraceAccess>* accesses = seen;
  if (seen) {
    facts.probed = true;
    facts.access_count = static_cast<std::uint32_t>(seen->size());
  }
  if (call.list_accesses && facts.result == CUDA_SUCCESS) {
    gathered.accesses.clear();
    facts.accesses_known = call.list_accesses(call, gathered.accesses) && gathered.accesses.size() <= kMostAccesses;
    if (facts.accesses_known) {
      accesses = &gathered.accesses;
      facts.access_count = static_cast<std::uint32_t>(accesses->size());
    }
  }
  if (call.kind == CallKind::copy && facts.result == CUDA_SUCCESS) {
    gathered.words.clear();
    facts.words_known = look_at_payload(call, gathered.words);
    if (facts.words_known) facts.word_count = static_cast<std::uint32_t>(gathered.words.size());
  }
  queue_.push(facts, call, [&](Record& placed) {
    static_cast<void>(graph.release());  // the placed record owns it
    if (placed.word_count)
      std::copy(gathered.words.begin(), gathered.words.end(), const_cast<TraceWord*>(placed.words()));
    if (accesses) std::copy(accesses->begin(), accesses->end(), const_cast<TraceAccess*>(placed.accesses()));
    if (facts.param_bytes)
      std::memcpy(const_cast<std::uint8_t*>(placed.params()), gathered.params.data(), facts.param_bytes);
    if (strays) std::copy(strays->begin(), strays->end(), const_cast<std::uint32_t*>(placed.strays()));
    for (std::uint32_t i = 0, n = 0; i < call.launch.attribute_count; ++i) {
      if (meaningful(call.launch.attributes[i]))
        const_cast<std::uint32_t*>(placed.attributes())[n++] = call.launch.attributes[i].id;
    }
  });
  for (const auto& observer : observers_) observer->kept(call, facts.result, facts.seq);
}

// Steps without a known name would be mistaken for others, so all names are kept, within reason.
const char* Recorder::kept_name(const char* name) {
  constexpr std::size_t kMostNames = 1024, kLongest = 255;
  if (!name || !*name) return nullptr;
  const std::string text(name, ::strnlen(name, kLongest));
  const std::lock_guard lock(names_mutex_);
  if (const auto known = names_.find(text); known != names_.end()) return known->c_str();
  return names_.size() < kMostNames ? names_.insert(text).first->c_str() : nullptr;
}

// A mark before the first call opens no file: the process may never use the GPU.
void Recorder::mark(bool begins, const char* name, std::uint32_t thread) noexcept try {
  if (begins) steps_marked_.fetch_add(1, std::memory_order_relaxed);
  if (!watching_.load(std::memory_order_acquire) || passes_.load(std::memory_order_relaxed)) return;
  Call call;
  call.kind = begins ? CallKind::step_begin : CallKind::step_end;
  call.symbol = begins ? "nimble_step_begin" : "nimble_step_end";
  call.thread = thread;
  call.note = begins ? kept_name(name) : nullptr;
  RecordFacts facts;
  facts.begin_ns = facts.end_ns = now_ns();
  facts.seq = next_seq_.fetch_add(1, std::memory_order_relaxed);
  queue_.push(facts, call, [](Record&) {});
  if (steps_) steps_->mark(begins, thread, facts.seq);
} catch (const std::exception& error) {
  give_up(error);
}

SinkReport Recorder::report() {
  SinkReport report;
  report.phase = finished_.load(std::memory_order_acquire) || passes_.load(std::memory_order_relaxed)
                     ? SinkPhase::aside
                     : SinkPhase::recording;
  report.counters.steps_marked = steps_marked_.load(std::memory_order_relaxed);
  report.counters.recordings = 1;
  return report;
}

// What the recording needs next may be all that the driver has left.
bool Recorder::give_back(const Call& /*call*/) noexcept {
  if (given_back_.load(std::memory_order_relaxed) || host_has_room() || given_back_.exchange(true)) return false;
  give_up(kHostIsFull);
  return queue_.let_end();
}

// Out of memory or threads. A trace with a hole would be worthless: it ends here.
void Recorder::give_up(const std::exception& error) noexcept {
  give_up(dynamic_cast<const std::bad_alloc*>(&error) ? kHostIsFull : error.what());
}

void Recorder::give_up(const char* why) noexcept try {
  const MemoryReserve reserve;
  if (queue_.stop({why})) return;
  step_aside();
  log(LogLevel::error, options_.path + ": recording ends here: " + why);
} catch (...) {
  queue_.stop({});
  passes_.store(true, std::memory_order_relaxed);
}

// Calls in flight count as recorded until CUPTI is released.
void Recorder::step_aside() noexcept try {
  const MemoryReserve reserve;
  stop_watching();
  tell_queue();
  passes_.store(true, std::memory_order_relaxed);
} catch (...) {
  passes_.store(true, std::memory_order_relaxed);
}

void Recorder::tell_queue() {
  if (finished_.exchange(true)) return;
  Summary summary;
  for (const auto& observer : observers_) observer->sum_up(summary);
  queue_.set_coverage(summary.coverage);
  if (summary.probe) queue_.set_probe(*summary.probe);
}

void Recorder::tell_observers_end() noexcept try {
  const std::string trace = queue_.path();
  for (const auto& observer : observers_) observer->finish(trace);
} catch (...) {  // out of memory: no coverage
}

void Recorder::finish() noexcept try {
  stop_watching();
  tell_queue();
  queue_.close();
  tell_observers_end();
} catch (const std::exception& error) {
  give_up(error);
}

void Recorder::finish_interrupted() noexcept { queue_.close(/*interrupted=*/true); }

bool Recorder::forked() noexcept {
  g_watching.store(nullptr);
  for (const auto& observer : observers_) observer->forked();
  return queue_.forked();
}

}  // namespace nimble::shim
