// Reads a schedule's ops.
#include <array>
#include <utility>
#include <vector>

#include "replayer/schedule/schedule_parts.h"

namespace nimble {

namespace {

std::array<std::uint32_t, 3> dimensions(const Field& field) {
  if (field.size() != 3) field.fail("does not have three numbers");
  std::array<std::uint32_t, 3> dims{};
  for (std::size_t i = 0; i < 3; ++i) {
    dims[i] = field[i].number32(0x7fffffff);
    if (dims[i] == 0) field[i].fail("is 0");
  }
  return dims;
}

SchedulePointer pointer(const Field& field, const Schedule& schedule) {
  SchedulePointer result;
  result.object = field.at("object").index(schedule.objects.size());
  result.offset = field.at("offset").number(kMostBytes);
  result.fixed = field.at("fixed").boolean();
  if (result.offset >= schedule.objects[result.object].size) field.at("offset").fail("lies outside its object");
  return result;
}

// A rectangle must lie inside its object.
void check_region(const Field& field, const Schedule& schedule, const SchedulePointer& at, std::uint64_t pitch,
                  std::uint64_t width, std::uint64_t height) {
  if (height == 0 || width == 0) return;
  if (height > 1 && pitch < width) field.fail("has rows longer than its pitch");
  const std::uint64_t size = schedule.objects[at.object].size;
  const std::uint64_t rows = height - 1;
  if (rows && pitch > size / rows) field.fail("lies outside its object");
  if (at.offset + rows * pitch + width > size) field.fail("lies outside its object");
}

// The pointers that a copy from the host must carry.
void read_payload(const Field& field, const Schedule& schedule, ScheduleOp& op) {
  if (!field.has("payload")) return;
  const Field list = field.at("payload");
  if (op.height != 1) list.fail("is there for a copy of more than one row");
  op.payload.emplace();
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].size() != 3) list[i].fail("is not [byte, object, offset]");
    SchedulePayload word;
    word.at = list[i][0].number(kMostBytes);
    if (word.at < next || op.width < 8 || word.at > op.width - 8)
      list[i][0].fail("is out of order, or outside of the copy");
    next = word.at + 8;
    word.pointer.object = list[i][1].index(schedule.objects.size());
    word.pointer.offset = list[i][2].number(kMostBytes);
    if (word.pointer.offset >= schedule.objects[word.pointer.object].size) list[i][2].fail("lies outside its object");
    op.payload->push_back(word);
  }
}

void read_pointers(const Field& pointers, const Schedule& schedule, std::uint32_t bytes, ScheduleOp& op) {
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    const Field entry = pointers[i];
    ScheduleParam param;
    param.at = entry.at("at").number32(kMostParamBytes);
    if (param.at % 8 || param.at + 8 > bytes) entry.at("at").fail("is not an 8-byte aligned offset in the parameters");
    if (!op.pointers.empty() && op.pointers.back().at >= param.at) entry.at("at").fail("is out of order");
    param.pointer = pointer(entry, schedule);
    op.pointers.push_back(param);
  }
  if (op.barrier && !op.pointers.empty()) pointers.fail("must be empty for a barrier");
}

// Parts of the parameters that must hold the same bytes as when recorded.
void read_equal(const Field& field, std::uint32_t bytes, ScheduleOp& op) {
  for (std::size_t i = 0; i < field.size(); ++i) {
    if (field[i].size() != 2) field[i].fail("is not [offset, bytes]");
    ScheduleBytes part{field[i][0].number32(kMostParamBytes), field[i][1].bytes()};
    if (part.at + part.bytes.size() > bytes) field[i].fail("lies outside the parameters");
    op.equal.push_back(std::move(part));
  }
}

void read_launch(const Field& field, const Schedule& schedule, ScheduleOp& op) {
  op.function = field.at("function").index(schedule.functions.size());
  op.grid = dimensions(field.at("grid"));
  op.block = dimensions(field.at("block"));
  op.shared_bytes = field.at("shared_bytes").number32();
  op.fixed_launch = field.at("fixed_launch").boolean();
  op.barrier = field.at("barrier").boolean();
  if (field.has("priority")) op.priority = field.at("priority").number32(kMaxPriority);
  const std::uint32_t bytes = param_bytes(schedule.functions[op.function]);
  read_pointers(field.at("pointers"), schedule, bytes, op);
  const Field numbers = field.at("numbers");
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    op.numbers.push_back(numbers[i].number32(kMostParamBytes));
    if (i > 0 && op.numbers[i - 1] >= op.numbers[i]) numbers[i].fail("is out of order");
  }
  const auto list = [&](const char* key) {
    std::vector<std::uint32_t> result;
    const Field entries = field.at(key);
    for (std::size_t i = 0; i < entries.size(); ++i) result.push_back(entries[i].index(schedule.objects.size()));
    return result;
  };
  if (field.has("writes")) op.writes = list("writes");
  if (field.has("believed_reads")) op.believed_reads = list("believed_reads");
  if (field.has("equal")) read_equal(field.at("equal"), bytes, op);
}

