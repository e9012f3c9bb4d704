#include "replayer/schedule/schedule_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "nimble/internal/process/memory_reserve.h"
#include "nimble/internal/process/quiet_file.h"
#include "replayer/schedule/schedule_check.h"
#include "replayer/schedule/schedule_field.h"
#include "replayer/tune/tuner.h"

namespace nimble {

namespace {

using Json = nlohmann::json;

// Beyond these nothing real lies; a file that says more is broken or hostile.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;
constexpr std::uint64_t kMostParamsTogether = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostFileBytes = std::uint64_t{8} << 30;

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

// 64 bits in hexadecimal.
std::uint64_t code(const Field& field) {
  const std::string text = field.text();
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc{} || end != text.data() + text.size() || text.size() != 16 || value == 0)
    field.fail("is no digest of 16 hexadecimal digits");
  return value;
}

// Of parameters that end there.
ParamCondition condition(const Field& field, std::uint32_t end) {
  if (field.size() != 4) field.fail("is not [byte, size, relation, value]");
  ParamCondition result;
  result.at = field[0].number32(end);
  result.bytes = field[1].number32(8);
  if (!std::has_single_bit(result.bytes) || end - result.at < result.bytes)
    field.fail("is not of 1, 2, 4 or 8 bytes of the parameters");
  const std::string relation = field[2].text();
  result.equal = relation == "==";
  if (!result.equal && relation != "!=") field[2].fail("is not \"==\" or \"!=\"");
  result.value = field[3].number(~std::uint64_t{0} >> (64 - 8 * result.bytes));
  return result;
}

ScheduleFunction function(const Field& field) {
  ScheduleFunction result;
  result.name = field.at("name").text();
  result.self_contained = field.at("self_contained").boolean();
  const Field params = field.at("params");
  std::uint32_t end = 0;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (params[i].size() != 2) params[i].fail("is not [offset, size]");
    const ParamLayout layout{params[i][0].number32(kMostParamBytes), params[i][1].number32(kMostParamBytes)};
    if (layout.offset < end) params[i].fail("overlaps the parameter before it");
    end = layout.offset + layout.size;
    if (end > kMostParamBytes) params[i].fail("ends beyond 32 KiB");
    result.params.push_back(layout);
  }
  if (field.has("code")) result.code = code(field.at("code"));
  if (!field.has("proven")) return result;
  const Field proven = field.at("proven");
  result.proven.emplace();
  for (std::size_t i = 0; i < proven.size(); ++i) {
    if (proven[i].size() != 2 && proven[i].size() != 3)
      proven[i].fail("is not [words, mode] or [words, mode, conditions]");
    ProvenAccess access;
    const Field words = proven[i][0];
    for (std::size_t word = 0; word < words.size(); ++word) {
      access.at.push_back(words[word].index(end));
      if (access.at.back() % 8 != 0) words[word].fail("is no place of a word");
    }
    if (access.at.empty()) words.fail("is empty");
    const std::string mode = proven[i][1].text();
    access.reads = mode == "r" || mode == "rw";
    access.writes = mode == "w" || mode == "rw";
    if (!access.reads && !access.writes) proven[i][1].fail("is not \"r\", \"w\" or \"rw\"");
    for (std::size_t each = 0; proven[i].size() == 3 && each < proven[i][2].size(); ++each)
      access.when.push_back(condition(proven[i][2][each], end));
    result.proven->push_back(std::move(access));
  }
  return result;
}

