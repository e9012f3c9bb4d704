#include "shim/trace_writer.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "nimble/trace.h"
#include "nimble/version.h"
#include "shim/graph_table.h"
#include "shim/log.h"
#include "shim/probe/digest.h"
#include "shim/real_driver.h"

namespace nimble::shim {

namespace {

// A JSON string with its quotes. Bytes that are no UTF-8 are replaced, never thrown at.
std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The kernel's name as people say it: demangled, without its parameter list.
std::string spoken(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  if (status != 0) return name;
  std::string result = text.get();
  if (result.starts_with("void ")) result.erase(0, 5);
  // The parameter list is the last balanced pair of parentheses.
  int depth = 0;
  for (std::size_t i = result.size(); i-- > 0;) {
    if (result[i] == ')') ++depth;
    if (result[i] == '(' && --depth == 0) return result.substr(0, i);
  }
  return result;
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

template <class... Args>
void append(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

template <class... Args>
void say(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  log(level, fmt::format(format, std::forward<Args>(args)...));
}

void append_hex(std::string& out, const std::uint8_t* bytes, std::size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(kDigits[bytes[i] >> 4]);
    out.push_back(kDigits[bytes[i] & 15]);
  }
}

// What is known of a kernel's code: `,"self_contained":...` and so on.
void append_code(std::string& out, const FunctionInfo& function) {
  append(out, R"(,"self_contained":{})", function.self_contained);
  if (!function.why.empty()) append(out, R"(,"why":{})", json_text(function.why));
  if (function.code) append(out, R"(,"code":"{:016x}")", function.code);
  if (!function.proof) {
    if (!function.why_not_proven.empty()) append(out, R"(,"why_not_proven":{})", json_text(function.why_not_proven));
    return;
  }
  out += R"(,"proven":[)";
  const char* separator = "";
  for (const ProvenAccess& access : function.proof->accesses) {
    append(out, R"({}[[{}],"{}{}"])", separator, fmt::join(access.at, ","), access.reads ? "r" : "",
           access.writes ? "w" : "");
    separator = ",";
  }
  if (!function.proof->globals.empty()) {
    out += R"(],"globals":[)";
    separator = "";
    for (const ProvenGlobal& global : function.proof->globals) {
      append(out, R"({}[{},{},{},"{}{}"])", separator, json_text(global.name), global.address, global.bytes,
             global.reads ? "r" : "", global.writes ? "w" : "");
      separator = ",";
    }
  }
  append(out, R"(],"stored":[{}],"same_code":{})", fmt::join(function.proof->stored, ","), function.proof->same_code);
}

// `[[address, bytes, "r"], ...]`
void append_accesses(std::string& out, const TraceAccess* list, std::size_t count) {
  out.push_back('[');
  for (std::size_t i = 0; i < count; ++i) {
    append(out, R"({}[{},{},"{}{}"])", i ? "," : "", list[i].address, list[i].bytes, list[i].reads ? "r" : "",
           list[i].writes ? "w" : "");
  }
  out.push_back(']');
}

// `,"words":[[offset, value], ...]`
void append_words(std::string& out, const Record& record) {
  out += R"(,"words":[)";
  for (std::uint32_t i = 0; i < record.word_count; ++i)
    append(out, "{}[{},{}]", i ? "," : "", record.words()[i].offset, record.words()[i].value);
  out.push_back(']');
}

// What a probe compared, and what it saw change: both as `[[address, bytes], ...]`.
void append_probe(std::string& out, const TraceAccess* list, std::size_t count) {
  const auto ranges = [&](const char* key, bool writes) {
    append(out, R"(,"{}":[)", key);
    const char* separator = "";
    for (std::size_t i = 0; i < count; ++i) {
      if (list[i].writes != writes || list[i] == kProbeSawAddresses) continue;
      append(out, "{}[{},{}]", separator, list[i].address, list[i].bytes);
      separator = ",";
    }
    out.push_back(']');
  };
  ranges("compared", false);
  ranges("written", true);
  if (std::find(list, list + count, kProbeSawAddresses) != list + count) out += R"(,"addresses":true)";
}

void mark(std::vector<bool>& done, std::uint32_t id) {
  if (done.size() <= id) done.resize(id + 1);
  done[id] = true;
}

bool marked(const std::vector<bool>& done, std::uint32_t id) { return id < done.size() && done[id]; }

}  // namespace

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
  const auto get_version = reinterpret_cast<decltype(&::cuDriverGetVersion)>(driver_symbol("cuDriverGetVersion"));
  const auto get_name = reinterpret_cast<decltype(&::cuDeviceGetName)>(driver_symbol("cuDeviceGetName"));
  if (get_version) get_version(&version);
  if (get_name) get_name(device, sizeof device - 1, 0);
  out_ += "[\n";
  line(fmt::format(
      R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.trace","args":{{"version":{},"nimble":"{}","program":{},"device":{},"driver":{}}}}})json",
      kTraceVersion, kVersion, json_text(command_line()), json_text(device), version));
  line(R"json({"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"host"}})json");
  line(R"json({"ph":"M","pid":2,"tid":0,"name":"process_name","args":{"name":"streams"}})json");
}

