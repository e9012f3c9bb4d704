// The C API (include/nimble/nimble.h), as libnimble.so exports it. Lets no exception out. Only a region starts a
// session: nothing else has anything to tell before the program's first driver call.
#define NIMBLE_IMPLEMENTATION
#include "nimble/nimble.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <string>

#include "nimble/internal/version.h"
#include "shim/driver/call_receiver.h"
#include "shim/driver/guard.h"
#include "shim/driver/real_driver.h"
#include "shim/modes/region_sink.h"
#include "shim/options/options.h"
#include "shim/process/roomy_stack.h"
#include "shim/rewrite/graph_sink.h"
#include "shim/state/stream_ref.h"

namespace {

using nimble::CallSink;
using nimble::SinkPhase;
using nimble::SinkReport;
using nimble::shim::with_room;

static_assert(static_cast<int>(SinkPhase::idle) == NIMBLE_PHASE_IDLE);
static_assert(static_cast<int>(SinkPhase::recording) == NIMBLE_PHASE_RECORDING);
static_assert(static_cast<int>(SinkPhase::analyzing) == NIMBLE_PHASE_ANALYZING);
static_assert(static_cast<int>(SinkPhase::searching) == NIMBLE_PHASE_SEARCHING);
static_assert(static_cast<int>(SinkPhase::binding) == NIMBLE_PHASE_BINDING);
static_assert(static_cast<int>(SinkPhase::replaying) == NIMBLE_PHASE_REPLAYING);
static_assert(static_cast<int>(SinkPhase::aside) == NIMBLE_PHASE_ASIDE);

using GraphState = nimble::shim::GraphStatus::State;
static_assert(static_cast<int>(GraphState::kept) == NIMBLE_GRAPH_KEPT);
static_assert(static_cast<int>(GraphState::trying) == NIMBLE_GRAPH_TRYING);
static_assert(static_cast<int>(GraphState::own) == NIMBLE_GRAPH_OWN);
static_assert(static_cast<int>(GraphState::rewritten) == NIMBLE_GRAPH_REWRITTEN);

nimble_mode mode_of_process() {
  static const nimble_mode mode = [] {
    switch (nimble::shim::with_room([] { return nimble::shim::read_options().mode; })) {
      case nimble::shim::Mode::record:
        return NIMBLE_MODE_RECORD;
      case nimble::shim::Mode::replay:
        return NIMBLE_MODE_REPLAY;
      case nimble::shim::Mode::automatic:
        return NIMBLE_MODE_AUTO;
      case nimble::shim::Mode::regions:
        return NIMBLE_MODE_REGIONS;
      case nimble::shim::Mode::check:  // the program's calls are only watched
      case nimble::shim::Mode::off:
        break;
    }
    return NIMBLE_MODE_OFF;
  }();
  return mode;
}

SinkReport report() {
  CallSink* const sink = nimble::shim::started_sink();
  return sink ? sink->report() : SinkReport{};
}

template <class Function>
nimble_result guarded(Function function) noexcept {
  try {
    return with_room(function);
  } catch (const std::bad_alloc&) {
    return NIMBLE_OUT_OF_MEMORY;
  } catch (...) {
    return NIMBLE_FAILED;
  }
}

// A caller that was compiled with an older header has a shorter structure, with a newer one a longer.
template <class Structure>
nimble_result fill(Structure* target, Structure& filled) {
  const std::size_t size = target->size;
  if (size > sizeof filled) std::memset(reinterpret_cast<char*>(target) + sizeof filled, 0, size - sizeof filled);
  filled.size = size;
  std::memcpy(target, &filled, std::min(size, sizeof filled));
  return NIMBLE_SUCCESS;
}

nimble_result mark(bool begins, const char* name) {
  if (CallSink* const sink = nimble::shim::started_sink())
    with_room([&] { sink->mark(begins, name, nimble::shim::thread_index()); });
  return NIMBLE_SUCCESS;
}

using nimble::shim::ProgramRegion;
using nimble::shim::RegionSink;

ProgramRegion* of(nimble_region* region) { return reinterpret_cast<ProgramRegion*>(region); }

// The receiver of calls if this process has used regions: set by its first region, for good.
std::atomic<RegionSink*> g_regions{nullptr};

RegionSink* region_sink() noexcept try {
  if (RegionSink* const known = g_regions.load(std::memory_order_acquire)) return known;
  if (mode_of_process() != NIMBLE_MODE_REGIONS) return nullptr;
  auto* const sink = dynamic_cast<RegionSink*>(nimble::shim::sink());
  g_regions.store(sink, std::memory_order_release);
  return sink;
} catch (...) {  // out of memory
  return nullptr;
}

using nimble::shim::GraphSink;

// Starts the session if there is none: learning may precede any driver call. Not cached: a forked child has another
// receiver. Null if this process does not rewrite graphs; the running session decides that, not the environment's
// present value.
GraphSink* graph_sink() {
  CallSink* sink = nimble::shim::started_sink();
  if (!sink && nimble::shim::read_options().graphs) sink = nimble::shim::sink();
  return dynamic_cast<GraphSink*>(sink);
}

template <class Function>
nimble_result with_graphs(Function function) noexcept {
  return guarded([&] {
    GraphSink* const sink = graph_sink();
    if (!sink) return NIMBLE_WRONG_MODE;
    const nimble::shim::Guard guard;
    return function(*sink);
  });
}

nimble_result result_of(const ProgramRegion& region) {
  switch (region.state()) {
    case ProgramRegion::State::refused:
      return NIMBLE_REFUSED;
    case ProgramRegion::State::stale:
      return NIMBLE_STALE;
    case ProgramRegion::State::compiled:
      return NIMBLE_SUCCESS;
    case ProgramRegion::State::recording:
    case ProgramRegion::State::recorded:
      break;
  }
  return NIMBLE_INVALID_ARGUMENT;  // it has not got that far
}

// Our own driver calls do not count as the program's.
template <class Function>
nimble_result with_regions(nimble_region* region, Function function) noexcept {
  RegionSink* const sink = region_sink();
  if (!sink) return NIMBLE_WRONG_MODE;
  if (!region) return NIMBLE_INVALID_ARGUMENT;
  const nimble::shim::Guard guard;
  return guarded([&] { return function(*sink, *of(region)); });
}

}  // namespace