// What a function's code proves beside its accesses. Objects must be known.
void code_of(const Field& field, const Schedule& schedule, ScheduleFunction& result) {
  if (field.has("stored")) {
    const Field stored = field.at("stored");
    for (std::size_t i = 0; i < stored.size(); ++i) result.stored.push_back(stored[i].number32(kMostParamBytes));
  }
  if (!field.has("globals")) return;
  if (!result.proven) field.at("globals").fail("is there without \"proven\"");
  const Field globals = field.at("globals");
  for (std::size_t i = 0; i < globals.size(); ++i) {
    if (globals[i].size() != 3) globals[i].fail("is not [name, object, mode]");
    ScheduleGlobal global;
    global.name = globals[i][0].text();
    global.object = globals[i][1].index(schedule.objects.size());
    if (schedule.objects[global.object].step_local) globals[i][1].fail("is local to the step");
    const std::string mode = globals[i][2].text();
    global.reads = mode == "r" || mode == "rw";
    global.writes = mode == "w" || mode == "rw";
    if (!global.reads && !global.writes) globals[i][2].fail("is not \"r\", \"w\" or \"rw\"");
    result.globals.push_back(std::move(global));
  }
}

// The pointers that a copy from the host must carry.
void payload(const Field& field, const Schedule& schedule, ScheduleOp& op) {
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

std::uint32_t param_bytes(const ScheduleFunction& function) {
  return function.params.empty() ? 0 : function.params.back().offset + function.params.back().size;
}

void launch(const Field& field, const Schedule& schedule, ScheduleOp& op) {
  op.function = field.at("function").index(schedule.functions.size());
  op.grid = dimensions(field.at("grid"));
  op.block = dimensions(field.at("block"));
  op.shared_bytes = field.at("shared_bytes").number32();
  op.fixed_launch = field.at("fixed_launch").boolean();
  op.barrier = field.at("barrier").boolean();
  if (field.has("priority")) op.priority = field.at("priority").number32(kMaxPriority);
  const Field pointers = field.at("pointers");
  const std::uint32_t bytes = param_bytes(schedule.functions[op.function]);
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    const Field entry = pointers[i];
    ScheduleParam param;
    param.at = entry.at("at").number32(kMostParamBytes);
    if (param.at % 8 || param.at + 8 > bytes) entry.at("at").fail("is no 8-byte aligned place among the parameters");
    if (!op.pointers.empty() && op.pointers.back().at >= param.at) entry.at("at").fail("is out of order");
    param.pointer = pointer(entry, schedule);
    op.pointers.push_back(param);
  }
  if (op.barrier && !op.pointers.empty()) pointers.fail("must be empty for a barrier");
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
  const std::size_t equals = field.has("equal") ? field.at("equal").size() : 0;
  for (std::size_t i = 0; i < equals; ++i) {
    const Field equal = field.at("equal");
    if (equal[i].size() != 2) equal[i].fail("is not [place, bytes]");
    ScheduleBytes part{equal[i][0].number32(kMostParamBytes), equal[i][1].bytes()};
    if (part.at + part.bytes.size() > bytes) equal[i].fail("lies outside the parameters");
    op.equal.push_back(std::move(part));
  }
}