void TraceWriter::define_thread(std::uint32_t thread) {
  if (marked(threads_, thread)) return;
  mark(threads_, thread);
  line(fmt::format(R"json({{"ph":"M","pid":1,"tid":{0},"name":"thread_name","args":{{"name":"thread {0}"}}}})json",
                   thread));
}

std::uint32_t TraceWriter::define_context(CUcontext context) {
  return contexts_.try_emplace(context, static_cast<std::uint32_t>(contexts_.size())).first->second;
}

std::uint32_t TraceWriter::define_stream(const Record& record) {
  const StreamRef& stream = record.call.stream;
  if (const auto found = streams_.find(stream.key); found != streams_.end()) return found->second.id;
  const std::uint32_t id = next_stream_++;
  streams_[stream.key] = {id, record.context};
  busy_until_us_.push_back(0);
  line(fmt::format(
      R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.stream","args":{{"id":{},"context":{},"kind":"{}"{}}}}})json",
      id, define_context(record.context), name(record.stream_kind),
      stream.is_per_thread() ? fmt::format(R"(,"thread":{})", record.call.thread) : ""));
  line(
      fmt::format(R"json({{"ph":"M","pid":2,"tid":{0},"name":"thread_name","args":{{"name":"stream {0} ({1})"}}}})json",
                  id, name(record.stream_kind)));
  return id;
}

// The context's streams are gone, and their handles may come back. Events do not tell whose they are; a new id for one
// that lives on only means that less is known of it.
void TraceWriter::forget_context(CUcontext context) {
  std::erase_if(streams_, [&](const auto& entry) { return !context || entry.second.context == context; });
  events_.clear();
}

std::uint32_t TraceWriter::define_event(CUevent event) {
  const auto [found, is_new] = events_.try_emplace(event, next_event_);
  if (is_new) ++next_event_;
  return found->second;
}

std::uint32_t TraceWriter::define_image(const ImageInfo& image) {
  const auto [found, is_new] = images_.try_emplace(&image, static_cast<std::uint32_t>(images_.size()));
  if (!is_new) return found->second;
  line(fmt::format(
      R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.image","args":{{"id":{},"self_contained":{},"why":{}}}}})json",
      found->second, image.self_contained, json_text(image.why)));
  return found->second;
}

