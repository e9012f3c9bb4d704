// The file, its first and last events, and what is told of the recording as a whole. What lies between stands in
// trace_writer_definitions.cpp and trace_writer_calls.cpp.
#include "shim/trace_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "nimble/trace.h"
#include "nimble/version.h"
#include "shim/log.h"
#include "shim/probe/digest.h"
#include "shim/real_driver.h"
#include "shim/trace_text.h"

namespace nimble::shim {

namespace {

constexpr const char* kGetVersion = "cuDriverGetVersion";
constexpr const char* kGetName = "cuDeviceGetName";

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
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

TraceWriter::TraceWriter(const std::string& path, std::uint64_t epoch_ns) : path_(path), epoch_ns_(epoch_ns) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) {
    say(LogLevel::error,
        "cannot write the trace {}: {}. Set NIMBLE_TRACE to a file that can be written. Not recording.", path,
        std::strerror(errno));
    return;
  }
  // A child that inherited the environment must not write over the trace of its parent.
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    say(LogLevel::warning,
        "{} is being written by another process: not recording this one. Put %p into NIMBLE_TRACE for a file each.",
        path);
    ::close(file);
    return;
  }
  if (::ftruncate(file, 0) != 0 && errno != EINVAL) {  // EINVAL: a pipe or a device
    say(LogLevel::error, "cannot write the trace {}: {}. Not recording.", path, std::strerror(errno));
    ::close(file);
    return;
  }
  file_ = file;
  header();
}

TraceWriter::TraceWriter(std::shared_ptr<TraceStore> store, std::uint64_t epoch_ns)
    : store_(std::move(store)), epoch_ns_(epoch_ns) {
  header();
}

TraceWriter::~TraceWriter() {
  if (file_ >= 0) ::close(file_);
}

void TraceWriter::line(std::string_view event) {
  out_ += event;
  out_ += ",\n";
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
      kTraceVersion, kVersion, json_text(command_line()), json_text(device), version));
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

bool TraceWriter::flush() {
  if (store_ && !out_.empty() && !store_->append(out_)) store_.reset();
  if (store_) return true;
  if (file_ < 0) return false;
  const char* at = out_.data();
  std::size_t left = out_.size();
  while (left > 0) {
    const ssize_t written = ::write(file_, at, left);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      say(LogLevel::error, "cannot write the trace {}: {}. Recording ends here; the file is good up to this point.",
          path_, std::strerror(errno));
      ::close(file_);
      file_ = -1;
      return false;
    }
    at += written;
    left -= static_cast<std::size_t>(written);
  }
  out_.clear();
  return true;
}

bool TraceWriter::close(const Coverage& coverage, const std::optional<ProbeTotals>& probe) {
  if (store_) return flush();  // whoever reads it knows that it may go on
  if (file_ < 0) return false;
  if (ended_) {
    // Back before the end that was written last, where the file has such a thing as places. The end goes first: written
    // over in part, since the process ends just then, it would be the rest of a line that is none.
    const off_t end = ::lseek(file_, -static_cast<off_t>(kTraceEnd.size()), SEEK_CUR);
    if (end < 0) return false;
    if (::ftruncate(file_, end) != 0 && errno != EINVAL) return false;  // what has no length keeps no end either
  } else {
    write_coverage(coverage);
    if (probe) write_probe(*probe);
  }
  out_ += kTraceEnd;
  if (!flush()) return false;
  if (!std::exchange(ended_, true)) say(LogLevel::info, "wrote {}. Next: nimble-analyze {}", path_, path_);
  return true;
}

void TraceWriter::let_go() noexcept {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

}  // namespace nimble::shim
