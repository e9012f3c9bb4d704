#include "shim/rewrite/recording/graph_recordings.h"

#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "nimble/internal/files/file_kind.h"
#include "nimble/internal/files/own_file.h"
#include "shim/record/observers/make_observers.h"
#include "shim/record/trace/trace_compressor.h"
#include "shim/record/trace/trace_text.h"
#include "shim/state/contexts.h"

namespace nimble::shim {

namespace {

// A use of the recording that was told that the current call begins; empty if none was.
thread_local DetachedUse t_recorded __attribute__((tls_model("initial-exec")));

constexpr std::uint64_t kRoom =
    16;  // the fraction of the limit that may have been recorded since, when a thread begins to learn

}  // namespace

GraphRecordings::GraphRecordings(RecordingOptions options, CallContext& context, CapturesUnderWay& captures,
                                 const CaptureRequests& requests, const RewriteLog& log)
    : options_(std::move(options)),
      context_(context),
      captures_(captures),
      requests_(requests),
      log_(log),
      history_(context) {
  recording_.put(make());
}

std::unique_ptr<GraphRecording> GraphRecordings::make() {
  ObserverOptions observers;
  observers.probe = probes_learned();
  observers.probe_limit_bytes = options_.probe_limit_bytes;
  observers.probe_first = options_.probe_first;
  observers.probe_on_request = !options_.probe;
  return std::make_unique<GraphRecording>(make_observers(observers, context_), options_.limit_bytes, captured_,
                                          context_);
}

// If the recording is full, or has so many bytes since the last learning, ends it and begins a new one. Not in the
// middle of a capture, or while a thread learns. With the analysis lock held.
void GraphRecordings::begin_anew(std::uint64_t unlearned_bytes) {
  const Use old = recording_.use();
  if (old && !old->is_over() && old->store().bytes() - learned_bytes_.load(std::memory_order_relaxed) < unlearned_bytes)
    return;
  if (captures_.any() || requests_.any()) return;
  auto next = make();
  next->recorder().start();
  {
    // Allocations and beginnings of captures wait meanwhile, so that each is in the one or the other.
    const std::lock_guard lock(history_mutex_);
    // The new one would not know of the capture, and take captured work for executed.
    if (captures_.any()) return;
    next->begin_after(history_.calls_to_record());
    recording_.put(std::move(next));
  }
  learned_bytes_.store(0, std::memory_order_relaxed);
  if (old) old->end();
}

std::uint64_t GraphRecordings::room_before_graph() const {
  constexpr std::uint64_t kUnlearned = std::uint64_t{256} << 10;
  const bool tells_more =
      options_.probe || !options_.trace_path.empty() || learned_bytes_.load(std::memory_order_relaxed) != 0;
  return tells_more ? std::numeric_limits<std::uint64_t>::max() : kUnlearned;
}

GraphRecordings::Use GraphRecordings::for_graph() {
  begin_anew(room_before_graph());
  return recording_.use();
}

bool GraphRecordings::is_recording() {
  const Use now = recording_.use();
  return now && !now->is_over();
}

// If a thread is just analyzing a graph, the next call does it.
void GraphRecordings::end_if_full() noexcept {
  if (!options_.trace_path.empty()) return;
  const std::unique_lock one_at_a_time(analysis_mutex_, std::try_to_lock);
  if (!one_at_a_time) return;
  const Use full = recording_.use();
  if (full && full->is_over() && recording_.end(full)) full->end();
}

// ---- the program's calls ----

void GraphRecordings::next_call() { recording_.attach(t_recorded); }

// What is allocated, and where the call is to be recorded: an allocation counts from its answer, all else from before
// that. A recording that begins meanwhile knows what was followed before, and gets what is followed later. With the
// result, empty but for allocations.
GraphRecordings::Use GraphRecordings::follow(const Call& call, Answer result) {
  if (!CallHistory::matters(call)) return result && !is_allocation(call.kind) ? Use() : recording_.use();
  history_.prepare();
  const std::lock_guard lock(history_mutex_);
  if (result) {
    history_.after(call, *result);
  } else {
    history_.before(call);
  }
  return recording_.use();
}

Answer GraphRecordings::before(Call& call) noexcept {
  Use now;
  try {
    now = follow(call, std::nullopt);
  } catch (const std::exception& error) {
    log_.failed(call, error);
    now = recording_.use();
  }
  if (now && !now->is_over()) {
    auto answer = now->recorder().before(call);
    t_recorded = std::move(now).detach();
    return answer;
  }
  Recorder::skip();
  if (now) end_if_full();
  return std::nullopt;
}

void GraphRecordings::after(const Call& call, CUresult result) {
  const Use begun = recording_.attach(t_recorded), now = follow(call, result);
  // The recording that was told of the call's beginning must hear of its end, even if full by now: a probe may wait for
  // it.
  const Use& told = is_allocation(call.kind) ? now : begun;
  if (told && (told.get() == begun.get() || !told->is_over())) told->recorder().after(call, result);
}

void GraphRecordings::capture_begins() {
  const std::lock_guard lock(history_mutex_);
  captures_.begins();
}

void GraphRecordings::mark(bool begins, const char* name, std::uint32_t thread) {
  if (const Use now = recording_.use()) now->recorder().mark(begins, name, thread);
}

// ---- memory of captures ----

void GraphRecordings::came(const CaptureMemory& memory) {
  const CapturedRanges::Ranges ranges = captured_.add(memory);
  if (const Use now = recording_.use()) now->there(ranges);
}

void GraphRecordings::gone(const std::vector<MemorySlot>& slots) {
  captured_.remove(slots);
  if (const Use now = recording_.use()) now->gone(slots);
}

// ---- learning ----

void GraphRecordings::catch_up() {
  if (const Use now = recording_.use()) now->catch_up();
}

void GraphRecordings::learning_begins() {
  const std::lock_guard one_at_a_time(analysis_mutex_);
  catch_up();
  begin_anew(options_.limit_bytes / kRoom);
}

// No other recording begins while this thread still learns.
void GraphRecordings::learning_ends() {
  if (const Use now = recording_.use()) learned_bytes_.store(now->store().bytes(), std::memory_order_relaxed);
}

void GraphRecordings::wait_for_what_came_before() {
  if (captures_.any()) return;
  const auto wait = reinterpret_cast<decltype(&::cuCtxSynchronize)>(context_.driver_symbol("cuCtxSynchronize"));
  const CUcontext context = current_context();
  if (!wait || !context || wait() != CUDA_SUCCESS) return;
  if (const Use now = recording_.use()) now->waited_for(context);
}

// ---- the end ----

// For debugging: nimble-analyze sees the graphs as marked steps.
void GraphRecordings::finish() noexcept try {
  if (options_.trace_path.empty() || finished_.exchange(true)) return;
  if (const Use last = recording_.use()) write(*last);
} catch (...) {
}

void GraphRecordings::write(GraphRecording& recording) const {
  recording.recorder().finish();
  OwnFile file;
  int error = file.open(options_.trace_path);
  const bool packs = options_.trace_path.ends_with(kPackedEnding);
  TraceCompressor packer;
  const auto write_bytes = [&](std::string_view bytes) {
    if (error == 0) error = file.write(bytes.data(), bytes.size());
  };
  const auto write = [&](std::string_view text) {
    const std::string_view bytes = packs ? packer.pack(text) : text;
    if (bytes.empty() && !text.empty() && error == 0) error = ENOMEM;
    write_bytes(bytes);
  };
  if (packs) write_bytes(packed_trace_mark());
  for (const TraceStore::Piece& piece : recording.store().text()) write(piece.text);
  if (!recording.store().full()) {
    write(
        R"json({"ph":"M","pid":1,"tid":0,"name":"nimble.coverage","args":{"source":"none","why":"graphs were rewritten"}},)json"
        "\n");
    write(kTraceEnd);
  }
  if (error == 0) error = file.place(FileKind::trace);
  if (error != 0) {
    file.discard();
    return log_.warn("cannot write " + options_.trace_path + ": " + std::strerror(error));
  }
  const std::string wrote = "wrote " + file.path() + ". Next: nimble-analyze " + file.path();
  if (file.why_other().empty()) return log_.say(wrote);
  log_.warn(left_alone(options_.trace_path, file.why_other()) + ": " + wrote);
}

bool GraphRecordings::forked() noexcept {
  const Use now = recording_.use();
  return now && now->recorder().forked();
}

}  // namespace nimble::shim
