#include "replayer/schedule/schedule_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "nimble/internal/process/memory_reserve.h"
#include "nimble/internal/process/quiet_file.h"
#include "nimble/internal/tune.h"
#include "replayer/schedule/schedule_consistency.h"
#include "replayer/schedule/schedule_parts.h"

namespace nimble {

namespace {

using Json = nlohmann::json;

// No real file exceeds these; one that does is broken or hostile.
constexpr std::uint64_t kMostParamsTogether = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostFileBytes = std::uint64_t{8} << 30;

Json read_json(const std::string& text, const std::string& source) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    const auto* parse = dynamic_cast<const Json::parse_error*>(&error);
    throw ScheduleError(fmt::format("{}: not JSON{}", source, parse ? fmt::format(" (at byte {})", parse->byte) : ""));
  }
}

void check_version(const Field& field) {
  const std::uint64_t version = field.number(1'000'000);
  if (version != kScheduleVersion)
    field.fail(
        fmt::format("is {}, but this Nimble reads version {}: run nimble-analyze again", version, kScheduleVersion));
}

// What is believed of the ops. A schedule that does not say was not written by this version.
void read_beliefs(const Field& top, Schedule& schedule) {
  if (top.has("trust")) schedule.trust = top.at("trust").text();
  if (!top.has("unordered_pairs")) return;
  const Field pairs = top.at("unordered_pairs");
  const auto number = [&](Evidence evidence) {
    return pairs.at(std::string(name(evidence)).c_str()).number(kMostBytes);
  };
  schedule.freedom = {number(Evidence::exact), number(Evidence::proven), number(Evidence::declared),
                      number(Evidence::observed), pairs.at("estimated").boolean()};
}

ScheduleObject read_object(const Field& field) {
  ScheduleObject object;
  object.memory = static_cast<MemoryKind>(field.at("memory").one_of(kMemoryKindNames));
  object.size = field.at("size").number(kMostBytes);
  object.step_local = field.at("step_local").boolean();
  object.plan_offset = field.at("plan_offset").number(kMostBytes);
  return object;
}

// The results of timing the ways of submitting.
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

void read_ops(const Field& ops, const Field& streams, Schedule& schedule) {
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
      streams[s].fail("has no op");
  }
}

void read_segments(const Field& segments, const Field& ops, Schedule& schedule) {
  std::vector<std::uint32_t> place(schedule.ops.size(), kNone);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    read_segment(segments[i], schedule, static_cast<std::uint32_t>(i), place);
  }
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const ScheduleOp& op = schedule.ops[i];
    const auto outside = [&](const ScheduleSegment& segment) { return i < segment.first || i > segment.last; };
    if (is_held(op.submit) && (op.segment >= schedule.segments.size() || outside(schedule.segments[op.segment])))
      ops[i].at("segment").fail("does not name a segment that holds the op");
  }
}

}  // namespace

Schedule parse_schedule(const std::string& text, const std::string& source) {
  if (text.empty()) throw ScheduleError(source + ": the file is empty");
  Json json;
  const JsonEnds ends(json);
  json = read_json(text, source);
  const Field top(json, "", source);
  check_version(top.at("nimble_schedule"));
  Schedule schedule;
  schedule.policy = top.at("policy").text();
  schedule.trace_digest = top.at("trace_digest").text();
  schedule.arena_bytes = top.at("arena_bytes").number(kMostBytes);
  read_beliefs(top, schedule);
  const Field functions = top.at("functions"), objects = top.at("objects"), ops = top.at("ops"),
              segments = top.at("segments"), streams = top.at("streams");
  read_streams(streams, schedule);
  for (std::size_t i = 0; i < functions.size(); ++i) schedule.functions.push_back(read_function(functions[i]));
  for (std::size_t i = 0; i < objects.size(); ++i) schedule.objects.push_back(read_object(objects[i]));
  for (std::size_t i = 0; i < functions.size(); ++i) read_code(functions[i], schedule, schedule.functions[i]);
  if (top.has("carries")) schedule.carries = top.at("carries").boolean();
  read_choices(top, schedule);
  if (top.has("textures")) schedule.textures = top.at("textures").boolean();
  if (ops.size() == 0) ops.fail("is empty");
  read_kinds(top, ops.size(), schedule);
  read_ops(ops, streams, schedule);
  read_segments(segments, ops, schedule);
  check_kinds(schedule, source);
  check_plan(schedule, source);
  return schedule;
}

Schedule read_schedule(const std::string& path) {
  std::string text;
  const int error = read_quiet(path.c_str(), kMostFileBytes, text);
  if (error == EFBIG) throw ScheduleError(path + ": is not a schedule (too large)");
  if (error == ENOMEM || error == EIO || error == EISDIR)
    throw ScheduleError(path + ": cannot be read: " + std::strerror(error));
  if (error != 0) throw ScheduleError(path + ": cannot be read: record and analyze first, or set NIMBLE_SCHEDULE");
  return parse_schedule(text, path);
}

}  // namespace nimble