std::uint32_t TraceWriter::define_function(const FunctionInfo& function) {
  const auto [found, is_new] = functions_.try_emplace(&function, static_cast<std::uint32_t>(functions_.size()));
  const std::uint32_t id = found->second;
  if (!is_new) return id;
  const std::string image = function.image ? fmt::format("{}", define_image(*function.image)) : "null";
  names_.push_back(json_text(spoken(function.name)));
  std::string params;
  if (function.params) {
    const char* separator = "[";
    for (const ParamLayout& p : *function.params) {
      append(params, "{}[{},{}]", separator, p.offset, p.size);
      separator = ",";
    }
    if (function.params->empty()) params.push_back('[');
    params.push_back(']');
  } else {
    params = "null";
  }
  std::string code;
  if (function.image) append_code(code, function);
  line(fmt::format(
      R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.function","args":{{"id":{},"name":{},"image":{},"params":{}{}}}}})json",
      id, json_text(function.name), image, params, code));
  return id;
}

std::uint32_t TraceWriter::define_graph(GraphInfo& graph) {
  const auto [found, is_new] = graphs_.try_emplace(&graph, static_cast<std::uint32_t>(graphs_.size()));
  const std::uint32_t id = found->second;
  if (!is_new) return id;
  for (const GraphKernel& kernel : graph.kernels) define_function(*kernel.function);
  line(fmt::format(
      R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.graph","args":{{"id":{},"known":{},"why":{}}}}})json", id,
      graph.known, json_text(graph.why)));
  // In parts, so that no line grows beyond what readers take.
  constexpr std::size_t kPart = 4096, kPartBytes = std::size_t{128} << 10;
  for (std::size_t at = 0; at < graph.accesses.size(); at += kPart) {
    std::string list;
    const std::size_t count = std::min(kPart, graph.accesses.size() - at);
    append_accesses(list, graph.accesses.data() + at, count);
    line(fmt::format(
        R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.graph_nodes","args":{{"graph":{},"accesses":{}}}}})json", id,
        list));
  }
  for (std::size_t at = 0; at < graph.kernels.size();) {
    std::string list;
    for (; at < graph.kernels.size() && list.size() < kPartBytes; ++at) {
      const GraphKernel& kernel = graph.kernels[at];
      append(list, R"({}[{},")", list.empty() ? "" : ",", functions_.at(kernel.function));
      append_hex(list, kernel.params.data(), kernel.params.size());
      list += "\"]";
    }
    line(fmt::format(
        R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.graph_nodes","args":{{"graph":{},"kernels":[{}]}}}})json", id,
        list));
  }
  graph.accesses = {};
  graph.kernels = {};
  return id;
}

