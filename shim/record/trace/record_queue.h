// The queue between the program's threads and the trace writer: records, packed one after another.
//
// push() may be called from any thread; it takes one short lock and copies. The writer thread takes whole buffers. If
// the program is faster than the disk for so long that the limit is reached, push() waits for the writer: a trace with
// holes would be worth nothing.
//
// A recording may end before the program does: where writing fails, where the file has reached its bound, or where
// somebody has seen enough (stop()). Then the file is closed as at the end, the log says so once, and what is pushed
// from then on is dropped.
//
// After close() the file is whole, and stays so: a record that is pushed later still, by another thread or by what is
// torn down after us, is written at once, by the thread that pushes it.
#pragma once

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>

#include "nimble/internal/call.h"
#include "nimble/internal/files/growing_file.h"
#include "shim/record/facts/coverage.h"
#include "shim/record/facts/device_time.h"
#include "shim/record/facts/probe_totals.h"
#include "shim/record/trace/record_buffer.h"

namespace nimble::shim {

class TraceStore;
class TraceWriter;
struct GraphInfo;

// What lies in the queue, one after another.
struct QueueItem {
  enum class Type : std::uint32_t { call, time };
  std::uint32_t bytes = 0;  // of the whole item, a multiple of 8
  Type type = Type::call;
};

// One call in the queue, followed by its accesses, its words, its packed parameters, the places of stray words in
// these, and its attribute ids. Pointers of `call` into the program are not valid any more; `function` is, and so is
// `graph`, of which the record has a share (shim/record/facts/graph_table.h).
struct Record : QueueItem {
  std::uint32_t param_bytes = 0, stray_count = 0, attribute_count = 0, access_count = 0, word_count = 0;
  bool accesses_known = false, words_known = false;
  bool probed = false;       // a launch whose accesses are what a probe saw
  std::uint64_t ticket = 0;  // of the DeviceTime that will come for it; 0: none will
  CUresult result = CUDA_SUCCESS;
  std::uint64_t seq = 0;
  std::uint64_t begin_ns = 0, end_ns = 0;
  const FunctionInfo* function = nullptr;
  GraphInfo* graph = nullptr;
  StreamKind stream_kind = StreamKind::blocking;
  CUcontext context = nullptr;  // of the stream or the allocation
  Call call;

  const TraceAccess* accesses() const { return reinterpret_cast<const TraceAccess*>(this + 1); }
  const TraceWord* words() const { return reinterpret_cast<const TraceWord*>(accesses() + access_count); }
  const std::uint8_t* params() const { return reinterpret_cast<const std::uint8_t*>(words() + word_count); }
  // Aligned: parameters are padded to 4 bytes.
  const std::uint32_t* strays() const {
    return reinterpret_cast<const std::uint32_t*>(params() + (param_bytes + 3) / 4 * 4);
  }
  const std::uint32_t* attributes() const { return strays() + stray_count; }
};

// When the GPU ran the op of an earlier or later record.
struct TimeRecord : QueueItem {
  DeviceTime time;
};

// Why a recording ends before the program does; empty where it does not.
struct Ending {
  std::string why;
  bool is_wanted = false;  // the user has asked for that
};

struct QueueOptions {
  std::string path;
  std::shared_ptr<TraceStore> store{};  // where the trace goes instead of into a file
  std::uint64_t limit_bytes = 0;        // of the file; 0: none
  bool is_read = false;                 // while it is written: by reading()
  // Called by the writer's thread where the recording ends before the program does, without a lock, or where there is
  // no such thread by the one that pushes: no call is taken any more, but times are, and what set_coverage() and
  // set_probe() tell; and once the file is closed.
  std::function<void()> stops{}, stopped{};
};

// Monotonic time in nanoseconds.
std::uint64_t now_ns();

class RecordQueue {
 public:
  explicit RecordQueue(QueueOptions options) : options_(std::move(options)), process_(::getpid()) {}
  ~RecordQueue();
  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;