ScheduleOp read_op(const Field& field, const Schedule& schedule) {
  ScheduleOp op;
  op.kind = static_cast<CallKind>(field.at("kind").one_of(kCallKindNames));
  if (!is_op(op.kind)) field.at("kind").fail("is no op");
  op.submit = static_cast<Submit>(field.at("submit").one_of(kSubmitNames));
  if (field.has("stream")) op.stream = field.at("stream").index(schedule.streams.size());
  if (!field.at("segment").is_null()) op.segment = field.at("segment").number32();
  op.lane = field.at("lane").number32();
  const bool in_graph = op.submit == Submit::graph;
  if (is_held(op.submit) != (op.segment != kNone)) field.at("segment").fail("does not go with its \"submit\"");
  switch (op.kind) {
    case CallKind::launch:
      if (in_graph) launch(field, schedule, op);
      break;
    case CallKind::copy:
    case CallKind::set:
      if (!in_graph && !field.has("payload")) break;
      op.dst = pointer(field.at("dst"), schedule);
      op.dst_pitch = field.at("dst_pitch").number(kMostBytes);
      op.width = field.at("width").number(kMostBytes);
      op.height = field.at("height").number(kMostBytes);
      check_region(field.at("dst"), schedule, op.dst, op.dst_pitch, op.width, op.height);
      if (op.kind == CallKind::set) {
        op.element = field.at("element").number32(4);
        if (op.element != 1 && op.element != 2 && op.element != 4) field.at("element").fail("is not 1, 2 or 4");
      } else {
        payload(field, schedule, op);
        if (!in_graph) break;  // its source may be no object at all
        op.src = pointer(field.at("src"), schedule);
        op.src_pitch = field.at("src_pitch").number(kMostBytes);
        check_region(field.at("src"), schedule, op.src, op.src_pitch, op.width, op.height);
      }
      break;
    case CallKind::event_record:
      break;
    case CallKind::event_wait:
      if (in_graph) field.at("submit").fail("is \"graph\" for an event wait");
      if (op.submit != Submit::order || field.at("record").is_null()) break;
      op.record = field.at("record").index(schedule.ops.size());  // of the ops before this one
      if (schedule.ops[op.record].kind != CallKind::event_record) field.at("record").fail("names no event record");
      break;
    case CallKind::alloc_async:
    case CallKind::free_async:
      if (in_graph) field.at("submit").fail("is \"graph\" for an allocation");
      if (op.submit != Submit::plan) break;
      op.object = field.at("object").index(schedule.objects.size());
      if (!schedule.objects[op.object].step_local) field.at("object").fail("is not local to the step");
      if (op.kind == CallKind::alloc_async) {
        op.size = field.at("size").number(kMostBytes);
        if (op.size != schedule.objects[op.object].size) field.at("size").fail("is not its object's size");
      }
      break;
    default:
      if (in_graph) field.at("submit").fail("is \"graph\" for an op that no graph can hold");
  }
  if (op.submit == Submit::plan && op.kind != CallKind::alloc_async && op.kind != CallKind::free_async) {
    field.at("submit").fail("is \"plan\" for an op that is no allocation");
  }
  if (op.submit == Submit::order && op.kind != CallKind::event_wait)
    field.at("submit").fail("is \"order\" for an op that is no event wait");
  return op;
}

void read_segment(const Field& field, Schedule& schedule, std::uint32_t id, std::vector<std::uint32_t>& place) {
  ScheduleSegment segment;
  segment.first = field.at("first").index(schedule.ops.size());
  segment.last = field.at("last").index(schedule.ops.size());
  segment.lanes = field.at("lanes").number32();
  segment.synchronizations = field.at("synchronizations").number32();
  if (segment.last < segment.first) field.at("last").fail("comes before \"first\"");
  if (id > 0 && segment.first <= schedule.segments.back().last)
    field.at("first").fail("overlaps the segment before it");
  std::size_t nodes = 0;
  for (std::uint32_t op = segment.first; op <= segment.last; ++op) {
    if (schedule.ops[op].submit == Submit::direct) field.fail(fmt::format("holds op {}, which is direct", op));
    if (!is_held(schedule.ops[op].submit)) continue;
    if (schedule.ops[op].segment != id) field.fail(fmt::format("holds op {}, which is of another segment", op));
    nodes += schedule.ops[op].submit == Submit::graph;
  }
  if (nodes == 0) field.fail("holds no op");
  const Field order = field.at("order");
  if (order.size() != nodes) order.fail(fmt::format("has {} ops, but the segment has {}", order.size(), nodes));
  const auto member = [&](const Field& f) {
    const std::uint32_t op = f.index(schedule.ops.size());
    if (op < segment.first || op > segment.last || schedule.ops[op].segment != id ||
        schedule.ops[op].submit != Submit::graph)
      f.fail("is no node of this segment");
    return op;
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::uint32_t op = member(order[i]);
    if (place[op] != kNone) order[i].fail("is there twice");
    place[op] = static_cast<std::uint32_t>(i);
    segment.order.push_back(op);
  }
  const Field edges = field.at("edges");
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].size() != 2) edges[i].fail("is no pair");
    const std::uint32_t from = member(edges[i][0]), to = member(edges[i][1]);
    // Program order is a topological order of every true dependency, so this also rules out cycles.
    if (from >= to) edges[i].fail("does not go from an earlier to a later op");
    if (place[from] >= place[to]) edges[i].fail("is against \"order\"");
    segment.edges.push_back({from, to});
  }
  schedule.segments.push_back(std::move(segment));
}

