#include "shim/recorder.h"

#include "nimble/launch_params.h"
#include "shim/decode/launch.h"
#include "shim/log.h"
#include "shim/stream_table.h"

namespace nimble::shim {

namespace {

// What before() keeps for after(), on the same thread: the guard sees to it that calls do not nest.
struct Pending {
  std::uint64_t seq = 0;
  std::uint64_t begin_ns = 0;
  bool has_seq = false;
};
thread_local Pending t_pending __attribute__((tls_model("initial-exec")));

bool is_allocation(CallKind kind) { return kind == CallKind::alloc || kind == CallKind::alloc_async; }

}  // namespace

Recorder::Recorder(std::string path, CallContext& context) : path_(std::move(path)), context_(context), queue_(path_) {}

Recorder::~Recorder() = default;

std::optional<CUresult> Recorder::before(Call& call) noexcept try {
  t_pending.has_seq = false;
  if (call.ends != Ends::nothing) {
    Record record;
    record.call = call;
    queue_.push(record, [](auto...) {});
    return std::nullopt;
  }
  if (!call.traced) return std::nullopt;
  // An address that is freed may be given out again at once, and one that is allocated is known only afterwards: so a
  // free counts from its entry, an allocation from its return.
  if (!is_allocation(call.kind)) {
    t_pending.seq = next_seq_.fetch_add(1, std::memory_order_relaxed);
    t_pending.has_seq = true;
  }
  t_pending.begin_ns = now_ns();
  return std::nullopt;
} catch (const std::exception& error) {
  give_up(error.what());
  return std::nullopt;
}

bool Recorder::captured(const Call& call) {
  if (captures_.load(std::memory_order_relaxed) == 0 || !call.has_stream) return false;
  const auto is_capturing =
      reinterpret_cast<decltype(&::cuStreamIsCapturing)>(context_.driver_symbol("cuStreamIsCapturing"));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return is_capturing && is_capturing(call.stream.handle, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void Recorder::after(const Call& call, CUresult result) noexcept try {
  if (!call.traced) return;
  Record record;
  record.end_ns = now_ns();
  record.begin_ns = t_pending.begin_ns ? t_pending.begin_ns : record.end_ns;
  record.seq = t_pending.has_seq ? t_pending.seq : next_seq_.fetch_add(1, std::memory_order_relaxed);
  record.result = result;
  record.call = call;
  if (result == CUDA_SUCCESS && call.kind == CallKind::capture_begin) captures_.fetch_add(1, std::memory_order_relaxed);
  if (call.kind == CallKind::capture_end && captures_.load(std::memory_order_relaxed) > 0) {
    captures_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (is_op(call.kind) && captured(call)) return;
  if (call.has_stream) record.stream_kind = streams().kind(call.stream);
  if (call.kind == CallKind::launch) {
    const FunctionInfo& function = context_.function(call.function);
    record.function = &function;
    if (function.params && (call.kernel_params || call.extra)) record.param_bytes = function.param_bytes;
    for (std::uint32_t i = 0; i < call.attribute_count; ++i)
      record.attribute_count += decode::meaningful(call.attributes[i]);
  }
  queue_.push(record, [&](std::uint8_t* params, std::uint32_t* attributes) {
    if (record.param_bytes && !pack_params(call, *record.function, params)) {
      auto* placed = reinterpret_cast<Record*>(params) - 1;
      placed->function = nullptr;  // not reached by callers that respect the driver's rules
    }
    for (std::uint32_t i = 0, n = 0; i < call.attribute_count; ++i) {
      if (decode::meaningful(call.attributes[i])) attributes[n++] = call.attributes[i].id;
    }
  });
} catch (const std::exception& error) {
  give_up(error.what());
}

// No memory, or no thread to be had. A trace with a hole would be worth nothing: it ends here.
void Recorder::give_up(const char* why) noexcept {
  queue_.abandon();
  try {
    log(LogLevel::error, path_ + ": recording ends here: " + why);
  } catch (...) {
  }
}

void Recorder::finish() noexcept { queue_.close(); }

void Recorder::finish_interrupted() noexcept { queue_.close(/*interrupted=*/true); }

bool Recorder::forked() noexcept { return queue_.forked(); }

}  // namespace nimble::shim
