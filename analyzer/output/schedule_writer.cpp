#include "analyzer/output/schedule_writer.h"

#include <cstdio>

#include "analyzer/base/json_text.h"

namespace nimble::analyzer {
namespace {

void id(JsonText& out, std::string_view key, std::uint32_t value) {
  out.key(key);
  if (value == kNone)
    out.null();
  else
    out.number(value);
}

template <typename Values>
void numbers(JsonText& out, const Values& values) {
  out.open('[');
  for (auto value : values) out.number(value);
  out.close(']');
}

std::string_view mode(bool reads, bool writes) { return reads ? writes ? "rw" : "r" : "w"; }

std::string hex(const std::vector<std::uint8_t>& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

void pointer_fields(JsonText& out, const SchedulePointer& pointer) {
  id(out, "object", pointer.object);
  out.key("offset").number(pointer.offset);
  out.key("fixed").boolean(pointer.fixed);
}

void pointer(JsonText& out, std::string_view key, const SchedulePointer& pointer) {
  out.key(key).open('{');
  pointer_fields(out, pointer);
  out.close('}');
}

void launch(JsonText& out, const ScheduleOp& op) {
  id(out, "function", op.function);
  out.key("grid");
  numbers(out, op.grid);
  out.key("block");
  numbers(out, op.block);
  out.key("shared_bytes").number(op.shared_bytes);
  out.key("fixed_launch").boolean(op.fixed_launch).key("barrier").boolean(op.barrier);
  if (op.priority != 0) out.key("priority").number(op.priority);
  out.key("pointers").open('[');
  for (const ScheduleParam& param : op.pointers) {
    out.open('{').key("at").number(param.at);
    pointer_fields(out, param.pointer);
    out.close('}');
  }
  out.close(']').key("numbers");
  numbers(out, op.numbers);
  if (!op.equal.empty()) {
    out.key("equal").open('[');
    for (const ScheduleBytes& part : op.equal) out.open('[').number(part.at).text(hex(part.bytes)).close(']');
    out.close(']');
  }
  if (op.writes) {
    out.key("writes");
    numbers(out, *op.writes);
  }
  if (!op.believed_reads.empty()) {
    out.key("believed_reads");
    numbers(out, op.believed_reads);
  }
}

void copy(JsonText& out, const ScheduleOp& op) {
  pointer(out, "dst", op.dst);
  pointer(out, "src", op.src);
  out.key("dst_pitch").number(op.dst_pitch).key("src_pitch").number(op.src_pitch);
  out.key("width").number(op.width).key("height").number(op.height);
  if (!op.payload) return;
  out.key("payload").open('[');
  for (const SchedulePayload& word : *op.payload)
    out.open('[').number(word.at).number(word.pointer.object).number(word.pointer.offset).close(']');
  out.close(']');
}

void op(JsonText& out, const ScheduleOp& op) {
  out.newline().open('{');
  out.key("kind").text(nimble::name(op.kind));
  out.key("submit").text(name(op.submit));
  if (op.stream != 0) out.key("stream").number(op.stream);
  id(out, "segment", op.segment);
  out.key("lane").number(op.lane);
  if (op.submit == Submit::order) id(out, "record", op.record);
  switch (op.kind) {
    case CallKind::launch:
      launch(out, op);
      break;
    case CallKind::copy:
      copy(out, op);
      break;
    case CallKind::set:
      pointer(out, "dst", op.dst);
      out.key("dst_pitch").number(op.dst_pitch).key("width").number(op.width);
      out.key("height").number(op.height).key("element").number(op.element);
      break;
    case CallKind::alloc_async:
      id(out, "object", op.object);
      out.key("size").number(op.size);
      break;
    case CallKind::free_async:
      id(out, "object", op.object);
      break;
    default:
      break;
  }
  out.close('}');
}

void proven(JsonText& out, const std::vector<ProvenAccess>& accesses) {
  out.key("proven").open('[');
  for (const ProvenAccess& access : accesses) {
    out.open('[');
    numbers(out, access.at);
    out.text(mode(access.reads, access.writes));
    if (!access.when.empty()) {
      out.open('[');
      for (const ParamCondition& each : access.when) {
        out.open('[').number(each.at).number(each.bytes).text(each.equal ? "==" : "!=");
        out.number(each.value).close(']');
      }
      out.close(']');
    }
    out.close(']');
  }
  out.close(']');
}

void function(JsonText& out, const ScheduleFunction& function) {
  out.newline().open('{').key("name").text(function.name).key("params").open('[');
  for (const ParamLayout& param : function.params) out.open('[').number(param.offset).number(param.size).close(']');
  out.close(']').key("self_contained").boolean(function.self_contained);
  if (function.proven) proven(out, *function.proven);
  if (!function.stored.empty()) {
    out.key("stored");
    numbers(out, function.stored);
  }
  if (!function.globals.empty()) {
    out.key("globals").open('[');
    for (const ScheduleGlobal& global : function.globals)
      out.open('[').text(global.name).number(global.object).text(mode(global.reads, global.writes)).close(']');
    out.close(']');
  }
  const auto digest = [&](const char* key, std::uint64_t value) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
    if (value != 0) out.key(key).text(text);
  };
  digest("doubts", function.doubts);
  digest("code", function.code);
  out.close('}');
}

void object(JsonText& out, const ScheduleObject& object) {
  out.newline().open('{').key("memory").text(name(object.memory)).key("size").number(object.size);
  out.key("step_local").boolean(object.step_local).key("plan_offset").number(object.plan_offset).close('}');
}

void branches(JsonText& out, const Schedule& schedule) {
  if (schedule.ends.empty()) return;
  out.key("branches").open('[');
  for (const ScheduleBranch& branch : schedule.branches) {
    out.open('[').number(branch.first);
    branch.after == kNone ? out.null() : out.number(branch.after);
    out.close(']');
  }
  out.close(']').key("ends");
  numbers(out, schedule.ends);
  out.newline();
}

void segment(JsonText& out, const ScheduleSegment& segment) {
  out.newline().open('{').key("first").number(segment.first).key("last").number(segment.last);
  out.key("lanes").number(segment.lanes).key("synchronizations").number(segment.synchronizations);
  out.key("edges").open('[');
  for (const auto& edge : segment.edges) numbers(out, edge);
  out.close(']').key("order");
  numbers(out, segment.order);
  out.close('}');
}

// A list of `elements`, each written by `write`.
template <typename Elements, typename Write>
void list(JsonText& out, std::string_view key, const Elements& elements, Write write) {
  out.key(key).open('[');
  for (const auto& element : elements) write(out, element);
  out.close(']').newline();
}

}  // namespace

std::string schedule_text(const Schedule& schedule) {
  JsonText out;
  out.open('{').key("nimble_schedule").number(kScheduleVersion).newline();
  out.key("policy").text(schedule.policy).key("trace_digest").text(schedule.trace_digest).newline();
  const ScheduleFreedom& freedom = schedule.freedom;
  out.key("trust").text(schedule.trust).key("unordered_pairs").open('{');
  out.key("exact").number(freedom.exact).key("proven").number(freedom.proven);
  out.key("declared").number(freedom.declared).key("observed").number(freedom.observed);
  out.key("estimated").boolean(freedom.estimated).close('}').newline();
  out.key("streams").open('[');
  for (const ScheduleStream& stream : schedule.streams)
    out.open('{').key("kind").text(name(stream.kind)).key("forked").boolean(stream.forked).close('}');
  out.close(']').newline();
  list(out, "functions", schedule.functions, function);
  list(out, "objects", schedule.objects, object);
  list(out, "ops", schedule.ops, op);
  branches(out, schedule);
  list(out, "segments", schedule.segments, segment);
  out.key("arena_bytes").number(schedule.arena_bytes);
  if (schedule.carries) out.key("carries").boolean(true);
  if (schedule.textures) out.key("textures").boolean(true);
  out.close('}');
  return out.take() + "\n";
}

}  // namespace nimble::analyzer
