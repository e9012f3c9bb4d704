// The file line by line, which event comes where in it, and what only the whole file can show. What definitions and
// calls say is read in trace_reader_definitions.cpp and trace_reader_calls.cpp.
#include "analyzer/input/trace_reader.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "analyzer/base/json_fields.h"
#include "analyzer/input/line_reader.h"
#include "analyzer/input/trace_fields.h"
#include "analyzer/input/trace_reader_parts.h"
#include "nimble/internal/process/memory_reserve.h"

namespace nimble::analyzer {
namespace {

using nlohmann::json;

constexpr std::uint64_t kCallTrack = 1, kStreamTrack = 2;  // `pid` of the two kinds of tracks

// The state after the lines so far. Copies serve readers that look before the end.
class Decoder {
 public:
  // `file` must outlive it and its copies.
  explicit Decoder(const std::string& file) : file_(file) {}

  // Decodes one event, which is on line `line`.
  void event(const json& event, std::uint64_t line) {
    FilePlace place{file_, line};
    if (!event.is_object()) throw InputError(file_, line, "", "an event must be a JSON object");
    Fields top(event, "", place);
    const std::string& phase = top.text("ph");
    if (!seen_header_) {
      if (phase != "M" || top.text_or("name", "") != "nimble.trace")
        throw InputError(file_, line, "name", "the first event of a trace must be nimble.trace");
      header(Fields(top.object("args"), "args.", place));
      seen_header_ = true;
      return;
    }
    if (ended_) throw InputError(file_, line, "name", "an event follows nimble.end");
    if (phase == "M") {
      const std::string& name = top.text("name");
      if (name.rfind("nimble.", 0) == 0) metadata(name, Fields(top.object("args"), "args.", place));
    } else if (phase == "X") {
      const std::uint64_t track = top.number_or("pid", kCallTrack, kMaxId);
      if (track != kCallTrack && track != kStreamTrack) return;
      const Fields args(top.object("args"), "args.", place);
      if (track == kCallTrack)
        call(top, args, line);
      else if (args.flag_or("device", false))
        bars_.push_back(read_device_bar(top, args, line));
    }
  }

  // The trace, with the calls in the order of `seq`. Checks what only the whole file can show. Nothing may come then.
  Trace finish(std::uint64_t line) {
    if (!seen_header_)
      throw InputError(file_, line, "", "has no event nimble.trace: it is empty or was cut off at once");
    auto& calls = trace_.calls;
    std::vector<std::uint32_t> order(calls.size());
    std::iota(order.begin(), order.end(), 0u);
    auto earlier = [&](std::uint32_t a, std::uint32_t b) { return calls[a].seq < calls[b].seq; };
    bool sorted = std::is_sorted(order.begin(), order.end(), earlier);
    if (!sorted) std::stable_sort(order.begin(), order.end(), earlier);
    for (std::size_t i = 1; i < order.size(); ++i)
      if (calls[order[i]].seq == calls[order[i - 1]].seq)
        throw InputError(
            file_, lines_[order[i]], "args.seq",
            std::to_string(calls[order[i]].seq) + " is also at line " + std::to_string(lines_[order[i - 1]]));
    if (!sorted) {
      std::vector<TraceCall> in_order;
      in_order.reserve(calls.size());
      for (std::uint32_t i : order) in_order.push_back(std::move(calls[i]));
      calls = std::move(in_order);
    }
    place_device_bars(bars_, file_, calls);
    judge_constants();
    trace_.complete = ended_;
    if (!ended_) trace_.coverage = {"the trace was cut off", 0, 0, {}};
    return std::move(trace_);
  }

 private:
  // Constant variables do not matter if the program cannot have the address of one, since it has looked up none of
  // their image.
  void judge_constants() {
    if (trace_.dropped > 0) return;
    std::vector<bool> asked(trace_.images.size());
    for (const TraceCall& call : trace_.calls) {
      if (call.kind != CallKind::alloc || call.memory != MemoryKind::global) continue;
      if (call.image == kNone) return;
      asked[call.image] = true;
    }
    for (TraceFunction& function : trace_.functions)
      if (function.constants && function.image != kNone && !asked[function.image]) function.self_contained = true;
  }

  void header(const Fields& args) {
    std::uint64_t version = args.number("version");
    if (version != kTraceVersion)
      args.fail("version", "is " + std::to_string(version) + "; this nimble-analyze reads version " +
                               std::to_string(kTraceVersion));
    trace_.program = args.text_or("program", "");
    trace_.device = args.text_or("device", "");
    trace_.driver_version = static_cast<int>(args.number_or("driver", 0, std::numeric_limits<int>::max()));
  }

  void metadata(const std::string& name, const Fields& args) {
    if (name == "nimble.trace") {
      args.fail("version", "the event nimble.trace occurs twice");
    } else if (name == "nimble.coverage") {
      coverage(args);
    } else if (name == "nimble.probe") {
      probing(args);
    } else if (name == "nimble.stopped") {
      trace_.why_stopped = args.text_or("why", "");
    } else if (name == "nimble.end") {
      trace_.dropped = args.number_or("dropped", 0, kMaxAddress);
      ended_ = true;
    } else {
      read_definition(name, args, trace_);
    }
  }

  void call(const Fields& top, const Fields& args, std::uint64_t line) {
    if (trace_.calls.size() >= kMaxId) throw InputError(file_, line, "", "too many calls");
    read_call(top, args, trace_);
    lines_.push_back(line);
  }

