// The life of libnimble.so in a process: set up when it is loaded, stepped aside in forked children, finished at exit.
#include "shim/session.h"

#include <pthread.h>

#include <memory>

#include "replayer/replayer.h"
#include "shim/function_table.h"
#include "shim/guard.h"
#include "shim/log.h"
#include "shim/options.h"
#include "shim/real_driver.h"
#include "shim/recorder.h"
#include "shim/stream_table.h"

namespace nimble::shim {

namespace {

class Context final : public CallContext {
 public:
  const FunctionInfo& function(CUfunction handle) override { return functions().find(handle); }
  StreamKind stream_kind(const StreamRef& stream) override { return streams().kind(stream); }
  void* driver_symbol(const char* name) override { return shim::driver_symbol(name); }
};

CallSink* g_created = nullptr;  // outlives g_sink, which forked children take away

// Everything is allocated once and never destroyed: other threads may still be calling while the process ends.
CallSink* make_sink(const Options& options) {
  static Context* const context = new Context;
  switch (options.mode) {
    case Mode::record:
      return new Recorder({options.trace, options.timing, options.coverage}, *context);
    case Mode::replay: {
      ReplayOptions replay;
      replay.schedule_path = options.schedule;
      replay.stats_path = options.stats;
      replay.hold = std::chrono::microseconds(options.hold_us);
      replay.log = [](ReplayLog level, const std::string& text) {
        log(level == ReplayLog::info ? LogLevel::info : LogLevel::warning, text);
      };
      // The thread's own driver calls pass through, for its whole life.
      replay.enter_helper_thread = [] { static thread_local const Guard guard; };
      return make_replayer(std::move(replay), *context).release();
    }
    case Mode::off:
      break;
  }
  return nullptr;
}

__attribute__((constructor)) void start() {
  const Options options = read_options();
  if (!options.complaint.empty()) log(LogLevel::error, options.complaint);
  if (options.mode == Mode::off) return;
  g_intercepting = true;
  // A forked child never writes, flushes or closes what is its parent's. Data-loader workers fork and never use the
  // GPU.
  pthread_atfork(nullptr, nullptr, [] { g_sink.store(nullptr, std::memory_order_release); });
  g_created = make_sink(options);
  g_sink.store(g_created, std::memory_order_release);
}

// Libraries that were loaded at the start have their static destructors run after this, and threads may still be
// calling: the sink stays, and knows that it has finished.
__attribute__((destructor)) void end() {
  if (!sink()) return;
  Guard guard;
  g_created->finish();
}

}  // namespace

}  // namespace nimble::shim
