#include "shim/modes/check_sink.h"

#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "analyzer/input/trace_store.h"
#include "nimble/internal/launch_params.h"
#include "shim/record/recorder.h"
#include "shim/rewrite/context_wait.h"
#include "shim/state/contexts.h"
#include "shim/state/device_reader.h"
#include "shim/state/stream_table.h"

namespace nimble::shim {

namespace {

// For other threads' calls, and for the GPU's earlier work; for the launch itself.
constexpr std::chrono::milliseconds kPatience{2000}, kLaunchPatience{60000};
constexpr int kMostLate = 3;
constexpr const char* kEarlierWork = "the GPU's earlier work has failed, or does not end";
constexpr std::uint64_t kTraceBytes = std::uint64_t{256} << 20;

bool is_release(CallKind kind) { return kind == CallKind::free || kind == CallKind::free_async; }

// Whether the call is one that has to wait while another thread checks a launch.
bool is_held(const Call& call) {
  return call.traced && (is_op(call.kind) || is_allocation(call.kind) || is_release(call.kind) ||
                         call.kind == CallKind::capture_begin || call.kind == CallKind::context_end);
}

}  // namespace

CheckSink::CheckSink(CheckOptions options, CallContext& context)
    : options_(std::move(options)),
      context_(context),
      rules_(options_.rules),
      choice_(options_.every, options_.seed),
      memory_(context),
      history_(context) {}

// ---- the program's driver calls ----

// Whatever fails, an op finds memory open: only what comes after enter() may throw.
Answer CheckSink::before(Call& call) noexcept {
  if (call.traced && call.kind == CallKind::launch && try_check(call)) return std::nullopt;
  try {
    if (const Answer answer = reply(call)) return answer;
  } catch (const std::exception& error) {
    failed(call, error);
  }
  if (is_held(call)) {
    enter(is_op(call.kind) && !is_allocation(call.kind) && !is_release(call.kind));
    call.takes_turn = true;
  }
  try {
    return pass(call);
  } catch (const std::exception& error) {
    failed(call, error);
  }
  return std::nullopt;
}

// Answers that take no turn among other threads' calls.
Answer CheckSink::reply(Call& call) {
  if (call.asked.question != Question::none) return answer(call);
  if (call.kind == CallKind::context_end) wait_for_helper(call.context);
  if (is_release(call.kind) && call.traced) return release(call);
  if (is_allocation(call.kind) && call.traced && memory_.released() > MappedMemory::kMostUnused) make_room();
  return std::nullopt;
}

// The call goes to the driver, unless it is an allocation that gets memory from Nimble.
Answer CheckSink::pass(Call& call) {
  const bool matters = CallHistory::matters(call);
  if (matters) {
    history_.prepare();
    const std::lock_guard lock(mutex_);
    history_.before(call);
  }
  const Answer answer = is_allocation(call.kind) && call.traced ? allocate(call) : std::nullopt;
  if (!answer) return answer;
  try {
    const std::lock_guard lock(mutex_);
    history_.after(call, *answer);
  } catch (const std::exception& error) {  // checks that do not know of it would close it
    failed(call, error);
  }
  quiet_.leave();
  return answer;
}

void CheckSink::after(const Call& call, CUresult result) noexcept try {
  if (call.takes_turn)
    quiet_.leave();
  else if (call.traced && call.kind == CallKind::launch)  // it is checked, and this thread is alone
    end_check(call, result);
  if (CallHistory::matters(call)) {
    const std::lock_guard lock(mutex_);
    history_.after(call, result);
  }
  if (result != CUDA_SUCCESS) return;
  if (is_allocation(call.kind) && call.traced) report_.left_open(name(call.memory.kind));
  if (is_end_of_context(call) && call.context == home_.load()) {
    memory_.clear();
    home_.store(nullptr);
  }
} catch (const std::exception& error) {
  failed(call, error);
}

// While a launch of another thread is checked, waits. `touches`: the call may touch memory, which has to be open then.
void CheckSink::enter(bool touches) {
  for (;;) {
    quiet_.enter();
    if (!touches || !memory_.is_restricted()) return;
    quiet_.leave();
    const Alone alone(quiet_, kPatience);
    if (alone && memory_.is_restricted() && !memory_.open()) stop("the driver does not open memory again");
  }
}

// ---- memory ----

bool CheckSink::is_home(CUcontext context) {
  CUcontext home = nullptr;
  return context && (home_.compare_exchange_strong(home, context) || home == context);
}

bool CheckSink::is_capturing(const StreamRef& stream) const {
  {
    const std::lock_guard lock(mutex_);
    if (!history_.capturing()) return false;
  }
  const auto ask = reinterpret_cast<decltype(&::cuStreamIsCapturing)>(context_.driver_symbol("cuStreamIsCapturing"));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask && (ask(stream.handle, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE);
}

Answer CheckSink::allocate(Call& call) {
  if (!call.memory.takes_any_address || stopped_.load(std::memory_order_relaxed)) return std::nullopt;
  if (call.has_stream && is_capturing(call.stream)) return std::nullopt;  // it becomes a node
  if (!is_home(call.has_stream ? streams().context(call.stream) : current_context()) || !is_home(current_context()))
    return std::nullopt;
  const std::optional<std::uint64_t> address = memory_.allocate(call.memory.size);
  if (!address) return std::nullopt;
  call.memory.address = *address;
  return CUDA_SUCCESS;
}

// As the driver does, cuMemFree waits for the GPU.
Answer CheckSink::release(const Call& call) {
  // The driver refuses other releases, but for what is mapped: that is not the program's mapping.
  if (!releases_allocation(call) && memory_.holds(call.memory.address))
    return call.memory.kind == MemoryKind::mapped ? Answer(CUDA_ERROR_INVALID_VALUE) : std::nullopt;
  const std::optional<MappedMemory::Object> object = memory_.find(call.memory.address);
  if (!object || object->address != call.memory.address) return std::nullopt;
  // A graph would release it each time that it is launched.
  if (call.has_stream && is_capturing(call.stream)) return CUDA_SUCCESS;
  const std::uint64_t moment = memory_.now();
  const bool waits = call.kind == CallKind::free;
  if (waits) {
    const auto wait = reinterpret_cast<decltype(&::cuCtxSynchronize)>(context_.driver_symbol("cuCtxSynchronize"));
    if (const CUresult result = wait ? wait() : CUDA_ERROR_NOT_SUPPORTED; result != CUDA_SUCCESS) return result;
  }
  enter(false);
  {
    const std::lock_guard lock(mutex_);
    history_.before(call);
  }
  memory_.release(call.memory.address);
  answers_.gone(call.memory.address);
  quiet_.leave();
  try {
    if (waits) memory_.settle(moment);
  } catch (const std::exception& error) {  // it comes back later
    failed(call, error);
  }
  return CUDA_SUCCESS;
}

// Mapped memory has no handles by which other processes would reach it.
Answer CheckSink::answer(Call& call) {
  if (call.asked.question != Question::memory && call.asked.question != Question::handle &&
      call.asked.question != Question::physical)
    return std::nullopt;
  const std::optional<MappedMemory::Object> object = memory_.find(call.memory.address);
  if (!object && (call.asked.question == Question::memory || !memory_.holds(call.memory.address))) return std::nullopt;
  if (call.asked.question != Question::memory) {
    options_.log(false, std::string("check: ") + call.symbol +
                            " fails: memory that the GPU can be kept from cannot be handed to others");
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::call_once(loaded_, [this] { has_driver_ = driver_.load(context_, false) == nullptr; });
  if (!has_driver_) return std::nullopt;
  enter(true);  // of memory that is closed the driver does not tell the device's address
  quiet_.leave();
  call.memory.address = object->address;
  call.memory.size = object->size;
  call.asked.of_capture = true;  // has the same attributes
  answers_.answer(call, object->address, driver_, home_.load());
  return CUDA_SUCCESS;
}

// Has released memory go to others, once nothing uses it. Not of a thread that is in a call.
void CheckSink::make_room() {
  const Alone alone(quiet_, kPatience);
  {
    const std::lock_guard lock(mutex_);
    if (!alone || history_.capturing()) return;
  }
  const std::uint64_t moment = memory_.now();
  if (is_through(kPatience)) return memory_.settle(moment);
  if (++late_ == kMostLate) stop(kEarlierWork);
}

bool CheckSink::give_back(const Call& call) noexcept try {
  if (memory_.empty() || stopped_.load()) return memory_.give_back();
  if (call.takes_turn) quiet_.leave();
  make_room();
  if (call.takes_turn) enter(false);
  return memory_.give_back();
} catch (const std::exception&) {
  return false;
}

// ---- launches ----

std::uint64_t CheckSink::kind_of(const FunctionInfo& function, const std::vector<std::uint8_t>& params) const {
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  add(reinterpret_cast<std::uintptr_t>(&function));
  for (std::size_t at = 0; at + 8 <= params.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, params.data() + at, sizeof word);
    if (word != 0 && memory_.find(word)) add(at + 1);
  }
  return hash;
}

// What Nimble would order the launch by.
LaunchAccesses CheckSink::ask(Call& call) {
  std::vector<Call> earlier;
  {
    const std::lock_guard lock(mutex_);
    earlier = history_.calls_to_record();
  }
  const auto store = std::make_shared<TraceStore>(kTraceBytes);
  Recorder recorder({.path = "a launch", .store = store}, context_);
  for (Call& one : earlier) {
    one.thread = call.thread;
    recorder.before(one);
    recorder.after(one, CUDA_SUCCESS);
  }
  recorder.before(call);
  recorder.after(call, CUDA_SUCCESS);
  recorder.finish();
  if (recorder.failed() || store->full())
    return {.memory = {}, .evidence = Evidence::assumed, .why_not = "it cannot be recorded"};
  return launch_accesses(store->text(), rules_, options_.trust);
}

bool CheckSink::is_through(std::chrono::milliseconds patience) const {
  return is_done_within(patience, home_.load(), context_, options_.enter_helper_thread);
}

bool CheckSink::try_check(Call& call) noexcept try { return begin_check(call); } catch (const std::exception& error) {
  failed(call, error);
  return false;
}

// Whether the launch is checked: then this thread is alone, and memory is closed. Otherwise it goes on as any call.
bool CheckSink::begin_check(Call& call) {
  const FunctionInfo& function = context_.function(call.launch.function);
  report_.launched(function);
  if (stopped_.load(std::memory_order_relaxed)) return false;
  std::vector<std::uint8_t> params(function.param_bytes);
  if (!pack_params(call, function, params.data())) params.clear();
  const std::uint64_t kind = kind_of(function, params);
  if (!choice_.chooses(kind)) return false;
  const auto skip = [&](std::string_view why) {
    report_.skipped(why);
    choice_.missed(kind);
    return false;
  };
  const auto captures = [&] {
    const std::lock_guard lock(mutex_);
    return history_.capturing();
  };
  if (captures()) return skip("a stream captures");
  CUcontext const home = home_.load();
  if (!home) return skip("no memory can be closed to it");
  if (streams().context(call.stream) != home || current_context() != home) return skip("it is in another context");
  LaunchAccesses said = ask(call);
  if (!said.why_not.empty()) {
    report_.unknown(function, said.why_not);
    return false;
  }
  Alone alone(quiet_, kPatience);
  if (!alone) return skip("other threads do not pause");
  if (captures()) return skip("a stream captures");
  const std::uint64_t moment = memory_.now();
  if (!is_through(kPatience)) {
    if (++late_ == kMostLate) stop(kEarlierWork);
    return skip("earlier work does not end");
  }
  memory_.settle(moment);
  std::vector<MappedMemory::Allowed> allowed;
  for (const LaunchAccesses::Memory& memory : said.memory) allowed.push_back({memory.address, memory.writes});
  MappedMemory::Restriction restricted = memory_.restrict_to(allowed);
  if (!restricted.good) {
    memory_.open();
    stop("the driver does not close memory");
    return skip("the driver does not close memory");
  }
  checked_ = {.function = &function,
              .grid = call.launch.grid,
              .block = call.launch.block,
              .shared_bytes = call.launch.shared_bytes,
              .params = std::move(params),
              .said = std::move(said),
              .restricted = std::move(restricted)};
  alone.goes_on();
  return true;
}

// Memory stays restricted until something may touch it: the next launch may be checked as well.
void CheckSink::end_check(const Call& call, CUresult result) {
  const Alone alone(quiet_);
  const bool done = result == CUDA_SUCCESS && is_through(kLaunchPatience);
  CUresult state = CUDA_SUCCESS;
  if (result == CUDA_SUCCESS && !done) {
    const auto query = reinterpret_cast<decltype(&::cuStreamQuery)>(context_.driver_symbol("cuStreamQuery"));
    state = query ? query(call.stream.handle) : CUDA_ERROR_NOT_READY;
  }
  if (state == CUDA_ERROR_NOT_READY && !memory_.open()) stop("the driver does not open memory again");
  if (result != CUDA_SUCCESS) {
    report_.skipped("the driver refuses the launch");
  } else if (state == CUDA_SUCCESS) {
    report_.passed(*checked_.function, checked_.restricted);
  } else if (state == CUDA_ERROR_NOT_READY) {
    report_.skipped("it does not end");
    if (++late_ == kMostLate) stop("launches do not end");
  } else {
    checked_.result = state;
    options_.log(true, "check: " + CheckReport::line(checked_));
    report_.failed(std::move(checked_));
    stop("a launch has faulted, and its context is lost");
  }
}

void CheckSink::stop(const char* why) noexcept try {
  if (stopped_.exchange(true)) return;
  report_.stopped(why);
  options_.log(false, std::string("check: no more launches are checked: ") + why);
} catch (const std::exception&) {  // no memory even for that
}

// The call goes on.
void CheckSink::failed(const Call& call, const std::exception& error) noexcept try {
  stop((std::string(call.symbol) + ": " + error.what()).c_str());
} catch (const std::exception&) {
  stopped_.store(true);
}

// ---- the rest ----

void CheckSink::finish() noexcept try {
  if (finished_.exchange(true) || !report_.any_launch()) return;
  options_.log(report_.any_fault(), "check: " + report_.line());
  if (options_.stats_path.empty()) return;
  if (const std::string said = report_.write(options_.stats_path); !said.empty()) options_.log(true, said);
} catch (...) {
}

bool CheckSink::forked() noexcept { return !report_.any_launch() && memory_.empty(); }

}  // namespace nimble::shim
