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

TraceOutput::TraceOutput(const std::string& path, std::uint64_t limit_bytes) : limit_(limit_bytes) {
  if (const int error = file_.open(path, /*through_links=*/false, /*patient=*/false)) {
    why_full_ = std::strerror(error);
    say(LogLevel::error,
        "cannot write the trace {}: {}. Set NIMBLE_TRACE to a file that can be written. Not recording.", path,
        why_full_);
  }
}

void TraceOutput::line(std::string_view event) {
  text_ += event;
  text_ += ",\n";
}

void TraceOutput::begins_here() {
  if (!store_) header_size_ = text_.size();
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
  if (file_.is_lost()) open([&] { file_.reopen(); });
  const int error = file_.write(text_.data(), text_.size());
  if (error == 0) {
    size_ += text_.size();
    written();
    return true;
  }
  why_full_ = std::strerror(error);
  text_.clear();
  if (!cut_back(0) && !file_.is_direct()) file_.cut(size_);
  return false;
}

void TraceOutput::written() {
  text_.clear();
  if (text_.capacity() > kMostText) text_.shrink_to_fit();
}

// For a file that could not be written completely, and may end in the middle of a line: cuts at least `room` bytes off,
// which can be written again, and leaves whole lines. False if only its header lines would be left.
bool TraceOutput::cut_back(std::uint64_t room) {
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
  const std::uint64_t lines = text_.size();
  text_ += kTraceEnd;
  constexpr std::uint64_t kRooms[] = {0, kForEnd, std::uint64_t{1} << 16, std::uint64_t{1} << 18};
  for (const std::uint64_t room : kRooms) {
    if (room != 0 && (file_.is_direct() || file_.cut(size_) != 0 || !cut_back(text_.size() + room))) break;
    if (file_.write(text_.data(), text_.size()) != 0) continue;
    ended_ = true;
    size_ += lines;
    break;
  }
  text_.clear();
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
    if (::lseek(file_.number(), -static_cast<off_t>(kTraceEnd.size()), SEEK_CUR) < 0) return false;
  } else {
    // The program may have reused the file by its name: opened, truncated and rewritten it.
    char end[kTraceEnd.size()];
    const bool same =
        file_.size() == size_ + kTraceEnd.size() &&
        ::pread(file_.number(), end, sizeof end, static_cast<off_t>(size_)) == static_cast<ssize_t>(sizeof end) &&
        std::string_view(end, sizeof end) == kTraceEnd;
    if (!same || file_.cut(size_) != 0) return false;
  }
  const std::uint64_t lines = text_.size();
  text_ += kTraceEnd;
  const bool written = file_.write(text_.data(), text_.size()) == 0;
  text_.clear();
  if (written) {
    size_ += lines;
  } else if (!file_.is_direct() && file_.cut(size_) == 0) {
    file_.write(kTraceEnd.data(), kTraceEnd.size());
  }
  return written;
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