void TraceWriter::arguments(const Record& record) {
  const Call& call = record.call;
  append(args_, R"("seq":{},"call":"{}")", record.seq, call.symbol);
  if (record.result != CUDA_SUCCESS) append(args_, R"(,"result":{})", static_cast<int>(record.result));
  if (const auto stream = streams_.find(call.stream.key); call.has_stream && stream != streams_.end())
    append(args_, R"(,"stream":{})", stream->second.id);
  if (call.event) append(args_, R"(,"event":{})", events_.at(call.event));
  if (call.event2 && call.kind == CallKind::launch) append(args_, R"(,"event2":{})", events_.at(call.event2));
  if (call.query) append(args_, R"(,"query":true)");
  if (call.synchronous()) append(args_, R"(,"sync":true)");
  switch (call.kind) {
    case CallKind::launch:
      append(args_, R"(,"fn":{},"grid":[{},{},{}],"block":[{},{},{}])", functions_.at(record.function), call.grid[0],
             call.grid[1], call.grid[2], call.block[0], call.block[1], call.block[2]);
      if (call.shared_bytes) append(args_, R"(,"smem":{})", call.shared_bytes);
      if (record.param_bytes) {
        append(args_, R"(,"params":")");
        append_hex(args_, record.params(), record.param_bytes);
        args_.push_back('"');
      }
      if (record.stray_count) {
        append(args_, R"(,"nowhere":[{}])", fmt::join(record.strays(), record.strays() + record.stray_count, ","));
      }
      if (record.attribute_count) {
        append(args_, R"(,"attrs":[{}])",
               fmt::join(record.attributes(), record.attributes() + record.attribute_count, ","));
      }
      if (call.cooperative) append(args_, R"(,"coop":true)");
      if (record.probed) append_probe(args_, record.accesses(), record.access_count);
      break;
    case CallKind::copy:
    case CallKind::set:
      append(args_, R"(,"dst":{},"width":{})", call.dst.address, call.width);
      if (call.kind == CallKind::copy) append(args_, R"(,"src":{})", call.src.address);
      if (call.height != 1) {
        append(args_, R"(,"height":{},"dpitch":{})", call.height, call.dst.pitch);
        if (call.kind == CallKind::copy) append(args_, R"(,"spitch":{})", call.src.pitch);
      }
      if (call.kind == CallKind::set) append(args_, R"(,"value":{},"elem":{})", call.value, call.element);
      if (!call.plain) append(args_, R"(,"plain":false)");
      if (record.words_known) append_words(args_, record);
      break;
    case CallKind::opaque:
      if (!record.accesses_known) break;
      append(args_, R"(,"accesses":)");
      append_accesses(args_, record.accesses(), record.access_count);
      break;
    case CallKind::graph_launch:
      if (record.graph) append(args_, R"(,"graph":{})", graphs_.at(record.graph));
      break;
    case CallKind::event_record:
    case CallKind::event_wait:
      if (!call.plain) append(args_, R"(,"plain":false)");
      break;
    case CallKind::context_end:
    case CallKind::context_synchronize:
      if (record.context) append(args_, R"(,"context":{})", contexts_.at(record.context));
      break;
    case CallKind::alloc:
      append(args_, R"(,"addr":{},"size":{},"memory":"{}")", call.address, call.size, name(call.memory));
      if (record.context) append(args_, R"(,"context":{})", contexts_.at(record.context));
      break;
    case CallKind::alloc_async:
      append(args_, R"(,"addr":{},"size":{})", call.address, call.size);
      if (call.own_pool) append(args_, R"(,"own_pool":true)");
      break;
    case CallKind::free:
    case CallKind::free_async:
      append(args_, R"(,"addr":{})", call.address);
      if (call.size) append(args_, R"(,"size":{})", call.size);
      break;
    case CallKind::hidden:
      append(args_, R"(,"note":{})", json_text(call.note));
      if (call.texture) append(args_, R"(,"texture":true)");
      break;
    default:
      break;
  }
}

void TraceWriter::write(const Record& record) {
  if (file_ < 0) return;
  const Call& call = record.call;
  // The handle may come back as something new.
  if (call.ends == Ends::stream) streams_.erase(call.stream.key);
  if (call.ends == Ends::event) events_.erase(call.event);
  if (call.ends == Ends::green_context) forget_context(call.context);
  if (call.ends != Ends::nothing || (call.kind == CallKind::launch && !record.function)) return;
  define_thread(call.thread);
  // What failed had no effect, and a stream that captures cannot be asked what it is: no stream is defined for that.
  const bool named = call.has_stream && (record.result == CUDA_SUCCESS || streams_.contains(call.stream.key));
  const std::uint32_t stream = named ? define_stream(record) : kNone;
  if (call.event) define_event(call.event);
  if (call.event2) define_event(call.event2);
  if (record.function) define_function(*record.function);
  if (record.graph) define_graph(*record.graph);
  if (record.context) define_context(record.context);
  const std::string_view label =
      record.function ? std::string_view(names_[functions_.at(record.function)]) : std::string_view{};
  const std::string plain = label.empty() ? fmt::format("\"{}\"", call.symbol) : std::string{};
  args_.clear();
  arguments(record);
  const double begin_us = microseconds(record.begin_ns);
  const double duration_us = static_cast<double>(record.end_ns - record.begin_ns) / 1e3;
  append(out_, R"json({{"ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"cat":"{}","args":{{)json",
         call.thread, begin_us, duration_us, label.empty() ? std::string_view(plain) : label, name(call.kind));
  out_ += args_;
  out_ += "}},\n";
  if (call.kind == CallKind::context_end && record.result == CUDA_SUCCESS) forget_context(record.context);
  if (!is_op(call.kind) || record.result != CUDA_SUCCESS) return;
  if (record.ticket) {
    const std::uint32_t function = record.function ? functions_.at(record.function) : kNone;
    awaited_[record.ticket] = {record.seq, stream, function, call.symbol, call.kind, 0, 0};
    if (const auto early = early_.extract(record.ticket)) write(early.mapped());
    return;
  }
  // The op on its stream's track. No device time will come, so the bar is the host's, moved right where two threads
  // overlap.
  double& busy_until = busy_until_us_[stream];
  const double begin = std::max(begin_us, busy_until);
  busy_until = begin + duration_us;
  append(out_,
         R"json({{"ph":"X","pid":2,"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"cat":"{}","args":{{"seq":{}}}}},)json",
         stream, begin, duration_us, label.empty() ? std::string_view(plain) : label, name(call.kind), record.seq);
  out_.push_back('\n');
}