nimble_result nimble_version(int* api, const char** text) {
  if (api) *api = NIMBLE_API_VERSION;
  if (text) *text = nimble::kVersion;
  return NIMBLE_SUCCESS;
}

nimble_result nimble_step_begin(const char* name) { return mark(true, name); }

nimble_result nimble_step_end() { return mark(false, nullptr); }

nimble_result nimble_get_status(nimble_status* status) {
  if (!status || status->size < offsetof(nimble_status, reason)) return NIMBLE_INVALID_ARGUMENT;
  return guarded([&] {
    const SinkReport known = report();
    nimble_status filled{};
    filled.mode = mode_of_process();
    filled.phase = static_cast<nimble_phase>(known.phase);
    const std::size_t length = std::min(known.reason.size(), sizeof filled.reason - 1);
    std::memcpy(filled.reason, known.reason.data(), length);
    return fill(status, filled);
  });
}

nimble_result nimble_get_counters(nimble_counters* counters) {
  if (!counters || counters->size < sizeof(std::size_t)) return NIMBLE_INVALID_ARGUMENT;
  return guarded([&] {
    const SinkReport known = report();
    nimble_counters filled{};
#define NIMBLE_COUNTER(name, meaning) filled.name = known.counters.name;
#include "nimble/internal/counters.def"
    return fill(counters, filled);
  });
}

nimble_result nimble_region_begin(nimble_region** region) {
  if (!region) return NIMBLE_INVALID_ARGUMENT;
  *region = nullptr;
  RegionSink* const sink = region_sink();
  if (!sink) return NIMBLE_WRONG_MODE;
  const nimble::shim::Guard guard;
  return guarded([&] {
    *region = reinterpret_cast<nimble_region*>(sink->begin());
    return *region ? NIMBLE_SUCCESS : NIMBLE_FAILED;
  });
}