void read_kinds(const Field& top, std::size_t ops, Schedule& schedule) {
  if (top.has("branches") != top.has("ends")) top.fail("has \"branches\" without \"ends\", or \"ends\" without them");
  if (!top.has("ends")) return;
  const Field branches = top.at("branches"), ends = top.at("ends");
  schedule.branches.clear();
  for (std::size_t i = 0; i < branches.size(); ++i) {
    if (branches[i].size() != 2) branches[i].fail("is not [first, after]");
    ScheduleBranch branch;
    branch.first = branches[i][0].index(ops);
    if (!branches[i][1].is_null()) branch.after = branches[i][1].index(ops);
    if (i == 0 ? branch.first != 0 : branch.first <= schedule.branches.back().first)
      branches[i][0].fail("is not behind the branch before, or leaves out ops");
    if (branch.after != kNone && branch.after >= branch.first) branches[i][1].fail("is no op of an earlier branch");
    schedule.branches.push_back(branch);
  }
  if (schedule.branches.empty()) branches.fail("is empty");
  if (ends.size() == 0 || ends.size() > kMaxKinds) ends.fail(fmt::format("does not have 1 to {} ops", kMaxKinds));
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const std::uint32_t end = ends[i].index(ops);
    if (std::find(schedule.ends.begin(), schedule.ends.end(), end) != schedule.ends.end())
      ends[i].fail("is there twice");
    schedule.ends.push_back(end);
  }
}

// What replay has found out about the ways of submitting.
void read_choices(const Field& top, Schedule& schedule) {
  if (!top.has("tuned")) return;
  const Field tuned = top.at("tuned");
  for (std::size_t i = 0; i < tuned.size(); ++i) {
    ScheduleChoice& choice = schedule.tuned.emplace_back();
    if (tuned[i].is_null()) continue;
    if (tuned[i].size() != 2 || tuned[i][1].size() != kWays) tuned[i].fail("is not [way, [ns, ns, ns]]");
    choice.way = tuned[i][0].one_of(kWayNames);
    for (std::size_t way = 0; way < kWays; ++way)
      if (const Field ns = tuned[i][1][way]; !ns.is_null())
        choice.us[way] = static_cast<double>(ns.number(kMostBytes)) / 1000;
  }
}

void read_streams(const Field& streams, Schedule& schedule) {
  if (streams.size() == 0) streams.fail("is empty");
  if (streams.size() > kMaxStreams) streams.fail(fmt::format("has more than {} streams", kMaxStreams));
  schedule.streams.clear();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    ScheduleStream stream;
    stream.kind = static_cast<StreamKind>(streams[i].at("kind").one_of(kStreamKindNames));
    stream.forked = streams[i].at("forked").boolean();
    if (stream.kind == StreamKind::per_thread) streams[i].at("kind").fail("cannot be replayed");
    // What waits for all of a kind of stream must find what was put on any of that kind behind the first one.
    const auto rank = [](StreamKind kind) {
      return kind == StreamKind::legacy ? 0 : kind == StreamKind::blocking ? 1 : 2;
    };
    if (i > 0 && rank(stream.kind) < rank(schedule.streams.front().kind))
      streams[i].at("kind").fail("must be that of the first stream, or one that is ordered with less");
    schedule.streams.push_back(stream);
  }
}

}  // namespace

