// The C API (include/nimble/nimble.h), as libnimble.so exports it. Nothing is thrown through, and nothing here starts a
// session: before the program's first driver call there is nothing to tell.
#define NIMBLE_IMPLEMENTATION
#include "nimble/nimble.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "nimble/version.h"
#include "shim/decode/entry.h"
#include "shim/options.h"
#include "shim/session.h"

namespace {

using nimble::CallSink;
using nimble::SinkPhase;
using nimble::SinkReport;

static_assert(static_cast<int>(SinkPhase::idle) == NIMBLE_PHASE_IDLE);
static_assert(static_cast<int>(SinkPhase::recording) == NIMBLE_PHASE_RECORDING);
static_assert(static_cast<int>(SinkPhase::analyzing) == NIMBLE_PHASE_ANALYZING);
static_assert(static_cast<int>(SinkPhase::searching) == NIMBLE_PHASE_SEARCHING);
static_assert(static_cast<int>(SinkPhase::binding) == NIMBLE_PHASE_BINDING);
static_assert(static_cast<int>(SinkPhase::replaying) == NIMBLE_PHASE_REPLAYING);
static_assert(static_cast<int>(SinkPhase::aside) == NIMBLE_PHASE_ASIDE);

nimble_mode mode_of_process() {
  static const nimble_mode mode = [] {
    switch (nimble::shim::read_options().mode) {
      case nimble::shim::Mode::record:
        return NIMBLE_MODE_RECORD;
      case nimble::shim::Mode::replay:
        return NIMBLE_MODE_REPLAY;
      case nimble::shim::Mode::automatic:
        return NIMBLE_MODE_AUTO;
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
    return function();
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
  if (CallSink* const sink = nimble::shim::started_sink()) sink->mark(begins, name, nimble::shim::thread_index());
  return NIMBLE_SUCCESS;
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
#include "nimble/counters.def"
    return fill(counters, filled);
  });
}
