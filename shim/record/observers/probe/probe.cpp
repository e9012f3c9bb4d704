#include "shim/record/observers/probe/probe.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "nimble/internal/launch_attributes.h"
#include "nimble/internal/launch_params.h"
#include "nimble/internal/schedule.h"
#include "replayer/driver/result_name.h"
#include "shim/process/log.h"
#include "shim/process/per_thread.h"
#include "shim/record/trace/record_queue.h"
#include "shim/state/contexts.h"

namespace nimble::shim {

namespace {

// How long calls of other threads wait for a launch that is being compared: longer than that may take, so that only its
// end releases them, or a timeout if its thread is gone.
constexpr std::chrono::milliseconds kOthersPatience{60'000};
constexpr int kMostFailures = 8;  // in a row
constexpr std::size_t kMostRanges =
    4096;  // per launch; beyond that, one range from an object's first change to its last

// Whether this thread is comparing a launch, inside the gate.
thread_local bool t_comparing __attribute__((tls_model("initial-exec"))) = false;
struct Seen {
  std::vector<TraceAccess> list;
};

std::vector<TraceAccess>& seen_list() {
  std::vector<TraceAccess>& list = PerThread<Seen>::get().list;
  list.clear();
  return list;
}

bool submits(CallKind kind) {
  return is_op(kind) || kind == CallKind::free || kind == CallKind::capture_begin || kind == CallKind::context_end;
}

}  // namespace

Probe::Probe(ProbeOptions options, CallContext& context)
    : options_(options), context_(context), reader_(context, options.patience) {
  totals_.limit_bytes = options_.limit_bytes;
  if (!reader_.why_not().empty()) give_up("the driver has no " + reader_.why_not());
}

void Probe::before(const Call& call, const std::atomic<bool>& any_captures) noexcept try {
  if (call.kind == CallKind::capture_begin) ++captures_beginning_;
  if (off_.load(std::memory_order_relaxed) || !submits(call.kind)) return;
  // Before the call may pass: later comparisons no longer read this memory.
  if (call.kind == CallKind::free || call.kind == CallKind::free_async) objects_.freed(call);
  // A primary context takes memory allocated in green ones with it.
  if (call.kind == CallKind::context_end) objects_.context_ends(is_primary(call.context) ? nullptr : call.context);
  // A graph's nodes in a recording do not run now: no writes would be seen.
  if (call.kind == CallKind::launch && std::strcmp(call.symbol, kKernelOfAGraph) != 0 &&
      (!options_.wanted || options_.wanted())) {
    open_window(call, any_captures);
  } else {
    pass();
  }
} catch (const std::exception& error) {
  if (t_comparing) close_window();
  give_up(error.what());
}

void Probe::pass() {
  if (!gate_.pass(kOthersPatience)) give_up("a launch does not end");
}

void Probe::open_window(const Call& call, const std::atomic<bool>& any_captures) {
  const std::uint64_t begin_ns = now_ns();
  if (!gate_.enter(kOthersPatience)) return give_up("a launch does not end");
  t_comparing = true;
  if (off_ || captures_beginning_ != 0 || any_captures || !call.has_stream) return close_window();
  const RelaxedCaptures relaxed(context_);
  if (reader_.may_capture(call.stream.handle)) return close_window();
  bool opened = find_targets(call);
  if (opened && !targets_.empty()) {
    opened =
        !failed(reader_.settle(call.stream.handle), "before a launch") && digest(call.stream.handle, &Target::before);
  }
  {
    const std::lock_guard lock(totals_mutex_);
    ++totals_.launches;
    totals_.time_ns += now_ns() - begin_ns;
  }
  // A launch that is not compared is like any other call.
  if (!opened) close_window();
}

// Every parameter word that points into a live object names it. False if the parameters cannot be read, or do not tell
// all that the kernel does.
bool Probe::find_targets(const Call& call) {
  targets_.clear();
  addresses_ = holds_any_ = false;
  const FunctionInfo& function = context_.function(call.launch.function);
  for (std::uint32_t i = 0; i < call.launch.attribute_count; ++i)
    if (meaningful(call.launch.attributes[i]) && !only_changes_how_it_runs(call.launch.attributes[i].id)) return false;
  if (call.launch.cooperative || !function.params ||
      (!call.launch.kernel_params && !call.launch.extra && function.param_bytes))
    return false;
  params_.assign(function.param_bytes, 0);
  if (!pack_params(call, function, params_.data())) return false;
  for (const ParamLayout& param : *function.params) {
    for (std::uint32_t at = (param.offset + 7) & ~7u; at + 8 <= param.offset + param.size; at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, params_.data() + at, sizeof word);
      const std::optional<Allocation> object = word ? objects_.find(word) : std::nullopt;
      if (!object || !can_be_copied(object->memory)) continue;
      if (options_.limit_bytes && object->size > options_.limit_bytes) {
        left_out_.emplace(object->base, object->size);
        continue;
      }
      const auto same = [&](const Target& target) { return target.base == object->base; };
      if (std::none_of(targets_.begin(), targets_.end(), same)) {
        Target& target = targets_.emplace_back();
        target.base = object->base;
        target.size = object->size;
      }
    }
  }
  std::sort(targets_.begin(), targets_.end(), [](const Target& a, const Target& b) { return a.base < b.base; });
  return true;
}

bool Probe::digest(CUstream stream, ChunkDigests Target::*which) {
  std::vector<DeviceReader::Piece> pieces;
  for (Target& target : targets_) {
    (target.*which).clear();
    pieces.push_back({target.base, target.size});
  }
  const bool again = which == &Target::after;
  const auto outcome = reader_.read(stream, pieces, [&](std::size_t piece, std::span<const std::uint8_t> bytes) {
    Target& target = targets_[piece];
    const std::size_t first = (target.*which).chunks().size();
    (target.*which).add(bytes);
    if (!(again ? addresses_ && holds_any_ : holds_any_)) look_for_addresses(target, first, bytes, again);
  });
  return !failed(outcome, "while its memory was read");
}

// Whether it failed; handles the failure.
bool Probe::failed(DeviceReader::Outcome outcome, const char* doing) {
  switch (outcome) {
    case DeviceReader::Outcome::done:
      return false;
    case DeviceReader::Outcome::late:
      give_up("a wait timed out " + std::string(doing) + ": a kernel runs for longer than " +
              std::to_string(options_.patience.count()) + " ms, or waits for one not yet launched");
      return true;
    case DeviceReader::Outcome::failed:
      if (++failures_ >= kMostFailures) give_up("the driver returns " + result_name(reader_.error()) + " " + doing);
      return true;
  }
  return true;
}

// Checks whether anything before or after the launch looks like addresses of the program's memory, and whether the
// launch has written any. It may have followed earlier ones and cleared them.
void Probe::look_for_addresses(const Target& target, std::size_t first, std::span<const std::uint8_t> bytes,
                               bool is_behind) {
  const std::vector<std::uint64_t>& before = target.before.chunks();
  for (std::size_t at = 0; at < bytes.size(); at += kProbeChunk) {
    const std::size_t chunk = first + at / kProbeChunk;
    const bool written = is_behind && (chunk >= before.size() || before[chunk] != target.after.chunks()[chunk]);
    if (written ? addresses_ : holds_any_) continue;
    const std::size_t end = std::min(at + kProbeChunk, bytes.size());
    for (std::size_t word_at = at; word_at + 8 <= end; word_at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + word_at, sizeof word);
      if (could_be_address(word) && objects_.may_hold(word)) {
        holds_any_ = true;
        addresses_ = addresses_ || written;
        break;
      }
    }
  }
}