Schedule parse_schedule(const std::string& text, const std::string& source) {
  if (text.empty()) throw ScheduleError(source + ": the file is empty");
  Json json;
  const JsonEnds ends(json);
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    const auto* parse = dynamic_cast<const Json::parse_error*>(&error);
    throw ScheduleError(fmt::format("{}: not JSON{}", source, parse ? fmt::format(" (at byte {})", parse->byte) : ""));
  }
  const Field top(json, "", source);
  const std::uint64_t version = top.at("nimble_schedule").number(1'000'000);
  if (version != kScheduleVersion) {
    top.at("nimble_schedule")
        .fail(fmt::format("is {}, but this Nimble reads version {}: run nimble-analyze again", version,
                          kScheduleVersion));
  }
  Schedule schedule;
  schedule.policy = top.at("policy").text();
  schedule.trace_digest = top.at("trace_digest").text();
  schedule.arena_bytes = top.at("arena_bytes").number(kMostBytes);
  const Field functions = top.at("functions"), objects = top.at("objects"), ops = top.at("ops"),
              segments = top.at("segments");
  read_streams(top.at("streams"), schedule);
  for (std::size_t i = 0; i < functions.size(); ++i) schedule.functions.push_back(function(functions[i]));
  for (std::size_t i = 0; i < objects.size(); ++i) {
    ScheduleObject object;
    object.memory = static_cast<MemoryKind>(objects[i].at("memory").one_of(kMemoryKindNames));
    object.size = objects[i].at("size").number(kMostBytes);
    object.step_local = objects[i].at("step_local").boolean();
    object.plan_offset = objects[i].at("plan_offset").number(kMostBytes);
    schedule.objects.push_back(object);
  }
  for (std::size_t i = 0; i < functions.size(); ++i) code_of(functions[i], schedule, schedule.functions[i]);
  if (top.has("carries")) schedule.carries = top.at("carries").boolean();
  read_choices(top, schedule);
  if (top.has("textures")) schedule.textures = top.at("textures").boolean();
  if (ops.size() == 0) ops.fail("is empty");
  read_kinds(top, ops.size(), schedule);
  std::uint64_t params = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    schedule.ops.push_back(read_op(ops[i], schedule));
    const ScheduleOp& op = schedule.ops.back();
    if (op.kind == CallKind::launch && op.submit == Submit::graph)
      params += param_bytes(schedule.functions[op.function]) + 16;
    if (params > kMostParamsTogether) ops[i].fail("together with those before it has more than 1 GiB of parameters");
  }
  for (std::uint32_t s = 0; s < schedule.streams.size(); ++s) {
    if (std::none_of(schedule.ops.begin(), schedule.ops.end(), [&](const ScheduleOp& op) { return op.stream == s; }))
      top.at("streams")[s].fail("has no op");
  }
  std::vector<std::uint32_t> place(schedule.ops.size(), kNone);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    read_segment(segments[i], schedule, static_cast<std::uint32_t>(i), place);
  }
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const ScheduleOp& op = schedule.ops[i];
    const auto outside = [&](const ScheduleSegment& segment) { return i < segment.first || i > segment.last; };
    if (is_held(op.submit) && (op.segment >= schedule.segments.size() || outside(schedule.segments[op.segment])))
      ops[i].at("segment").fail("names no segment that holds the op");
  }
  check_kinds(schedule, source);
  check_plan(schedule, source);
  return schedule;
}

Schedule read_schedule(const std::string& path) {
  std::string text;
  const int error = read_quiet(path.c_str(), kMostFileBytes, text);
  if (error == EFBIG) throw ScheduleError(path + ": is no schedule (too large)");
  if (error == ENOMEM || error == EIO || error == EISDIR)
    throw ScheduleError(path + ": cannot be read: " + std::strerror(error));
  if (error != 0) throw ScheduleError(path + ": cannot be read: record and analyze first, or set NIMBLE_SCHEDULE");
  return parse_schedule(text, path);
}

}  // namespace nimble