  // Appends a record with room for what its counts say behind it, and lets `fill` write that into it.
  template <class Fill>
  void push(Record& record, Fill fill) {
    const std::size_t tail = record.access_count * sizeof(TraceAccess) + record.word_count * sizeof(TraceWord) +
                             (record.param_bytes + 3) / 4 * 4 +
                             (record.stray_count + record.attribute_count) * std::size_t{4};
    record.bytes = static_cast<std::uint32_t>((sizeof(Record) + tail + 7) / 8 * 8);
    std::unique_lock lock(mutex_);
    if (!make_room(lock, record.bytes)) return;
    auto* placed = new (buffer_.append(record.bytes)) Record(record);
    fill(*placed);
    pushed_.fetch_add(1, std::memory_order_relaxed);
    if (closing_.load(std::memory_order_relaxed)) [[unlikely]]
      push_late(lock);
  }

  // Times in the file count from now on. Before the first push.
  void start_clock() { epoch_ns_.store(now_ns(), std::memory_order_relaxed); }

  // Appends times. Dropped where the queue is full: what they tell is not worth making CUPTI wait.
  void push(std::span<const DeviceTime> times);

  // How many items were pushed so far, and of how many the text has left the writer's hands. Any thread.
  std::uint64_t pushed() const { return pushed_.load(std::memory_order_relaxed); }
  std::uint64_t written() const { return written_.load(std::memory_order_acquire); }

  // Whether records have been dropped, so that the text ends before them. Any thread.
  bool failed() const { return broken_ || refusing_; }

  // These four take no lock that push() takes: a thread of the lowest priority, which may be kept from running while it
  // has one, would keep the program's threads waiting.

  // Has the writer look soon: somebody waits for what was pushed.
  void hurry();

  // Ends the recording: what was pushed so far is written, later pushes are dropped. Does not wait for it. False where
  // there is no writer that could do it.
  bool stop(Ending ending) noexcept;

  // To read by the text so far, of which so many bytes are whole lines. Null before the first push. For one thread.
  GrowingFile* reading(std::uint64_t& bytes);
  // Nothing more is taken.
  bool is_over() const { return closing_ || refusing_ || closed_.load(std::memory_order_acquire); }
  // Where the file was put in the end; until then the name that it is to have.
  std::string path() const;

  // What is known by now of what the recorder saw: goes into the file's end.
  void set_coverage(const Coverage& coverage);
  void set_probe(const ProbeTotals& totals);

  // Writes everything out, ends the file and the thread. Idempotent. Does not wait for a writer that gets nowhere. With
  // `interrupted` it may be this very thread that stands in the writer's way, in the middle of push(): then it gives up
  // soon, and the file is good up to what was written last.
  void close(bool interrupted = false) noexcept;

  // close(), and waits until the writer's thread has ended.
  void join() noexcept;

  // In a forked child: closes the child's copy of the file. Whether nothing was ever pushed.
  bool forked() noexcept;

 private:
  // False where the record must be dropped: the file cannot be written. The lock may be open then.
  bool make_room(std::unique_lock<std::mutex>& lock, std::size_t bytes);
  void make_writer();
  void run() noexcept;
  void write_all();
  // False where not all has found room.
  bool write(const RecordBuffer& records);
  // The lock is open afterwards.
  void stop_writing(std::unique_lock<std::mutex>& lock, RecordBuffer& taken, bool can_write);
  void push_late(std::unique_lock<std::mutex>& lock);
  static void drop(const RecordBuffer& records) noexcept;

  const QueueOptions options_;
  const pid_t process_;
  std::atomic<std::uint64_t> epoch_ns_{0};
  std::mutex mutex_;  // guards what is not atomic, but for the writer, which is its thread's until closed_
  std::condition_variable wake_writer_, wake_program_;
  RecordBuffer buffer_;
  Coverage coverage_{"the process ended in the middle of a call", 0, 0, {}, TimeSource::none, {}};
  std::optional<ProbeTotals> probe_;
  GrowingFile reading_;                // of the thread that reads, once there is a writer
  Ending ending_;                      // of the thread that is in stop(), until stopping_ is set
  std::atomic<bool> broken_{false};    // the file cannot be written. Set under the lock
  std::atomic<bool> refusing_{false};  // the recording is over
  std::atomic<bool> stopping_{false}, hurried_{false};
  std::atomic<bool> started_{false}, closing_{false}, closed_{false}, ended_{false};
  std::atomic<std::uint64_t> pushed_{0}, written_{0}, written_bytes_{0};
  std::atomic<std::uint64_t> progress_{0};  // changes as long as the writer gets on
  std::atomic<TraceWriter*> writer_{nullptr};
};

}  // namespace nimble::shim