  void coverage(const Fields& args) {
    TraceCoverage& coverage = trace_.coverage;
    coverage = {};
    if (args.text("source") == "none") {
      coverage.why_not = args.text_or("why", "");
      if (coverage.why_not.empty()) coverage.why_not = "nothing counted";
      return;
    }
    coverage.seen = args.number("seen");
    coverage.recorded = args.number("recorded");
    if (coverage.recorded > coverage.seen) args.fail("recorded", "is more than was seen");
    for (const json& pair : args.list("missed")) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string())
        args.fail("missed", "must be a list of [entry point, count]");
      coverage.missed.emplace_back(pair[0].get<std::string>(), args.number_of(pair[1], "missed", kMaxAddress));
    }
  }

  void probing(const Fields& args) {
    TraceProbing& probing = trace_.probing.emplace();
    probing.limit_bytes = args.number_or("limit", 0, kMaxAddress);
    probing.launches = args.number_or("launches", 0, kMaxAddress);
    probing.compared = args.number_or("compared", 0, kMaxAddress);
    probing.bytes = args.number_or("bytes", 0, kMaxAddress);
    probing.ms = args.real_or("ms", 0);
    probing.too_large = args.number_or("too_large", 0, kMaxAddress);
    probing.why_ended = args.text_or("why_ended", "");
  }

  const std::string& file_;
  Trace trace_;
  std::vector<DeviceBar> bars_;
  std::vector<std::uint64_t> lines_;  // of each call, as long as they stand in file order
  bool seen_header_ = false, ended_ = false;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r' || text.back() == '\t')) text.remove_suffix(1);
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  return text;
}

// nlohmann's message without its own prefix and without the rest of the line, which may be anything.
std::string reason(const json::exception& error) {
  std::string text = error.what();
  if (auto at = text.find("] "); at != std::string::npos) text.erase(0, at + 2);
  if (auto at = text.find("; last read"); at != std::string::npos) text.erase(at);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return text.substr(0, 120);
}

// The lines of one trace, which may come in pieces.
class Lines {
 public:
  explicit Lines(const std::string& path) : path_(path), decoder_(path) {}

  void read(LineReader& lines) {
    std::string_view line;
    while (lines.next(line))
      if (!take(trimmed(line), before_ + lines.number(), lines.terminated())) break;
    before_ += lines.number();
  }

  TraceFile finish() {
    if (before_ == 0) throw InputError(path_, 0, "", "is empty");
    TraceFile file;
    file.path = path_;
    file.trace = decoder_.finish(before_);
    file.lines = before_;
    return file;
  }

 private:
  // False if the file was cut off in this line.
  bool take(std::string_view line, std::uint64_t number, bool terminated) {
    if (number == 1) {
      if (line != "[") throw InputError(path_, 1, "", "is not a trace: its first line must be [ alone");
      return true;
    }
    if (line.empty()) return true;
    if (closed_) throw InputError(path_, number, "", "something follows the closing ]");
    if (line == "]") {
      closed_ = true;
      return true;
    }
    if (line.back() == ',') line.remove_suffix(1);
    // The recorder's own bars on the tracks of the streams; without a device time nothing in them is ours to read.
    if (line.rfind(R"({"ph":"X","pid":2,)", 0) == 0 && !line.ends_with(R"("device":true}})")) return true;
    json event;
    const JsonEnds ends(event);
    try {
      event = json::parse(line.begin(), line.end());
    } catch (const json::exception& error) {
      if (!terminated) return false;
      throw InputError(path_, number, "", "is not a JSON object: " + reason(error));
    }
    decoder_.event(event, number);
    return true;
  }

  const std::string& path_;
  Decoder decoder_;
  std::uint64_t before_ = 0;  // lines read before
  bool closed_ = false;
};

TraceFile read_lines(const std::string& path, LineReader& lines) {
  Lines reading(path);
  reading.read(lines);
  TraceFile file = reading.finish();
  file.digest = lines.digest();
  return file;
}

}  // namespace

TraceFile read_trace(const std::string& path) {
  LineReader lines(path, kMaxLineBytes);
  return read_lines(path, lines);
}

TraceFile read_trace(const std::string& name, std::function<std::size_t(char* buffer, std::size_t size)> source) {
  LineReader lines(name, std::move(source), kMaxLineBytes);
  return read_lines(name, lines);
}

class GrowingTrace::Reading {
 public:
  explicit Reading(std::string name) : name_(std::move(name)), lines_(name_) {}

  void read_on(std::string_view text) {
    LineReader reader(
        name_,
        [&](char* buffer, std::size_t size) {
          const std::size_t taken = text.copy(buffer, size);
          text.remove_prefix(taken);
          return taken;
        },
        kMaxLineBytes);
    lines_.read(reader);
  }

  TraceFile file() const { return Lines(lines_).finish(); }

 private:
  const std::string name_;
  Lines lines_;
};

GrowingTrace::GrowingTrace(std::string name) : reading_(std::make_unique<Reading>(std::move(name))) {}
GrowingTrace::~GrowingTrace() = default;

void GrowingTrace::read_on(std::string_view lines) { reading_->read_on(lines); }
TraceFile GrowingTrace::file() const { return reading_->file(); }

}  // namespace nimble::analyzer