const std::vector<TraceAccess>* Probe::after(const Call& call, CUresult result) noexcept try {
  if (call.kind == CallKind::capture_begin) --captures_beginning_;
  if (call.kind == CallKind::context_end) objects_.context_ends(call.context);  // which may be known only now
  if (!t_comparing) return nullptr;
  const std::uint64_t begin_ns = now_ns();
  std::vector<TraceAccess>& seen = seen_list();
  bool compared = result == CUDA_SUCCESS;
  if (compared && !targets_.empty()) {
    const RelaxedCaptures relaxed(context_);
    compared =
        !failed(reader_.settle(call.stream.handle), "for a launch") && digest(call.stream.handle, &Target::after);
  }
  if (compared) {
    failures_ = 0;
    compare(seen);
  }
  {
    const std::lock_guard lock(totals_mutex_);
    totals_.compared += compared;
    totals_.bytes = reader_.bytes_read();
    totals_.too_large = left_out_.size();
    totals_.time_ns += now_ns() - begin_ns;
  }
  close_window();
  return compared ? &seen : nullptr;
} catch (const std::exception& error) {
  if (t_comparing) close_window();
  give_up(error.what());
  return nullptr;
}

void Probe::compare(std::vector<TraceAccess>& seen) const {
  for (const Target& target : targets_) seen.push_back({target.base, target.size, true, false});
  for (const Target& target : targets_) append_changes(target.base, target.size, target.before, target.after, seen);
  const auto addresses = [&] {
    if (addresses_) seen.push_back(kProbeSawAddresses);
    if (!holds_any_) seen.push_back(kProbeSawNone);
  };
  if (seen.size() <= kMostRanges + targets_.size()) return addresses();
  seen.resize(targets_.size());
  std::vector<TraceAccess> changes;
  for (const Target& target : targets_) {
    changes.clear();
    append_changes(target.base, target.size, target.before, target.after, changes);
    if (changes.empty()) continue;
    const std::uint64_t begin = changes.front().address;
    seen.push_back({begin, changes.back().address + changes.back().bytes - begin, false, true});
  }
  addresses();
}

void Probe::allocated(const Call& call) noexcept try {
  if (!off_.load(std::memory_order_relaxed)) objects_.allocated(call);
} catch (const std::exception& error) {
  give_up(error.what());
}

void Probe::leave() noexcept {
  if (t_comparing) close_window();
}

void Probe::close_window() noexcept {
  t_comparing = false;
  // Only when the last one is over: until then calls of other threads have to wait.
  if (options_.launches != 0) {
    const std::lock_guard lock(totals_mutex_);
    if (totals_.launches >= options_.launches) off_ = true;
  }
  gate_.leave();
}

void Probe::give_up(const std::string& why) noexcept {
  if (off_.exchange(true)) return;
  try {
    {
      const std::lock_guard lock(totals_mutex_);
      totals_.why_ended = why;
    }
    log(LogLevel::warning, "NIMBLE_PROBE: comparing no further launches: " + why);
  } catch (...) {
  }
}

ProbeTotals Probe::totals() const {
  const std::lock_guard lock(totals_mutex_);
  return totals_;
}

}  // namespace nimble::shim
