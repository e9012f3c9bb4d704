// Record mode: records calls in a queue that a background thread writes out.
//
// A CallSink, called from any thread. The calling thread copies the call into a shared buffer under a short lock; all
// formatting is the writer thread's work. The trace file is opened at the first traced call, so processes that never
// use the GPU leave no file. Does not depend on preloading: tests drive it directly.
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
  std::uint64_t limit_bytes = 0;        // of the file, at which the recording ends; 0: none
  std::uint32_t steps = 0;              // after which the recording ends; 0: no limit
  std::uint64_t look_limit_bytes = 0;   // of the trace, up to which we search it for unmarked steps
  std::shared_ptr<TraceStore> store{};  // where the trace goes instead of into the file
};

class Recorder final : public CallSink {
 public:
  // `context` must outlive the recorder. shim/record/observers/make_observers.h makes its observers.
  Recorder(RecorderOptions options, CallContext& context, RecordObservers observers = {});
  ~Recorder() override;

  // Does early what the first call would: looks driver functions up, which takes the dynamic loader's lock, and starts
  // the observers. The driver is loaded and initialised by then.
  void start();

  Answer before(Call& call) noexcept override;
  void after(const Call& call, CUresult result) noexcept override;
  void mark(bool begins, const char* name, std::uint32_t thread) noexcept override;
  SinkReport report() override;
  // Instead of before(), if no recorder is to keep the calling thread's call: another one may get its after().
  static void skip() noexcept;
  // Calls and marks so far.
  std::uint64_t calls() const { return next_seq_.load(std::memory_order_relaxed); }
  // How many items the program has pushed so far, and how many of them are in the trace.
  std::uint64_t pushed() const { return queue_.pushed(); }
  std::uint64_t written() const { return queue_.written(); }
  // Whether some are missing, since memory, threads or room ran out: then nothing more comes.
  bool failed() const { return queue_.failed(); }
  // Another thread is waiting for that.
  void hurry() { queue_.hurry(); }
  void finish() noexcept override;
  void finish_interrupted() noexcept override;
  bool give_back(const Call& call) noexcept override;
  bool forked() noexcept override;

 private:
  // Whether the op goes into a graph that the program is capturing, instead of executing.
  bool captured(const Call& call);
  bool is_capturing(const StreamRef& stream);
  void follow_captures(const Call& call, CUresult result);
  // Finds possible pointers in a copy's source. False if that is not host memory, or too large.
  bool look_at_payload(const Call& call, std::vector<TraceWord>& words);
  // A copy of the text that lives as long as the recorder. Null if there is none, or no room for another.
  const char* kept_name(const char* name);
  // Fills in what the record holds beyond the call, queues both, and tells the observers.
  void keep(RecordFacts& facts, const Call& call, const std::vector<TraceAccess>* seen);
  // An allocation, which is kept with its context, or memory of a graph that is captured, which is kept as one.
  void keep_memory(RecordFacts& facts, Call call, bool of_graph, const std::vector<TraceAccess>* seen);
  const std::vector<std::uint32_t>* keep_launch(RecordFacts& facts, const Call& call,
                                                std::vector<std::uint8_t>& params);
  void give_up(const char* why) noexcept;
  void give_up(const std::exception& error) noexcept;
  // Ends the recording while the program goes on: stops the observers, and lets calls pass.
  void step_aside() noexcept;
  // Tells the queue how complete the recording is. Once.
  void tell_queue();
  void tell_observers_end() noexcept;
  void start_watching();
  void stop_watching() noexcept;

  const RecorderOptions options_;
  CallContext& context_;
  alignas(64) std::atomic<std::uint64_t> next_seq_{0};  // written by every call, so on its own cache line
  alignas(64) std::mutex captures_mutex_;
  std::set<std::uint64_t> captures_;  // keys of the streams in which a capture began and has not ended
  std::atomic<bool> any_captures_{false};
  std::mutex names_mutex_;
  std::set<std::string> names_;  // of marked steps
  std::atomic<std::uint64_t> steps_marked_{0};
  AddressBounds allocated_;
  GraphTable graphs_;
  RecordQueue queue_;
  alignas(64) StrayWords strays_;     // which calls read, while the writer's thread writes to the end of the queue's
  std::unique_ptr<StepCount> steps_;  // if the recording ends after some
  std::atomic<bool> watching_{false};
  std::atomic<bool> passes_{false};  // the recording is over
  std::atomic<bool> given_back_{false};
  std::mutex stop_watching_mutex_;
  const RecordObservers observers_;
  pid_t watching_process_ = 0;
  std::atomic<bool> finished_{false};
};

}  // namespace nimble::shim
