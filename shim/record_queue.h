// The queue between the program's threads and the trace writer: records, packed one after another.
//
// push() may be called from any thread; it takes one short lock and copies. The writer thread takes whole buffers. If
// the program is faster than the disk for so long that the limit is reached, push() waits for the writer: a trace with
// holes would be worth nothing. If writing fails, everything is dropped from then on, and the log says so once.
//
// After close() the file is whole, and stays so: a record that is pushed later still, by another thread or by what is
// torn down after us, is written at once, by the thread that pushes it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>

#include "nimble/call.h"
#include "shim/probe/probe_totals.h"
#include "shim/profile/coverage.h"
#include "shim/profile/device_time.h"
#include "shim/record_buffer.h"

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
// these, and its attribute ids. Pointers of `call` into the program are not valid any more; `function` and `graph` are.
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

// Monotonic time in nanoseconds.
std::uint64_t now_ns();

class RecordQueue {
 public:
  explicit RecordQueue(std::string path, std::shared_ptr<TraceStore> store = {})
      : path_(std::move(path)), store_(std::move(store)) {}
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

  // Has the writer look at once: somebody waits for what was pushed.
  void hurry();

  // Gives up: what was pushed so far is written, the file is not closed properly, later pushes are dropped.
  void abandon() noexcept;

  // What is known by now of what the recorder saw: goes into the file's end.
  void set_coverage(const Coverage& coverage);
  void set_probe(const ProbeTotals& totals);

  // Writes everything out, ends the file and the thread. Idempotent. Does not wait for a writer that gets nowhere. With
  // `interrupted` it may be this very thread that stands in the writer's way, in the middle of push(): then it gives up
  // soon, and the file is good up to what was written last.
  void close(bool interrupted = false) noexcept;

  // In a forked child: closes the child's copy of the file. Whether nothing was ever pushed.
  bool forked() noexcept;

 private:
  // False where the record must be dropped: the file cannot be written.
  bool make_room(std::unique_lock<std::mutex>& lock, std::size_t bytes);
  void run();
  void write(const RecordBuffer& records);
  void push_late(std::unique_lock<std::mutex>& lock);

  const std::string path_;
  const std::shared_ptr<TraceStore> store_;  // where the trace goes instead of into a file
  std::atomic<std::uint64_t> epoch_ns_{0};
  std::mutex mutex_;  // guards what is not atomic, but for the writer, which is its thread's until closed_
  std::condition_variable wake_writer_, wake_program_;
  RecordBuffer buffer_;
  Coverage coverage_{"the process ended in the middle of a call", 0, 0, {}, TimeSource::none, {}};
  std::optional<ProbeTotals> probe_;
  bool broken_ = false, abandoned_ = false, hurried_ = false;
  std::atomic<bool> started_{false}, closing_{false}, closed_{false}, ended_{false};
  std::atomic<std::uint64_t> pushed_{0}, written_{0};
  std::atomic<std::uint64_t> progress_{0};  // changes as long as the writer gets on
  std::atomic<TraceWriter*> writer_{nullptr};
};

}  // namespace nimble::shim
