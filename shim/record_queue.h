// The queue between the program's threads and the trace writer: records, packed one after another.
//
// push() may be called from any thread; it takes one short lock and copies. The writer thread takes whole buffers. If
// the program is faster than the disk for so long that the limit is reached, push() waits for the writer: a trace with
// holes would be worth nothing. If writing fails, everything is dropped from then on, and the log says so once.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "nimble/call.h"

namespace nimble::shim {

// One call in the queue, followed by its packed parameters and its attribute ids. Pointers of `call` into the program
// are not valid any more; `function` is.
struct Record {
  std::uint32_t bytes = 0;  // of the whole record, a multiple of 8
  std::uint32_t param_bytes = 0, attribute_count = 0;
  CUresult result = CUDA_SUCCESS;
  std::uint64_t seq = 0;
  std::uint64_t begin_ns = 0, end_ns = 0;
  const FunctionInfo* function = nullptr;
  StreamKind stream_kind = StreamKind::blocking;
  Call call;

  const std::uint8_t* params() const { return reinterpret_cast<const std::uint8_t*>(this + 1); }
  // Aligned: parameters are padded to 4 bytes.
  const std::uint32_t* attributes() const {
    return reinterpret_cast<const std::uint32_t*>(params() + (param_bytes + 3) / 4 * 4);
  }
};

// Monotonic time in nanoseconds.
std::uint64_t now_ns();

class RecordQueue {
 public:
  explicit RecordQueue(std::string path) : path_(std::move(path)) {}
  ~RecordQueue() { close(); }
  RecordQueue(const RecordQueue&) = delete;
  RecordQueue& operator=(const RecordQueue&) = delete;

  // Appends a record with room for `record.param_bytes` and `record.attribute_count` and lets `fill` write them.
  template <class Fill>
  void push(Record record, Fill fill) {
    const std::size_t tail = (record.param_bytes + 3) / 4 * 4 + record.attribute_count * 4;
    record.bytes = static_cast<std::uint32_t>((sizeof(Record) + tail + 7) / 8 * 8);
    std::unique_lock lock(mutex_);
    if (!make_room(lock, record.bytes)) return;
    const std::size_t at = buffer_.size();
    buffer_.resize(at + record.bytes);
    auto* placed = reinterpret_cast<Record*>(buffer_.data() + at);
    *placed = record;
    fill(const_cast<std::uint8_t*>(placed->params()), const_cast<std::uint32_t*>(placed->attributes()));
  }

  // Gives up: what was pushed so far is written, the file is not closed properly, later pushes are dropped.
  void abandon() noexcept;

  // Writes everything out, closes the file and ends the thread. Later pushes are dropped. Idempotent.
  void close();

 private:
  // False where the record must be dropped: closed, or the file cannot be written.
  bool make_room(std::unique_lock<std::mutex>& lock, std::size_t bytes);
  void run();

  const std::string path_;
  std::mutex mutex_;  // guards all below but thread_'s own end
  std::condition_variable wake_writer_, wake_program_;
  std::vector<std::uint8_t> buffer_;
  bool started_ = false, closing_ = false, broken_ = false, abandoned_ = false;
  std::thread thread_;
};

}  // namespace nimble::shim
