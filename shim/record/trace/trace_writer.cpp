// The file, its first and last events, and what is told of the recording as a whole. What lies between stands in
// trace_writer_definitions.cpp and trace_writer_calls.cpp.
#include "shim/record/trace/trace_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "nimble/internal/process/quiet_file.h"
#include "nimble/internal/trace.h"
#include "nimble/internal/version.h"
#include "shim/driver/real_driver.h"
#include "shim/process/log.h"
#include "shim/record/trace/trace_text.h"
#include "shim/state/digest.h"

namespace nimble::shim {

namespace {

// Kept free below the limit for times that are still to come.
constexpr std::uint64_t kForTimes = std::uint64_t{1} << 20;

// Kept for the next lines. What came at once may have been much more.
constexpr std::size_t kMostText = std::size_t{1} << 20;

constexpr const char* kGetVersion = "cuDriverGetVersion";
constexpr const char* kGetName = "cuDeviceGetName";

constexpr std::size_t kMostCommandLine = std::size_t{64} << 20;

std::string command_line() {
  std::string text;
  read_quiet("/proc/self/cmdline", kMostCommandLine, text);
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

constexpr std::string_view kTimeSources[] = {"none", "cupti", "events", "cupti, then events"};  // as in TimeSource

template <class... Args>
void say(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  log(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

void TraceWriter::find_driver() {
  for (const char* const name : {kGetVersion, kGetName}) known_driver_symbol(name);
}

TraceWriter::TraceWriter(const std::string& path, std::uint64_t epoch_ns, std::uint64_t limit_bytes)
    : limit_(limit_bytes), epoch_ns_(epoch_ns) {
  program_ = command_line();
  if (const int error = file_.open(path)) {
    why_full_ = std::strerror(error);
    say(LogLevel::error,
        "cannot write the trace {}: {}. Set NIMBLE_TRACE to a file that can be written. Not recording.", path,
        why_full_);
  }
}

TraceWriter::TraceWriter(std::shared_ptr<TraceStore> store, std::uint64_t epoch_ns)
    : limit_(0), store_(std::move(store)), epoch_ns_(epoch_ns), program_(command_line()) {}

TraceWriter::~TraceWriter() = default;

void TraceWriter::line(std::string_view event) {
  out_ += event;
  out_ += ",\n";
}

void TraceWriter::begin() {
  if (!good()) return;
  header();
  if (!store_) header_size_ = out_.size();
}

void TraceWriter::header() {
  int version = 0;
  char device[256] = "";
  const auto get_version = reinterpret_cast<decltype(&::cuDriverGetVersion)>(known_driver_symbol(kGetVersion));
  const auto get_name = reinterpret_cast<decltype(&::cuDeviceGetName)>(known_driver_symbol(kGetName));
  if (get_version) get_version(&version);
  if (get_name) get_name(device, sizeof device - 1, 0);
  out_ += "[\n";
  line(fmt::format(
      R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.trace","args":{{"version":{},"nimble":"{}","program":{},"device":{},"driver":{}}}}})json",
      kTraceVersion, kVersion, json_text(program_), json_text(device), version));
  line(R"json({"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"host"}})json");
  line(R"json({"ph":"M","pid":2,"tid":0,"name":"process_name","args":{"name":"streams"}})json");
}

void TraceWriter::write_coverage(const Coverage& coverage) {
  std::string args, missed;
  if (!coverage.why_not.empty()) {
    args = fmt::format(R"json("source":"none","why":{})json", json_text(coverage.why_not));
    say(LogLevel::info, "coverage: not measured: {}", coverage.why_not);
  } else {
    for (const auto& [symbol, count] : coverage.missed) {
      append(args, R"json({}[{},{}])json", args.empty() ? "" : ",", json_text(symbol), count);
      append(missed, "{}{} {} times", missed.empty() ? "" : ", ", symbol, count);
    }
    args = fmt::format(R"json("source":"cupti","seen":{},"recorded":{},"missed":[{}])json", coverage.seen,
                       coverage.recorded, args);
    if (missed.empty()) {
      say(LogLevel::info, "coverage: {} of {} launches, copies and sets, as CUPTI counted them", coverage.recorded,
          coverage.seen);
    } else {
      say(LogLevel::warning, "coverage: {} of {} launches, copies and sets, as CUPTI counted them; missed: {}",
          coverage.recorded, coverage.seen, missed);
    }
  }
  line(fmt::format(R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.coverage","args":{{{}}}}})json", args));
  line(fmt::format(R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.timing","args":{{"source":{},"why":{}}}}})json",
                   json_text(kTimeSources[static_cast<std::size_t>(coverage.times)]), json_text(coverage.why_times)));
}

void TraceWriter::write_probe(const ProbeTotals& totals) {
  const double ms = static_cast<double>(totals.time_ns) / 1e6;
  line(fmt::format(
      R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.probe","args":{{"chunk":{},"limit":{},"launches":{},"compared":{},"bytes":{},"ms":{:.3f},"too_large":{},"why_ended":{}}}}})json",
      kProbeChunk, totals.limit_bytes, totals.launches, totals.compared, totals.bytes, ms, totals.too_large,
      json_text(totals.why_ended)));
  say(LogLevel::info, "probe: {} of {} launches compared, {:.1f} MiB copied in {:.1f} ms{}", totals.compared,
      totals.launches, static_cast<double>(totals.bytes) / (1 << 20), ms,
      totals.too_large ? fmt::format("; {} objects above {} MiB left out (NIMBLE_PROBE_LIMIT)", totals.too_large,
                                     totals.limit_bytes >> 20)
                       : std::string());
}

bool TraceWriter::write(const Record& record) {
  if (!why_full_.empty()) return false;
  const std::size_t before = out_.size();
  put(record);
  if (fits(kForEnd + std::min(kForTimes, limit_ / 16))) return true;
  // What else it has left behind here is of no use to anybody: nothing follows.
  out_.resize(before);
  awaited_.erase(record.ticket);
  why_full_ = fmt::format("the trace has the {} MiB that NIMBLE_TRACE_LIMIT allows", limit_ >> 20);
  return false;
}

bool TraceWriter::fits(std::uint64_t room) const { return limit_ == 0 || size_ + out_.size() + room <= limit_; }

bool TraceWriter::flush() {
  if (store_ && !out_.empty() && !store_->append(out_)) store_.reset();
  if (store_) return true;
  if (!file_.is_open()) return false;
  const int error = file_.write(out_.data(), out_.size());
  if (error == 0) {
    size_ += out_.size();
    out_.clear();
    if (out_.capacity() > kMostText) out_.shrink_to_fit();
    return true;
  }
  why_full_ = std::strerror(error);
  out_.clear();
  awaited_.clear();  // of some nothing stands in the file
  if (!cut_back(0) && !file_.is_direct()) file_.cut(size_);
  return false;
}

bool TraceWriter::cut_back(std::uint64_t room) {
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

bool TraceWriter::close(const Coverage& coverage, const std::optional<ProbeTotals>& probe, const Ending& ending) {
  if (store_) return flush();  // whoever reads it knows that it may go on
  if (!file_.is_open()) return false;
  if (ended_) return write_late();
  flush();
  if (size_ < header_size_) {
    say(LogLevel::error, "cannot write the trace {}: {}. Not recording.", file_.wanted(), why_full_);
    file_.discard();
    return false;
  }
  const std::string why = !why_full_.empty() ? why_full_ : ending.why;
  write_coverage(coverage);
  if (probe) write_probe(*probe);
  if (!why.empty())
    line(fmt::format(R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.stopped","args":{{"why":{}}}}})json",
                     json_text(why)));
  const std::uint64_t lines = out_.size();
  out_ += kTraceEnd;
  // Where the disk is full, the end takes the place of the last calls.
  constexpr std::uint64_t kRooms[] = {0, kForEnd, std::uint64_t{1} << 16, std::uint64_t{1} << 18};
  for (const std::uint64_t room : kRooms) {
    if (room != 0 && (file_.is_direct() || file_.cut(size_) != 0 || !cut_back(out_.size() + room))) break;
    if (file_.write(out_.data(), out_.size()) != 0) continue;
    ended_ = true;
    size_ += lines;
    break;
  }
  out_.clear();
  if (!ended_ && !file_.is_direct()) return leave_unended(why);
  const int error = file_.place(FileKind::trace);
  say_written(why, why_full_.empty() && ending.is_wanted, error);
  return ended_;
}

// Under the name that it is to have stands no file that others would find cut off. What there are of calls is kept.
bool TraceWriter::leave_unended(const std::string& why) {
  const std::string reason = why.empty() ? std::strerror(ENOSPC) : why;
  if (size_ > header_size_ && file_.cut(size_) == 0) {
    say(LogLevel::warning, "recording ends here: {}. There is no room for the end of {} either: what there is stays {}",
        reason, file_.wanted(), file_.path());
    file_.close();
  } else {
    say(LogLevel::error, "cannot write the trace {}: {}. Not recording.", file_.wanted(), reason);
    file_.discard();
  }
  return false;
}

// Before the end that was written last, where the file has such a thing as places. The end goes first: written over in
// part, since the process ends just then, it would be the rest of a line that is none.
bool TraceWriter::write_late() {
  if (file_.is_direct()) {
    if (::lseek(file_.number(), -static_cast<off_t>(kTraceEnd.size()), SEEK_CUR) < 0) return false;
  } else {
    // Under its name it may have become the program's: opened, emptied and written anew.
    char end[kTraceEnd.size()];
    const bool same =
        file_.size() == size_ + kTraceEnd.size() &&
        ::pread(file_.number(), end, sizeof end, static_cast<off_t>(size_)) == static_cast<ssize_t>(sizeof end) &&
        std::string_view(end, sizeof end) == kTraceEnd;
    if (!same || file_.cut(size_) != 0) return false;
  }
  const std::uint64_t lines = out_.size();
  out_ += kTraceEnd;
  const bool written = file_.write(out_.data(), out_.size()) == 0;
  out_.clear();
  if (written) {
    size_ += lines;
  } else if (!file_.is_direct() && file_.cut(size_) == 0) {
    file_.write(kTraceEnd.data(), kTraceEnd.size());
  }
  return written;
}

void TraceWriter::say_written(const std::string& why, bool is_wanted, int error) {
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

void TraceWriter::let_go() noexcept { file_.close(); }

}  // namespace nimble::shim
