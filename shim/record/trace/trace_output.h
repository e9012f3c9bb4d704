// Where the lines of a trace go: a file of ours, with a limit, which is whole after each close; or memory.
//
// A file has a name of its own until it is closed (include/nimble/internal/files/own_file.h). Where it cannot be
// written on, it ends with whole lines, and properly if it can be.
//
// Owns the file, and the lines that are not written yet. What was written, where, and why not, it says in the log. Used
// by the writer's thread alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "analyzer/input/trace_store.h"
#include "nimble/internal/files/growing_file.h"
#include "nimble/internal/files/own_file.h"

namespace nimble::shim {

class TraceOutput {
 public:
  // Creates the file, or says why it cannot be. It gets never more than `limit_bytes`, if that is not 0.
  TraceOutput(const std::string& path, std::uint64_t limit_bytes);
  explicit TraceOutput(std::shared_ptr<TraceStore> store) : limit_(0), store_(std::move(store)) {}

  // Lines that are not written yet: whoever has more appends it.
  std::string& text() { return text_; }
  void line(std::string_view event);

  bool good() const { return file_.is_open() || store_; }
  bool is_memory() const { return store_ != nullptr; }
  bool is_ended() const { return ended_; }
  // Why nothing more may come; empty where it may.
  const std::string& why_full() const { return why_full_; }
  // The lines so far are what comes first, without which it is no trace.
  void begins_here();
  // Whether the limit leaves room for the lines that are there, and so much more.
  bool fits(std::uint64_t room) const { return limit_ == 0 || size_ + text_.size() + room <= limit_; }
  // For one line of a call, and for the times and the end that come after it. If not, nothing more may come.
  bool fits_call();
  // For the end alone.
  bool fits_time() const { return fits(kForEnd); }

  // Hands the lines to the operating system. False once that has failed: then the file ends with a whole line.
  bool flush();
  // Flushed: whether what comes first is there. If not, that is said, and the file goes.
  bool has_begun();
  // Ends the file, after the lines that are there, and gives it its name. `why`: why the recording ends, where the
  // program goes on; `is_wanted`: nothing is amiss. False where it has no end.
  bool end(const std::string& why, bool is_wanted);
  // Once it is ended: puts the lines that are there before its end. False where nothing more can be written.
  bool write_late();

  // Of whole lines in the file.
  std::uint64_t bytes() const { return size_; }
  // Where the file is.
  const std::string& path() const { return file_.location(); }
  // To read by what has been written so far. Nothing where it is no file.
  GrowingFile reading() const { return file_.reading(); }
  // There is to be no file.
  void discard() { file_.discard(); }
  // Its copy of the file, which keeps it locked, is closed.
  void let_go() noexcept { file_.close(); }

 private:
  static constexpr std::uint64_t kForEnd = std::uint64_t{1} << 13;  // kept free below the limit for the last lines

  bool cut_back(std::uint64_t room);
  bool write_end();
  bool leave_unended(const std::string& why);
  void say_written(const std::string& why, bool is_wanted, int error);

  OwnFile file_;
  const std::uint64_t limit_;
  std::uint64_t size_ = 0;         // of the whole lines in the file, but for its end
  std::uint64_t header_size_ = 0;  // of what comes first
  std::string why_full_;
  std::shared_ptr<TraceStore> store_;  // then there is no file; let go of once it is full
  bool ended_ = false;
  std::string text_;
};

}  // namespace nimble::shim
