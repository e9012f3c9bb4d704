// The queue between the program's threads and the trace writer: records, packed one after another.
//
// push() may be called from any thread; it takes one short lock and copies. The writer thread takes whole buffers. If
// the program outruns the disk until the limit is reached, push() waits for the writer: a trace with holes would be
// worthless.
//
// A recording may end before the program does: when writing fails, when the file reaches its limit, or on request
// (stop()). Then the file is closed as at the end, the log says so once, and later pushes are dropped.
//
// After close() the file is complete, and stays so: a record pushed even later, by another thread or by code that is
// torn down after us, is written at once, by the thread that pushes it.
#pragma once

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>

#include "nimble/internal/call.h"
#include "nimble/internal/process/program_turn.h"
#include "shim/record/facts/coverage.h"
#include "shim/record/facts/device_time.h"
#include "shim/record/facts/probe_totals.h"
#include "shim/record/trace/queue_writer.h"
#include "shim/record/trace/record.h"
#include "shim/record/trace/record_buffer.h"

namespace nimble::shim {

// Why a recording ends before the program does; empty if it does not.
struct Ending {
  std::string why;
  bool is_wanted = false;  // the user asked for it
};

// Why a recording ends that got no memory.
inline constexpr const char* kHostIsFull = "the host's memory is full";

// Monotonic time in nanoseconds.
std::uint64_t now_ns();

class RecordQueue {
 public:
  explicit RecordQueue(QueueOptions options) : process_(::getpid()), writer_(std::move(options), turn_) {}
  ~RecordQueue();
  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;

  // Appends a record followed by room for the arrays that its counts announce, which `fill` writes. Sets its size.
  template <class Fill>
  void push(RecordFacts& facts, const Call& call, Fill fill) {
    const std::size_t tail = facts.access_count * sizeof(TraceAccess) + facts.word_count * sizeof(TraceWord) +
                             (facts.param_bytes + 3) / 4 * 4 +
                             (facts.stray_count + facts.attribute_count) * std::size_t{4};
    facts.bytes = static_cast<std::uint32_t>((sizeof(Record) + tail + 7) / 8 * 8);
    turn_.give();
    std::unique_lock lock(mutex_);
    if (!make_room(lock, facts.bytes)) return;
    auto* placed = new (buffer_.append(facts.bytes)) Record{facts, call};
    fill(*placed);
    pushed_.fetch_add(1, std::memory_order_relaxed);
    if (closing_.load(std::memory_order_relaxed)) [[unlikely]]
      push_late(lock);
  }

  // Looks up what the writer needs of the driver, which takes the dynamic loader's lock: by each thread that may be the
  // first to push.
  static void prepare();

  // Sets the origin of the file's times. Before the first push.
  void start_clock() { writer_.set_epoch(now_ns()); }

  // Appends times. Drops them if the queue is full: they are not worth making CUPTI wait.
  void push(std::span<const DeviceTime> times);

  // How many items were pushed so far, and how many the writer has handed over as text. Any thread.
  std::uint64_t pushed() const { return pushed_.load(std::memory_order_relaxed); }
  std::uint64_t written() const { return writer_.written(); }

  // Whether records have been dropped, so that the text ends before them. Any thread.
  bool failed() const { return broken_ || refusing_; }

  // These four take no lock that push() takes: a low-priority thread, which may be preempted while it holds one,
  // would keep the program's threads waiting.

  // Makes the writer look soon: another thread is waiting for what was pushed.
  void hurry();

  // Ends the recording: items pushed so far are written, later ones dropped. Does not wait for that. False if there is
  // no writer to do it.
  bool stop(Ending ending) noexcept;

  // Reads the text so far, of which `bytes` are whole lines. Null before the first push. For one thread.
  GrowingFile* reading(std::uint64_t& bytes) { return writer_.reading(bytes); }
  // Whether no more records are taken.
  bool is_over() const { return closing_ || refusing_ || closed_.load(std::memory_order_acquire); }
  // The file's final path; until it is closed, the path that it is to have.
  std::string path() const { return writer_.path(closed_.load(std::memory_order_acquire)); }

  // What the recorder saw, as known by now: goes into the file's end.
  void set_coverage(const Coverage& coverage);
  void set_probe(const ProbeTotals& totals);

  // Writes everything out, ends the file and the thread. Idempotent. Does not wait for a writer that makes no progress.
  // With `interrupted` this very thread may be blocking the writer, in the middle of push(): then it gives up soon, and
  // the file is valid up to the last write.
  void close(bool interrupted = false) noexcept;

  // After stop(): waits until the writer has no more memory than any other thread that has ended, but not for long.
  // Whether that is so. Within a driver call.
  bool let_end() noexcept;

  // close(), and waits until the writer's thread has ended.
  void join() noexcept;

  // In a forked child: closes the child's copy of the file. Returns whether nothing was ever pushed.
  bool forked() noexcept;

 private:
  const QueueOptions& options() const { return writer_.options(); }
  // False if the record must be dropped, since the file cannot be written. The lock may be released then.
  bool make_room(std::unique_lock<std::mutex>& lock, std::size_t bytes);
  void run() noexcept;
  void write_all();
  // Releases the lock.
  void stop_writing(std::unique_lock<std::mutex>& lock, RecordBuffer& taken, bool can_write);
  void push_late(std::unique_lock<std::mutex>& lock);
  void cut_short(const char* why) noexcept;

  const pid_t process_;
  ProgramTurn turn_;
  std::mutex mutex_;  // guards what is not atomic, except the writer, which its thread owns until closed_
  std::condition_variable wake_writer_, wake_program_;
  RecordBuffer buffer_;
  Coverage coverage_{"the process ended in the middle of a call", 0, 0, {}, TimeSource::none, {}};
  std::optional<ProbeTotals> probe_;
  Ending ending_;                      // owned by the thread in stop(), until stopping_ is set
  std::atomic<bool> broken_{false};    // the file cannot be written; set under the lock
  std::atomic<bool> refusing_{false};  // the recording is over
  std::atomic<bool> stopping_{false}, hurried_{false};
  std::atomic<bool> started_{false}, closing_{false}, closed_{false}, ended_{false};
  std::atomic<std::uint64_t> pushed_{0};
  QueueWriter writer_;
};

}  // namespace nimble::shim