nimble_result nimble_region_end(nimble_region* region) {
  return with_regions(region, [](RegionSink& sink, ProgramRegion& mine) {
    return sink.end(mine) ? NIMBLE_SUCCESS : NIMBLE_INVALID_ARGUMENT;
  });
}

nimble_result nimble_region_compile(nimble_region* region) {
  return with_regions(region, [](RegionSink& sink, ProgramRegion& mine) {
    sink.compile(mine);
    return result_of(mine);
  });
}

nimble_result nimble_region_launch(nimble_region* region, CUstream_st* stream) {
  RegionSink* const sink = g_regions.load(std::memory_order_acquire);
  if (!sink) return mode_of_process() == NIMBLE_MODE_REGIONS ? NIMBLE_INVALID_ARGUMENT : NIMBLE_WRONG_MODE;
  if (!region) return NIMBLE_INVALID_ARGUMENT;
  const nimble::shim::Guard guard;
  const auto answer = with_room([&] { return sink->launch(*of(region), stream); });
  if (!answer) return result_of(*of(region));
  return *answer == CUDA_SUCCESS ? NIMBLE_SUCCESS : NIMBLE_DRIVER_ERROR;
}

nimble_result nimble_region_why(nimble_region* region, char* text, size_t size) {
  if (!text || size == 0) return NIMBLE_INVALID_ARGUMENT;
  *text = '\0';
  return with_regions(region, [&](RegionSink&, ProgramRegion& mine) {
    const std::string why = mine.why();
    const std::size_t length = std::min(why.size(), size - 1);
    std::memcpy(text, why.data(), length);
    text[length] = '\0';
    return NIMBLE_SUCCESS;
  });
}

nimble_result nimble_region_destroy(nimble_region* region) {
  if (!region) return NIMBLE_SUCCESS;
  return with_regions(region, [](RegionSink& sink, ProgramRegion& mine) {
    return sink.destroy(&mine) ? NIMBLE_SUCCESS : NIMBLE_INVALID_ARGUMENT;
  });
}

nimble_result nimble_learn_begin() {
  return with_graphs([](GraphSink& sink) { return sink.learn(true) ? NIMBLE_SUCCESS : NIMBLE_INVALID_ARGUMENT; });
}

nimble_result nimble_learn_end() {
  return with_graphs([](GraphSink& sink) { return sink.learn(false) ? NIMBLE_SUCCESS : NIMBLE_INVALID_ARGUMENT; });
}

nimble_result nimble_capture_again() {
  return with_graphs([](GraphSink& sink) { return sink.capture_again() ? NIMBLE_SUCCESS : NIMBLE_REFUSED; });
}

nimble_result nimble_rehearse_begin(CUstream_st* stream) {
  return with_graphs(
      [&](GraphSink& sink) { return sink.dry_runs().begin(stream) ? NIMBLE_SUCCESS : NIMBLE_INVALID_ARGUMENT; });
}

nimble_result nimble_rehearse_part(void) {
  return with_graphs(
      [](GraphSink& sink) { return sink.dry_runs().begin_part() ? NIMBLE_SUCCESS : NIMBLE_INVALID_ARGUMENT; });
}

nimble_result nimble_rehearse_end(std::uint64_t* strays, std::uint64_t* behind) {
  return with_graphs([&](GraphSink& sink) {
    const auto rehearsed = sink.dry_runs().end();
    if (!rehearsed) return NIMBLE_INVALID_ARGUMENT;
    if (strays) *strays = rehearsed->strays;
    if (behind) *behind = rehearsed->behind;
    return NIMBLE_SUCCESS;
  });
}

nimble_result nimble_count_captures(std::uint64_t* count) {
  if (!count) return NIMBLE_INVALID_ARGUMENT;
  return with_graphs([&](GraphSink& sink) {
    *count = sink.captures();
    return NIMBLE_SUCCESS;
  });
}