// A copy or a set in a graph; or, without `in_graph`, the destination of a copy that has to bring pointers.
void read_transfer(const Field& field, const Schedule& schedule, bool in_graph, ScheduleOp& op) {
  op.dst = pointer(field.at("dst"), schedule);
  op.dst_pitch = field.at("dst_pitch").number(kMostBytes);
  op.width = field.at("width").number(kMostBytes);
  op.height = field.at("height").number(kMostBytes);
  check_region(field.at("dst"), schedule, op.dst, op.dst_pitch, op.width, op.height);
  if (op.kind == CallKind::set) {
    op.element = field.at("element").number32(4);
    if (op.element != 1 && op.element != 2 && op.element != 4) field.at("element").fail("is not 1, 2 or 4");
    return;
  }
  read_payload(field, schedule, op);
  if (!in_graph) return;  // its source may be outside all objects
  op.src = pointer(field.at("src"), schedule);
  op.src_pitch = field.at("src_pitch").number(kMostBytes);
  check_region(field.at("src"), schedule, op.src, op.src_pitch, op.width, op.height);
}

void read_wait(const Field& field, const Schedule& schedule, ScheduleOp& op) {
  if (op.submit == Submit::graph) field.at("submit").fail("is \"graph\" for an event wait");
  if (op.submit != Submit::order || field.at("record").is_null()) return;
  op.record = field.at("record").index(schedule.ops.size());  // among the ops before this one
  if (schedule.ops[op.record].kind != CallKind::event_record) field.at("record").fail("does not name an event record");
}

void read_allocation(const Field& field, const Schedule& schedule, ScheduleOp& op) {
  if (op.submit == Submit::graph) field.at("submit").fail("is \"graph\" for an allocation");
  if (op.submit != Submit::plan) return;
  op.object = field.at("object").index(schedule.objects.size());
  if (!schedule.objects[op.object].step_local) field.at("object").fail("is not local to the step");
  if (op.kind != CallKind::alloc_async) return;
  op.size = field.at("size").number(kMostBytes);
  if (op.size != schedule.objects[op.object].size) field.at("size").fail("is not its object's size");
}

void check_submit(const Field& field, const ScheduleOp& op) {
  if (op.submit == Submit::plan && op.kind != CallKind::alloc_async && op.kind != CallKind::free_async) {
    field.at("submit").fail("is \"plan\" for an op that is not an allocation");
  }
  if (op.submit == Submit::order && op.kind != CallKind::event_wait)
    field.at("submit").fail("is \"order\" for an op that is not an event wait");
}

}  // namespace

ScheduleOp read_op(const Field& field, const Schedule& schedule) {
  ScheduleOp op;
  op.kind = static_cast<CallKind>(field.at("kind").one_of(kCallKindNames));
  if (!is_op(op.kind)) field.at("kind").fail("is not an op");
  op.submit = static_cast<Submit>(field.at("submit").one_of(kSubmitNames));
  if (field.has("stream")) op.stream = field.at("stream").index(schedule.streams.size());
  if (!field.at("segment").is_null()) op.segment = field.at("segment").number32();
  op.lane = field.at("lane").number32();
  const bool in_graph = op.submit == Submit::graph;
  if (is_held(op.submit) != (op.segment != kNone)) field.at("segment").fail("does not go with its \"submit\"");
  switch (op.kind) {
    case CallKind::launch:
      if (in_graph) read_launch(field, schedule, op);
      break;
    case CallKind::copy:
    case CallKind::set:
      if (in_graph || field.has("payload")) read_transfer(field, schedule, in_graph, op);
      break;
    case CallKind::event_record:
      break;
    case CallKind::event_wait:
      read_wait(field, schedule, op);
      break;
    case CallKind::alloc_async:
    case CallKind::free_async:
      read_allocation(field, schedule, op);
      break;
    default:
      if (in_graph) field.at("submit").fail("is \"graph\" for an op that no graph can hold");
  }
  check_submit(field, op);
  return op;
}

}  // namespace nimble
