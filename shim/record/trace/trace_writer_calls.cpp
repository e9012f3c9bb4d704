// The trace writer's calls: the event of each with its arguments, and the bar of its op on the stream's track, at once
// or when its device time has come. analyzer/input/trace_reader_calls.cpp reads them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "nimble/internal/trace.h"
#include "shim/record/facts/graph_table.h"
#include "shim/record/trace/trace_text.h"
#include "shim/record/trace/trace_writer.h"
#include "shim/state/function_table.h"

namespace nimble::shim {

namespace {

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
      if (list[i].writes != writes || list[i].bytes == 0) continue;  // a remark
      append(out, "{}[{},{}]", separator, list[i].address, list[i].bytes);
      separator = ",";
    }
    out.push_back(']');
  };
  ranges("compared", false);
  ranges("written", true);
  if (std::find(list, list + count, kProbeSawAddresses) != list + count) out += R"(,"addresses":true)";
  if (std::find(list, list + count, kProbeSawNone) != list + count) out += R"(,"plain":true)";
}

}  // namespace

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
      if (record.graph) append(args_, R"(,"graph":{})", record.graph->id);
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
      if (call.own_pool) append(args_, R"(,"own_pool":true)");
      if (record.context) append(args_, R"(,"context":{})", contexts_.at(record.context));
      if (call.memory == MemoryKind::global)
        if (const ImageInfo* image = functions().global_at(call.address).image)
          append(args_, R"(,"image":{})", define_image(*image));
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
    case CallKind::step_begin:
      if (call.note) append(args_, R"(,"note":{})", json_text(call.note));
      break;
    case CallKind::hidden:
      append(args_, R"(,"note":{})", json_text(call.note));
      if (call.texture) append(args_, R"(,"texture":true)");
      break;
    default:
      break;
  }
}

void TraceWriter::put(const Record& record) {
  if (!good()) return;
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
    awaited_[record.ticket] = {record.seq, stream, function, call.symbol, call.kind};
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
  if (!good()) return;
  const auto found = awaited_.find(time.ticket);
  if (found == awaited_.end()) {
    // Most wait for an op that is about to come. What belongs to none, such as copies of a probe, must not pile up.
    constexpr std::size_t kMostEarly = std::size_t{1} << 20;
    if (early_.size() >= kMostEarly) early_.clear();
    early_.try_emplace(time.ticket, time);
    return;
  }
  if (fits(kForEnd)) device_bar(found->second, time.begin_ns, time.end_ns);
  awaited_.erase(found);
}

}  // namespace nimble::shim
