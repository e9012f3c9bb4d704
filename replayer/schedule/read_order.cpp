// Reads a schedule's streams, its kinds of step, and its segments with their order.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "replayer/schedule/schedule_parts.h"

namespace nimble {

void read_streams(const Field& streams, Schedule& schedule) {
  if (streams.size() == 0) streams.fail("is empty");
  if (streams.size() > kMaxStreams) streams.fail(fmt::format("has more than {} streams", kMaxStreams));
  schedule.streams.clear();
  for (std::size_t i = 0; i < streams.size(); ++i) {
    ScheduleStream stream;
    stream.kind = static_cast<StreamKind>(streams[i].at("kind").one_of(kStreamKindNames));
    stream.forked = streams[i].at("forked").boolean();
    if (stream.kind == StreamKind::per_thread) streams[i].at("kind").fail("cannot be replayed");
    // Work that waits for all streams of a kind must be ordered after the graphs, which run on the first stream.
    const auto rank = [](StreamKind kind) {
      return kind == StreamKind::legacy ? 0 : kind == StreamKind::blocking ? 1 : 2;
    };
    if (i > 0 && rank(stream.kind) < rank(schedule.streams.front().kind))
      streams[i].at("kind").fail("must be that of the first stream, or one that is ordered with less");
    schedule.streams.push_back(stream);
  }
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
      branches[i][0].fail("does not follow the previous branch, or leaves out ops");
    if (branch.after != kNone && branch.after >= branch.first) branches[i][1].fail("is not an op of an earlier branch");
    schedule.branches.push_back(branch);
  }
  if (schedule.branches.empty()) branches.fail("is empty");
  if (ends.size() == 0 || ends.size() > kMaxKinds) ends.fail(fmt::format("does not have 1 to {} ops", kMaxKinds));
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const std::uint32_t end = ends[i].index(ops);
    if (std::find(schedule.ends.begin(), schedule.ends.end(), end) != schedule.ends.end()) ends[i].fail("occurs twice");
    schedule.ends.push_back(end);
  }
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
      f.fail("is not a node of this segment");
    return op;
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::uint32_t op = member(order[i]);
    if (place[op] != kNone) order[i].fail("occurs twice");
    place[op] = static_cast<std::uint32_t>(i);
    segment.order.push_back(op);
  }
  const Field edges = field.at("edges");
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].size() != 2) edges[i].fail("is not a pair");
    const std::uint32_t from = member(edges[i][0]), to = member(edges[i][1]);
    // Program order is a topological order of every true dependency, so this also rules out cycles.
    if (from >= to) edges[i].fail("does not go from an earlier to a later op");
    if (place[from] >= place[to]) edges[i].fail("is against \"order\"");
    segment.edges.push_back({from, to});
  }
  schedule.segments.push_back(std::move(segment));
}

}  // namespace nimble