double TraceWriter::microseconds(std::uint64_t ns) const {
  return ns > epoch_ns_ ? static_cast<double>(ns - epoch_ns_) / 1e3 : 0;
}

void TraceWriter::device_bar(const Awaited& op, std::uint64_t begin_ns, std::uint64_t end_ns) {
  const std::string plain = op.function == kNone ? fmt::format("\"{}\"", op.symbol) : std::string{};
  append(
      out_,
      R"json({{"ph":"X","pid":2,"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"cat":"{}","args":{{"seq":{},"device":true}}}},)json",
      op.stream, microseconds(begin_ns), static_cast<double>(end_ns - begin_ns) / 1e3,
      op.function == kNone ? plain : names_[op.function], name(op.kind), op.seq);
  out_.push_back('\n');
}

void TraceWriter::write(const DeviceTime& time) {
  if (file_ < 0) return;
  const auto found = awaited_.find(time.ticket);
  if (found == awaited_.end()) {
    // Most wait for an op that is about to come. What belongs to none, such as copies of a probe, must not pile up.
    constexpr std::size_t kMostEarly = std::size_t{1} << 20;
    if (early_.size() >= kMostEarly) early_.clear();
    const auto [early, is_new] = early_.try_emplace(time.ticket, time);
    if (is_new) return;
    early->second.begin_ns = std::min(early->second.begin_ns, time.begin_ns);
    early->second.end_ns = std::max(early->second.end_ns, time.end_ns);
    return;
  }
  Awaited& op = found->second;
  if (op.kind == CallKind::graph_launch) {  // a time for each node, and no word of which is the last
    op.begin_ns = op.end_ns ? std::min(op.begin_ns, time.begin_ns) : time.begin_ns;
    op.end_ns = std::max(op.end_ns, time.end_ns);
    return;
  }
  device_bar(op, time.begin_ns, time.end_ns);
  awaited_.erase(found);
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
  constexpr std::string_view kEnd = R"json({"ph":"M","pid":1,"tid":0,"name":"nimble.end","args":{"dropped":0}})json"
                                    "\n]\n";
  if (file_ < 0) return false;
  if (ended_) {
    // Back before the end that was written last, where the file has such a thing as places.
    if (::lseek(file_, -static_cast<off_t>(kEnd.size()), SEEK_CUR) < 0) return false;
  } else {
    for (const auto& [ticket, op] : awaited_) {
      if (op.end_ns) device_bar(op, op.begin_ns, op.end_ns);
    }
    write_coverage(coverage);
    if (probe) write_probe(*probe);
  }
  out_ += kEnd;
  if (!flush()) return false;
  if (!std::exchange(ended_, true)) say(LogLevel::info, "wrote {}. Next: nimble-analyze {}", path_, path_);
  return true;
}

void TraceWriter::let_go() noexcept {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

}  // namespace nimble::shim
