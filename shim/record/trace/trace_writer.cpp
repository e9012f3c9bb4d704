#include "shim/record/trace/trace_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "nimble/internal/process/quiet_file.h"
#include "nimble/internal/trace.h"
#include "nimble/internal/version.h"
#include "shim/driver/real_driver.h"
#include "shim/process/command_line.h"
#include "shim/process/log.h"
#include "shim/record/trace/trace_call.h"
#include "shim/record/trace/trace_text.h"
#include "shim/state/digest.h"

namespace nimble::shim {

namespace {

constexpr const char* kGetVersion = "cuDriverGetVersion";
constexpr const char* kGetName = "cuDeviceGetName";

constexpr std::string_view kTimeSources[] = {"none", "cupti", "events", "cupti, then events"};  // as in TimeSource

template <class... Args>
void say(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  log(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

void TraceWriter::find_driver() {
  for (const char* const name : {kGetVersion, kGetName}) known_driver_symbol(name);
}

TraceWriter::TraceWriter(const std::string& path, std::uint64_t epoch_ns, std::uint64_t limit_bytes, bool is_read)
    : program_(command_line()),
      output_(path, limit_bytes, is_read),
      definitions_(output_.text()),
      tracks_(definitions_, output_.text(), epoch_ns) {}

TraceWriter::TraceWriter(std::shared_ptr<TraceStore> store, std::uint64_t epoch_ns)
    : program_(command_line()),
      output_(std::move(store)),
      definitions_(output_.text()),
      tracks_(definitions_, output_.text(), epoch_ns) {}

bool TraceWriter::needs_reader(const std::string& path) {
  const auto facts = what_is_at(path, is_systems_link(path));
  return facts && S_ISFIFO(facts->stx_mode);
}

void TraceWriter::begin() {
  if (!good()) return;
  int version = 0;
  char device[256] = "";
  const auto get_version = reinterpret_cast<decltype(&::cuDriverGetVersion)>(known_driver_symbol(kGetVersion));
  const auto get_name = reinterpret_cast<decltype(&::cuDeviceGetName)>(known_driver_symbol(kGetName));
  if (get_version) get_version(&version);
  if (get_name) get_name(device, sizeof device - 1, 0);
  output_.text() += "[\n";
  output_.line(fmt::format(
      R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.trace","args":{{"version":{},"nimble":"{}","program":{},"device":{},"driver":{}}}}})json",
      kTraceVersion, kVersion, json_text(program_), json_text(device), version));
  output_.line(R"json({"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"host"}})json");
  output_.line(R"json({"ph":"M","pid":2,"tid":0,"name":"process_name","args":{"name":"streams"}})json");
  output_.begins_here();
}

// ---- calls ----

bool TraceWriter::write(const Record& record) {
  if (!output_.why_full().empty()) return false;
  const std::size_t before = output_.text().size();
  append_whole([&] { put(record); });
  if (output_.fits_call()) return !output_.is_due() || flush();
  // The rest of what it has appended is of no use: nothing follows.
  output_.text().resize(before);
  tracks_.forget(record.ticket);
  return false;
}

// Defines what the call names. Returns its op.
StreamTracks::Op TraceWriter::define(const Record& record) {
  const Call& call = record.call;
  definitions_.thread(call.thread);
  // A failed call had no effect, and a capturing stream's kind cannot be queried: no stream is defined for these.
  const bool named =
      call.has_stream && (record.result == CUDA_SUCCESS || definitions_.stream_of(call.stream.key).has_value());
  StreamTracks::Op op{record.seq, kNone, kNone, call.symbol, call.kind};
  if (named) op.stream = definitions_.stream(record);
  if (call.event) definitions_.event(call.event);
  if (call.event2) definitions_.event(call.event2);
  if (record.function) op.function = definitions_.function(*record.function);
  if (record.graph) definitions_.graph(*record.graph);
  if (record.context) definitions_.context(record.context);
  return op;
}

void TraceWriter::put(const Record& record) {
  if (!good()) return;
  const Call& call = record.call;
  // The handle may be reused.
  if (call.ends == Ends::stream) definitions_.stream_ends(call.stream.key);
  if (call.ends == Ends::event) definitions_.event_ends(call.event);
  if (call.ends == Ends::green_context) definitions_.context_ends(call.context);
  if (call.ends != Ends::nothing || (call.kind == CallKind::launch && !record.function)) return;
  const StreamTracks::Op op = define(record);
  args_.clear();
  append_arguments(args_, record, definitions_);
  const std::string plain = op.function == kNone ? fmt::format("\"{}\"", call.symbol) : std::string();
  const std::string_view label = op.function == kNone ? plain : definitions_.name_of(op.function);
  const double begin_us = tracks_.microseconds(record.begin_ns);
  const double duration_us = static_cast<double>(record.end_ns - record.begin_ns) / 1e3;
  append(output_.text(),
         R"json({{"ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"cat":"{}","args":{{{}}}}},)json",
         call.thread, begin_us, duration_us, label, name(call.kind), args_);
  output_.text().push_back('\n');
  if (call.kind == CallKind::context_end && record.result == CUDA_SUCCESS) definitions_.context_ends(record.context);
  if (!is_op(call.kind) || record.result != CUDA_SUCCESS) return;
  if (record.ticket == 0) {
    tracks_.add(op, begin_us, duration_us);
  } else if (const auto early = tracks_.await(record.ticket, op)) {
    write(*early);
  }
}

