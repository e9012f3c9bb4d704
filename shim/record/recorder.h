// Record mode: keeps what happened, in a queue that a background thread writes out.
//
// A CallSink, called from any thread. The calling thread copies the call into a shared buffer under a short lock; all
// formatting is the writer thread's work. The trace file is opened at the first call of a kind that traces hold, so
// processes that never use the GPU leave no file. Knows nothing of preloading: tests drive it directly.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "analyzer/input/trace_store.h"
#include "nimble/internal/call.h"
#include "shim/record/facts/graph_table.h"
#include "shim/record/facts/payload.h"
#include "shim/record/facts/stray_words.h"
#include "shim/record/observer.h"
#include "shim/record/step_count.h"
#include "shim/record/trace/record_queue.h"

namespace nimble::shim {

struct RecorderOptions {
  std::string path;
  std::uint64_t limit_bytes = 0;        // of the file, where the recording ends by itself; 0: none
  std::uint32_t steps = 0;              // after so many the recording ends by itself; 0: it does not
  std::uint64_t look_limit_bytes = 0;   // of the trace, as long as it is looked through for steps that are not marked
  std::shared_ptr<TraceStore> store{};  // where the trace goes instead of into the file
};

class Recorder final : public CallSink {
 public:
  // `context` must outlive the recorder. What watches beside it is made by shim/record/observers/make_observers.h.
  Recorder(RecorderOptions options, CallContext& context, RecordObservers observers = {});
  ~Recorder() override;

  // What the first call does otherwise: looks functions of the driver's up, for which the dynamic loader's lock is
  // taken, and starts what watches beside the recorder. The driver is loaded and initialised by then.
  void start();

  Answer before(Call& call) noexcept override;
  void after(const Call& call, CUresult result) noexcept override;
  void mark(bool begins, const char* name, std::uint32_t thread) noexcept override;
  SinkReport report() override;
  // In the place of before(), where no recorder is to keep the calling thread's call: another one may get its after().
  static void skip() noexcept;
  // Calls and marks so far.
  std::uint64_t calls() const { return next_seq_.load(std::memory_order_relaxed); }
  // What the program has done so far, and how much of that is in the trace: two numbers of one kind.
  std::uint64_t pushed() const { return queue_.pushed(); }
  std::uint64_t written() const { return queue_.written(); }
  // Whether some of it is missing, for want of memory, threads or room: nothing more comes then.
  bool failed() const { return queue_.failed(); }
  // Somebody waits for that.
  void hurry() { queue_.hurry(); }
  void finish() noexcept override;
  void finish_interrupted() noexcept override;
  bool forked() noexcept override;

 private:
  // Whether the op goes into a graph that the program is capturing instead of being executed.
  bool captured(const Call& call);
  bool is_capturing(const StreamRef& stream);
  void follow_captures(const Call& call, CUresult result);
  // Finds what a copy carries that may be pointers. False where its source is not the host's memory, or is too large.
  bool look_at_payload(const Call& call, std::vector<TraceWord>& words);
  // The same text, for as long as the recorder lives. Null where there is none, or no room for another.
  const char* kept_name(const char* name);
  // Fills in what the record holds beside the call, and queues it.
  void keep(Record& record, const std::vector<TraceAccess>* seen);
  void give_up(const char* why) noexcept;
  // The recording ends, and the program goes on: what watches is let go of, and calls pass.
  void step_aside() noexcept;
  // What is known of how complete the recording is. Once.
  void tell_queue();
  void tell_observers_end() noexcept;
  void start_watching();
  void stop_watching() noexcept;

  const RecorderOptions options_;
  CallContext& context_;
  alignas(64) std::atomic<std::uint64_t> next_seq_{0};  // written by every call, so on a cache line of its own
  alignas(64) std::mutex captures_mutex_;
  std::set<std::uint64_t> captures_;  // keys of the streams in which a capture began and has not ended
  std::atomic<bool> any_captures_{false};
  std::mutex names_mutex_;
  std::set<std::string> names_;  // of marked steps
  std::atomic<std::uint64_t> steps_marked_{0};
  AddressRange allocated_;
  GraphTable graphs_;
  RecordQueue queue_;
  StrayWords strays_;
  std::unique_ptr<StepCount> steps_;  // where the recording ends after some
  std::atomic<bool> watching_{false};
  std::atomic<bool> passes_{false};  // the recording is over
  std::mutex stop_watching_mutex_;
  const RecordObservers observers_;
  pid_t watching_process_ = 0;
  std::atomic<bool> finished_{false};
};

}  // namespace nimble::shim
