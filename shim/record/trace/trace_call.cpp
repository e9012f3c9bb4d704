#include "shim/record/trace/trace_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "nimble/internal/trace.h"
#include "shim/record/trace/trace_text.h"
#include "shim/state/code/function_table.h"

namespace nimble::shim {

namespace {

// `,"words":[[offset, value], ...]`
void append_words(std::string& out, const Record& record) {
  out += R"(,"words":[)";
  for (std::uint32_t i = 0; i < record.word_count; ++i)
    append(out, "{}[{},{}]", i ? "," : "", record.words()[i].offset, record.words()[i].value);
  out.push_back(']');
}

// What a probe compared, and what changed: both as `[[address, bytes], ...]`.
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

void append_launch(std::string& out, const Record& record, const TraceDefinitions& definitions) {
  const Call& call = record.call;
  append(out, R"(,"fn":{},"grid":[{},{},{}],"block":[{},{},{}])", definitions.function_of(record.function),
         call.launch.grid[0], call.launch.grid[1], call.launch.grid[2], call.launch.block[0], call.launch.block[1],
         call.launch.block[2]);
  if (call.launch.shared_bytes) append(out, R"(,"smem":{})", call.launch.shared_bytes);
  if (record.param_bytes) {
    append(out, R"(,"params":")");
    append_hex(out, record.params(), record.param_bytes);
    out.push_back('"');
  }
  if (record.stray_count)
    append(out, R"(,"nowhere":[{}])", fmt::join(record.strays(), record.strays() + record.stray_count, ","));
  if (record.attribute_count)
    append(out, R"(,"attrs":[{}])", fmt::join(record.attributes(), record.attributes() + record.attribute_count, ","));
  if (call.launch.cooperative) append(out, R"(,"coop":true)");
  if (record.probed) append_probe(out, record.accesses(), record.access_count);
}

void append_rows(std::string& out, const Record& record) {
  const Call& call = record.call;
  const bool copies = call.kind == CallKind::copy;
  append(out, R"(,"dst":{},"width":{})", call.transfer.dst.address, call.transfer.width);
  if (copies) append(out, R"(,"src":{})", call.transfer.src.address);
  if (call.transfer.height != 1) {
    append(out, R"(,"height":{},"dpitch":{})", call.transfer.height, call.transfer.dst.pitch);
    if (copies) append(out, R"(,"spitch":{})", call.transfer.src.pitch);
  }
  if (!copies) append(out, R"(,"value":{},"elem":{})", call.transfer.value, call.transfer.element);
  if (!call.plain) append(out, R"(,"plain":false)");
  if (record.words_known) append_words(out, record);
}

void append_context(std::string& out, const Record& record, const TraceDefinitions& definitions) {
  if (record.context) append(out, R"(,"context":{})", definitions.context_of(record.context));
}

void append_allocation(std::string& out, const Record& record, TraceDefinitions& definitions) {
  const Call& call = record.call;
  const bool in_order = call.kind == CallKind::alloc_async;
  append(out, R"(,"addr":{},"size":{})", call.memory.address, call.memory.size);
  if (!in_order) append(out, R"(,"memory":"{}")", name(call.memory.kind));
  if (call.memory.own_pool) append(out, R"(,"own_pool":true)");
  if (in_order) return;
  append_context(out, record, definitions);
  if (call.memory.kind == MemoryKind::global)
    if (const ImageInfo* image = functions().global_at(call.memory.address).image)
      append(out, R"(,"image":{})", definitions.image(*image));
}

// One case for each kind of call.
void append_kinds_own(std::string& out, const Record& record, TraceDefinitions& definitions) {
  const Call& call = record.call;
  switch (call.kind) {
    case CallKind::launch:
      return append_launch(out, record, definitions);
    case CallKind::copy:
    case CallKind::set:
      return append_rows(out, record);
    case CallKind::opaque:
      if (!record.accesses_known) return;
      append(out, R"(,"accesses":)");
      return append_accesses(out, record.accesses(), record.access_count);
    case CallKind::graph_launch:
      if (record.graph) append(out, R"(,"graph":{})", record.graph->id);
      return;
    case CallKind::event_record:
    case CallKind::event_wait:
      if (!call.plain) append(out, R"(,"plain":false)");
      return;
    case CallKind::context_end:
    case CallKind::context_synchronize:
      return append_context(out, record, definitions);
    case CallKind::alloc:
    case CallKind::alloc_async:
      return append_allocation(out, record, definitions);
    case CallKind::free:
    case CallKind::free_async:
      append(out, R"(,"addr":{})", call.memory.address);
      if (call.memory.size) append(out, R"(,"size":{})", call.memory.size);
      return;
    case CallKind::step_begin:
      if (call.note) append(out, R"(,"note":{})", json_text(call.note));
      return;
    case CallKind::hidden:
      append(out, R"(,"note":{})", json_text(call.note));
      if (call.texture) append(out, R"(,"texture":true)");
      return;
    default:
      return;
  }
}

}  // namespace

void append_arguments(std::string& out, const Record& record, TraceDefinitions& definitions) {
  const Call& call = record.call;
  append(out, R"("seq":{},"call":"{}")", record.seq, call.symbol);
  if (record.result != CUDA_SUCCESS) append(out, R"(,"result":{})", static_cast<int>(record.result));
  if (call.has_stream)
    if (const auto stream = definitions.stream_of(call.stream.key)) append(out, R"(,"stream":{})", *stream);
  if (call.event) append(out, R"(,"event":{})", definitions.event_of(call.event));
  if (call.event2 && call.kind == CallKind::launch) append(out, R"(,"event2":{})", definitions.event_of(call.event2));
  if (call.query) append(out, R"(,"query":true)");
  if (call.synchronous()) append(out, R"(,"sync":true)");
  append_kinds_own(out, record, definitions);
}

}  // namespace nimble::shim