void TraceWriter::write(const DeviceTime& time) {
  if (good()) append_whole([&] { tracks_.came(time, output_.fits_time()); });
}

// If memory runs out halfway, what was appended goes: nothing but whole lines may be written.
template <class Append>
void TraceWriter::append_whole(Append append) {
  const std::size_t before = output_.text().size();
  try {
    append();
  } catch (...) {
    output_.text().resize(before);
    throw;
  }
}

bool TraceWriter::flush() {
  if (output_.flush()) return true;
  tracks_.forget_awaited();  // some of them have no call in the file
  return false;
}

// ---- the end ----

bool TraceWriter::cut_short(const Coverage& coverage, const std::optional<ProbeTotals>& probe, const Ending& ending) {
  if (good() && !output_.has_header()) {
    output_.text().clear();
    begin();
  }
  return close(coverage, probe, ending);
}

bool TraceWriter::close(const Coverage& coverage, const std::optional<ProbeTotals>& probe, const Ending& ending) {
  if (output_.is_memory()) return flush();  // its reader knows that it may go on
  if (!good()) return false;
  if (output_.is_ended()) return output_.write_late();
  flush();
  if (!output_.has_begun(ending.why)) return false;
  const std::string why = !output_.why_full().empty() ? output_.why_full() : ending.why;
  write_coverage(coverage);
  if (probe) write_probe(*probe);
  if (!why.empty())
    output_.line(fmt::format(R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.stopped","args":{{"why":{}}}}})json",
                             json_text(why)));
  return output_.end(why, ending.is_wanted);
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
  output_.line(fmt::format(R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.coverage","args":{{{}}}}})json", args));
  output_.line(
      fmt::format(R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.timing","args":{{"source":{},"why":{}}}}})json",
                  json_text(kTimeSources[static_cast<std::size_t>(coverage.times)]), json_text(coverage.why_times)));
}

void TraceWriter::write_probe(const ProbeTotals& totals) {
  const double ms = static_cast<double>(totals.time_ns) / 1e6;
  output_.line(fmt::format(
      R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.probe","args":{{"chunk":{},"limit":{},"launches":{},"compared":{},"bytes":{},"ms":{:.3f},"too_large":{},"why_ended":{}}}}})json",
      kProbeChunk, totals.limit_bytes, totals.launches, totals.compared, totals.bytes, ms, totals.too_large,
      json_text(totals.why_ended)));
  say(LogLevel::info, "probe: {} of {} launches compared, {:.1f} MiB copied in {:.1f} ms{}", totals.compared,
      totals.launches, static_cast<double>(totals.bytes) / (1 << 20), ms,
      totals.too_large ? fmt::format("; {} objects above {} MiB left out (NIMBLE_PROBE_LIMIT)", totals.too_large,
                                     totals.limit_bytes >> 20)
                       : std::string());
}

}  // namespace nimble::shim
