// Where the lines of a trace go: our own file, with a size limit, complete after each close; or memory.
//
// A file has a temporary name until it is closed (include/nimble/internal/files/own_file.h). If writing fails, it still
// ends with whole lines, and properly if possible. Under a name that ends in .zst the lines are compressed, many at a
// time, so that up to a quarter of a megabyte of them is not in the file if the process is killed.
//
// Owns the file, and the lines that are not written yet. Logs what was written, where, and why not. Used by the
// writer's thread alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analyzer/input/trace_store.h"
#include "nimble/internal/files/growing_file.h"
#include "nimble/internal/files/own_file.h"
#include "shim/record/trace/trace_compressor.h"

namespace nimble::shim {

class TraceOutput {
 public:
  // Creates the file, or logs why it cannot. Never exceeds `limit_bytes`, if that is not 0. `is_read`: while it is
  // written, so that flush() leaves nothing for later.
  TraceOutput(const std::string& path, std::uint64_t limit_bytes, bool is_read);
  explicit TraceOutput(std::shared_ptr<TraceStore> store) : limit_(0), store_(std::move(store)) {}

  // Lines that are not written yet: callers append to it.
  std::string& text() { return text_; }
  void line(std::string_view event);

  bool good() const { return file_.is_open() || store_; }
  bool is_memory() const { return store_ != nullptr; }
  // Whether the lines are so many that they should be written before the batch ends.
  bool is_due() const { return (is_memory() || packer_) && text_.size() >= kMostPending; }
  bool is_ended() const { return ended_; }
  // Why nothing more may be written; empty if it may.
  const std::string& why_full() const { return why_full_; }
  // The lines so far are the header, without which it is not a trace.
  void begins_here();
  // Whether the limit leaves room for the pending lines, and `room` more bytes.
  bool fits(std::uint64_t room) const { return limit_ == 0 || size_ + text_.size() + room <= limit_; }
  // The same for one call's line, and for the times and the end after it. If not, nothing more may be written.
  bool fits_call();
  // The same for the end alone.
  bool fits_time() const { return fits(kForEnd); }

  // Writes the lines, where they are compressed once there are many. False once that has failed: then the file ends
  // with a whole line.
  bool flush();
  bool has_header() const { return header_size_ != 0; }
  // After a flush: whether the header was written. If not, logs that and removes the file. `why`: unless why_full()
  // says so.
  bool has_begun(const std::string& why);
  // Ends the file after the pending lines, and gives it its name. `why`: why the recording ends, if the program goes
  // on; `is_wanted`: as intended. False if the end could not be written.
  bool end(const std::string& why, bool is_wanted);
  // Once it is ended: inserts the pending lines before its end. False if nothing more can be written.
  bool write_late();

  // How much of the file whole lines take.
  std::uint64_t bytes() const { return size_; }
  // By whom files are opened from now on: it runs what it is given. Without it, by the writer's thread.
  void open_by(std::function<void(const std::function<void()>&)> opener) { opener_ = std::move(opener); }

  // Where the file is.
  const std::string& path() const { return file_.location(); }
  // For reading what has been written so far. Not open if it is not a regular file.
  GrowingFile reading() const { return file_.reading(); }
  // Removes the file.
  void discard() { file_.discard(); }
  // Closes this process's copy of the file, which keeps it locked.
  void let_go() noexcept { file_.close(); }

 private:
  static constexpr std::uint64_t kForEnd = std::uint64_t{1} << 13;  // kept free below the limit for the last lines
  static constexpr std::uint64_t kForPackedEnd = std::uint64_t{1} << 10;
  static constexpr std::size_t kMostPending = std::size_t{1} << 18;
  static constexpr std::size_t kMostFrame = std::size_t{1} << 16;  // of text: what a full disk can cost

  void written();
  bool write_lines();
  int put(std::string_view text);
  int put_frames(std::string_view lines, std::size_t most);
  int put_frame(std::string_view text);
  void rewind(std::uint64_t size);
  void put_what_fits(std::string_view lines);
  int put_end();
  bool holds_end() const;
  bool cut_back(std::uint64_t room);
  bool cut_frames(std::uint64_t room);
  bool write_end();
  void open(const std::function<void()>& work) { opener_ ? opener_(work) : work(); }
  bool leave_unended(const std::string& why);
  void say_written(const std::string& why, bool is_wanted, int error);

  OwnFile file_;
  std::function<void(const std::function<void()>&)> opener_;
  const std::uint64_t limit_;
  std::uint64_t size_ = 0;         // of the whole lines in the file, without its end
  std::uint64_t header_size_ = 0;  // of the header
  std::uint64_t end_size_ = 0;     // of the end
  std::string why_full_;
  std::shared_ptr<TraceStore> store_;  // then there is no file; released once it is full
  bool ended_ = false;
  std::string text_;
  std::unique_ptr<TraceCompressor> packer_;  // null: the lines are written as they are
  std::vector<std::uint64_t> frames_;        // where each begins, after the header's
  const bool is_read_ = false;
};

}  // namespace nimble::shim
