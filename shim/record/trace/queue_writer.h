// The file of a recording, or what takes its place, and the text of it that the queue's writer thread has written.
//
// made(), progress(), written(), reading() and path(): any thread. write() and publish(): the writer's thread, or after
// it has ended the one that holds the queue's lock. The rest: as it says.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "nimble/internal/files/growing_file.h"
#include "nimble/internal/process/program_turn.h"
#include "shim/record/trace/record.h"
#include "shim/record/trace/record_buffer.h"

namespace nimble::shim {

class TraceStore;
class TraceWriter;

struct QueueOptions {
  std::string path;
  std::shared_ptr<TraceStore> store{};  // where the trace goes instead of a file
  std::uint64_t limit_bytes = 0;        // of the file; 0: none
  bool is_read = false;                 // while it is written, by reading()
  // Called without a lock when the recording ends before the program does, by the writer's thread, or without one by
  // the thread that pushes. `stops`: no more calls are taken, but times still are, and set_coverage() and set_probe().
  // `stopped`: the file is closed.
  std::function<void()> stops{}, stopped{};
};

class QueueWriter {
 public:
  // `turn`: of the queue's writer thread; must outlive this.
  QueueWriter(QueueOptions options, ProgramTurn& turn) : options_(std::move(options)), turn_(turn) {}
  ~QueueWriter();
  QueueWriter(const QueueWriter&) = delete;
  QueueWriter& operator=(const QueueWriter&) = delete;

  const QueueOptions& options() const { return options_; }
  // Monotonic time in nanoseconds: the origin of the file's times. Before make().
  void set_epoch(std::uint64_t ns) { epoch_ns_.store(ns, std::memory_order_relaxed); }

  // Opens the file, on the thread that pushes first. Throws std::bad_alloc.
  void make();
  // A pipe, on the writer's thread.
  void make_of_pipe();
  // Takes it back: no thread runs that would write.
  void discard() noexcept;
  // Null before make().
  TraceWriter* made() const { return writer_.load(std::memory_order_acquire); }

  // Writes the records, and drops them. False if not everything fitted.
  bool write(const RecordBuffer& records);
  // Changes as long as write() makes progress.
  std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  // Tells readers of what was written, once it was flushed.
  void publish();
  // How many items are in the text that readers see.
  std::uint64_t written() const { return written_.load(std::memory_order_acquire); }

  // Reads the text so far, of which `bytes` are whole lines. Null before make(). For one thread.
  GrowingFile* reading(std::uint64_t& bytes);
  // The final path once the file `is_closed`; until then the path that it is to have.
  std::string path(bool is_closed) const;

  // In a forked child: closes the child's copy of the file, if there is one.
  void let_go_in_child() noexcept;

 private:
  void try_to_make() noexcept;

  const QueueOptions options_;
  ProgramTurn& turn_;
  std::atomic<std::uint64_t> epoch_ns_{0};
  GrowingFile reading_;  // owned by the reading thread, once there is a writer
  std::atomic<std::uint64_t> progress_{0}, written_{0}, written_bytes_{0};
  std::atomic<TraceWriter*> writer_{nullptr};
};

}  // namespace nimble::shim
