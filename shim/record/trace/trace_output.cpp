#include "shim/record/trace/trace_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "shim/process/log.h"
#include "shim/record/trace/trace_text.h"

namespace nimble::shim {

namespace {

// Kept free below the limit for outstanding times.
constexpr std::uint64_t kForTimes = std::uint64_t{1} << 20;

// Capacity kept for the next lines. A single batch may have been much larger.
constexpr std::size_t kMostText = std::size_t{1} << 20;

template <class... Args>
void say(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  log(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

TraceOutput::TraceOutput(const std::string& path, std::uint64_t limit_bytes, bool is_read)
    : limit_(limit_bytes), is_read_(is_read) {
  if (const int error = file_.open(path, /*through_links=*/false, /*patient=*/false)) {
    why_full_ = std::strerror(error);
    say(LogLevel::error,
        "cannot write the trace {}: {}. Set NIMBLE_TRACE to a file that can be written. Not recording.", path,
        why_full_);
  }
  if (path.ends_with(kPackedEnding)) packer_ = std::make_unique<TraceCompressor>();
}

void TraceOutput::line(std::string_view event) {
  text_ += event;
  text_ += ",\n";
}

// Compressed, the header is a frame of its own.
void TraceOutput::begins_here() {
  if (store_) return;
  if (packer_ && file_.is_open() && !write_lines()) text_.clear();
  header_size_ = packer_ ? size_ : text_.size();
}

bool TraceOutput::fits_call() {
  if (fits(kForEnd + std::min(kForTimes, limit_ / 16))) return true;
  why_full_ = fmt::format("the trace has reached the {} MiB of NIMBLE_TRACE_LIMIT", limit_ >> 20);
  return false;
}

bool TraceOutput::flush() {
  if (store_) {
    if (!text_.empty() && !store_->append(text_)) store_.reset();
    written();
    if (store_) return true;
  }
  if (!file_.is_open()) return false;
  if (packer_ && !is_read_ && has_header() && text_.size() < kMostPending) return true;
  return write_lines();
}

// False once that has failed: then the file ends with a whole line.
bool TraceOutput::write_lines() {
  if (file_.is_lost()) open([&] { file_.reopen(); });
  const std::uint64_t before = size_;
  const int error = put(text_);
  if (error == 0) {
    written();
    return true;
  }
  why_full_ = std::strerror(error);
  rewind(before);
  if (packer_ && has_header() && !file_.is_direct()) put_what_fits(text_);
  text_.clear();
  if (!cut_back(0) && !file_.is_direct()) file_.cut(size_);
  return false;
}

// What came after this was not written completely.
void TraceOutput::rewind(std::uint64_t size) {
  size_ = size;
  while (!frames_.empty() && frames_.back() >= size_) frames_.pop_back();
}

// Of lines that could not be written, the first ones: in small frames, of which the file's end costs few.
void TraceOutput::put_what_fits(std::string_view lines) {
  constexpr std::size_t kPiece = std::size_t{1} << 14;
  if (file_.cut(size_) == 0) put_frames(lines, kPiece);
}

// Adds lines to the file.
int TraceOutput::put(std::string_view text) {
  if (packer_) return put_frames(text, kMostFrame);
  const int error = file_.write(text.data(), text.size());
  if (error == 0) size_ += text.size();
  return error;
}

// Whole lines as frames, of so much text each, but for one line that is longer. Stops at the first error; those before
// it stay.
int TraceOutput::put_frames(std::string_view lines, std::size_t most) {
  while (!lines.empty()) {
    std::size_t end = lines.size() <= most ? lines.size() : lines.rfind('\n', most - 1) + 1;
    if (end == 0) end = std::min(lines.find('\n', most), lines.size() - 1) + 1;
    if (const int error = put_frame(lines.substr(0, end))) return error;
    lines.remove_prefix(end);
  }
  return 0;
}

int TraceOutput::put_frame(std::string_view text) {
  std::string_view bytes = packer_->pack(text);
  if (bytes.empty()) return ENOMEM;
  std::string first;
  if (size_ == 0) bytes = first = packed_trace_mark().append(bytes);
  frames_.push_back(size_);  // which may throw, so before anything is written
  if (const int error = file_.write(bytes.data(), bytes.size())) {
    frames_.pop_back();
    return error;
  }
  if (!has_header()) frames_.clear();  // the header's stays
  size_ += bytes.size();
  return 0;
}

// Writes the end, which does not count among the lines.
int TraceOutput::put_end() {
  const std::string_view end = packer_ ? packer_->pack(kTraceEnd) : kTraceEnd;
  if (end.empty()) return ENOMEM;
  end_size_ = end.size();
  return file_.write(end.data(), end.size());
}

// Whether the file ends with the end that was written.
bool TraceOutput::holds_end() const {
  if (file_.size() != size_ + end_size_) return false;
  std::string there(end_size_, '\0');
  const ssize_t got = ::pread(file_.number(), there.data(), there.size(), static_cast<off_t>(size_));
  return got == static_cast<ssize_t>(there.size()) && there == (packer_ ? packer_->pack(kTraceEnd) : kTraceEnd);
}

void TraceOutput::written() {
  text_.clear();
  if (text_.capacity() > kMostText) text_.shrink_to_fit();
}

// For a file that could not be written completely, and may end in the middle of a line: cuts at least `room` bytes off,
// which can be written again, and leaves whole lines. False if only its header lines would be left.
bool TraceOutput::cut_back(std::uint64_t room) {
  if (packer_) return cut_frames(room);
  const std::optional<std::uint64_t> there = file_.is_direct() ? std::nullopt : file_.size();
  if (!there || *there < header_size_ + room) return false;
  char block[std::size_t{1} << 16];
  for (std::uint64_t end = *there - room; end >= header_size_;) {
    const std::uint64_t begin = end - std::min<std::uint64_t>(end, sizeof block);
    const ssize_t got = ::pread(file_.number(), block, end - begin, static_cast<off_t>(begin));
    if (got != static_cast<ssize_t>(end - begin)) return false;
    const std::string_view text(block, end - begin);
    if (const std::size_t at = text.rfind('\n'); at != std::string_view::npos) {
      if (begin + at + 1 < header_size_ || file_.cut(begin + at + 1) != 0) return false;
      size_ = begin + at + 1;
      return true;
    }
    end = begin;
  }
  return false;
}

// The same of whole frames.
bool TraceOutput::cut_frames(std::uint64_t room) {
  if (file_.is_direct() || !has_header() || size_ < header_size_ + room) return false;
  std::size_t kept = frames_.size();
  std::uint64_t size = size_;
  while (kept > 0 && size > size_ - room) size = frames_[--kept];
  if (size > size_ - room || file_.cut(size) != 0) return false;
  frames_.resize(kept);
  size_ = size;
  return true;
}

bool TraceOutput::has_begun(const std::string& why) {
  if (has_header() && size_ >= header_size_) return true;
  say(LogLevel::error, "cannot write the trace {}: {}. Not recording.", file_.wanted(),
      why_full_.empty() ? why : why_full_);
  file_.discard();
  return false;
}

bool TraceOutput::end(const std::string& why, bool is_wanted) {
  if (!write_end() && !file_.is_direct()) return leave_unended(why);
  const int error = file_.place(FileKind::trace);
  say_written(why, why_full_.empty() && is_wanted, error);
  return ended_;
}

// If the disk is full, the end replaces the last calls.
bool TraceOutput::write_end() {
  constexpr std::uint64_t kRooms[] = {0, kForPackedEnd, kForEnd, std::uint64_t{1} << 16, std::uint64_t{1} << 18};
  const std::string lines = std::exchange(text_, {});
  for (const std::uint64_t room : kRooms) {
    const std::uint64_t needed = room + (packer_ ? 0 : lines.size() + kTraceEnd.size());
    if (room != 0 && (file_.is_direct() || file_.cut(size_) != 0 || !cut_back(needed))) break;
    const std::uint64_t before = size_;
    if (put(lines) == 0 && put_end() == 0) {
      ended_ = true;
      break;
    }
    rewind(before);
  }
  return ended_;
}

// Does not put a truncated file under the final name. Keeps the calls that there are.
bool TraceOutput::leave_unended(const std::string& why) {
  const std::string reason = why.empty() ? std::strerror(ENOSPC) : why;
  if (size_ > header_size_ && file_.cut(size_) == 0) {
    say(LogLevel::warning,
        "recording ends here: {}. There is no room for the end of {} either: the calls so far stay in {}", reason,
        file_.wanted(), file_.path());
    file_.close();
  } else {
    say(LogLevel::error, "cannot write the trace {}: {}. Not recording.", file_.wanted(), reason);
    file_.discard();
  }
  return false;
}

// Inserts before the last end, if the file is seekable. Removes the end first: partly overwritten, should the process
// end just then, it would leave a broken line.
bool TraceOutput::write_late() {
  if (file_.is_direct()) {
    if (::lseek(file_.number(), -static_cast<off_t>(end_size_), SEEK_CUR) < 0) return false;
  } else {
    // The program may have reused the file by its name: opened, truncated and rewritten it.
    if (!holds_end() || file_.cut(size_) != 0) return false;
  }
  const std::uint64_t before = size_;
  const bool is_written = put(text_) == 0 && put_end() == 0;
  text_.clear();
  if (is_written) return true;
  size_ = before;
  if (!file_.is_direct() && file_.cut(size_) == 0) put_end();
  return false;
}

void TraceOutput::say_written(const std::string& why, bool is_wanted, int error) {
  std::string text;
  if (!why.empty()) text = fmt::format("recording ends here: {}. ", why);
  LogLevel level = why.empty() || is_wanted ? LogLevel::info : LogLevel::warning;
  const std::string& path = file_.path();
  if (error == ENOENT) return say(LogLevel::warning, "{}the trace is gone: {} was removed", text, path);
  if (error != 0) {
    level = LogLevel::warning;
    append(text, "the trace stays {}, since it cannot be named {}: {}. ", path, file_.wanted(), std::strerror(error));
  } else if (!file_.why_other().empty()) {
    level = LogLevel::warning;
    append(text, "{}: wrote {}. ", left_alone(file_.wanted(), file_.why_other()), path);
  } else {
    append(text, "wrote {}. ", path);
  }
  append(text, "Next: nimble-analyze {}", path);
  say(level, "{}", text);
}

}  // namespace nimble::shim