nimble_result nimble_get_graph(CUgraphExec_st* exec, nimble_graph_status* status) {
  if (!status || status->size < offsetof(nimble_graph_status, text)) return NIMBLE_INVALID_ARGUMENT;
  return with_graphs([&](GraphSink& sink) {
    nimble_graph_status filled{};
    const auto known = sink.status(exec);
    if (!known) return NIMBLE_INVALID_ARGUMENT;
    filled.exec = known->exec;
    filled.state = static_cast<nimble_graph_state>(known->state);
    filled.nodes = known->nodes;
    filled.streams = known->streams;
    filled.own_us = known->own_us;
    filled.rewritten_us = known->rewritten_us;
    filled.strays = known->strays;
    std::memcpy(filled.text, known->text.data(), std::min(known->text.size(), sizeof filled.text - 1));
    return fill(status, filled);
  });
}

nimble_result nimble_graph_writes_only(CUgraphExec_st* exec, const std::uint64_t* addresses, const std::uint64_t* bytes,
                                       size_t count) {
  if (count && (!addresses || !bytes)) return NIMBLE_INVALID_ARGUMENT;
  return with_graphs([&](GraphSink& sink) {
    std::vector<nimble::TraceProbe::Range> ranges;
    for (size_t i = 0; i < count; ++i) ranges.push_back({addresses[i], bytes[i]});
    const std::optional<bool> only = sink.writes_only(exec, ranges);
    return !only ? NIMBLE_INVALID_ARGUMENT : *only ? NIMBLE_SUCCESS : NIMBLE_REFUSED;
  });
}

nimble_result nimble_stream_is_idle(CUstream_st* stream) {
  return with_graphs([&](GraphSink& sink) { return sink.is_idle(stream) ? NIMBLE_SUCCESS : NIMBLE_REFUSED; });
}

nimble_result nimble_settle(void) {
  return with_graphs([&](GraphSink& sink) { return sink.settle() ? NIMBLE_SUCCESS : NIMBLE_REFUSED; });
}

nimble_result nimble_watch_memory(const std::uint64_t* addresses, size_t count, const volatile std::uint32_t** gone) {
  if (!gone || (count && !addresses)) return NIMBLE_INVALID_ARGUMENT;
  *gone = nullptr;
  return with_graphs([&](GraphSink& sink) {
    *gone = sink.watch().add({addresses, count});
    return *gone ? NIMBLE_SUCCESS : NIMBLE_FAILED;
  });
}

nimble_result nimble_unwatch_memory(const volatile std::uint32_t* gone) {
  return with_graphs([&](GraphSink& sink) {
    return sink.watch().remove(const_cast<const std::uint32_t*>(gone)) ? NIMBLE_SUCCESS : NIMBLE_INVALID_ARGUMENT;
  });
}

nimble_result nimble_launch_graph(CUgraphExec_st* exec, CUstream_st* stream, const volatile std::uint32_t* gone) {
  const nimble_result may = with_graphs([&](GraphSink& sink) {
    if (gone && __atomic_load_n(gone, __ATOMIC_ACQUIRE)) return NIMBLE_STALE;
    const std::optional<bool> may_be = sink.may_launch(exec, stream);
    return !may_be ? NIMBLE_INVALID_ARGUMENT : *may_be ? NIMBLE_SUCCESS : NIMBLE_REFUSED;
  });
  if (may != NIMBLE_SUCCESS) return may;
  // From here on it counts as the program's call.
  const auto launch =
      reinterpret_cast<decltype(&::cuGraphLaunch)>(nimble::shim::wrapper(nimble::shim::id_cuGraphLaunch));
  return launch(exec, stream) == CUDA_SUCCESS ? NIMBLE_SUCCESS : NIMBLE_DRIVER_ERROR;
}

nimble_result nimble_keep_graph(CUgraphExec_st* exec) {
  return with_graphs([&](GraphSink& sink) { return sink.keep(exec) ? NIMBLE_SUCCESS : NIMBLE_INVALID_ARGUMENT; });
}
