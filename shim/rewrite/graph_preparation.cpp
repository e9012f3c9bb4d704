#include "shim/rewrite/graph_preparation.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "replayer/driver/current_context.h"
#include "shim/state/code/function_table.h"
#include "shim/state/contexts.h"

namespace nimble::shim {

namespace {

constexpr const char* kNothingInIt = "it has fewer than two nodes";  // not worth a line
constexpr std::size_t kMostUnknown = 4;                              // kinds of unknown nodes named in the log
constexpr const char* kReleased = "it names memory that was released since it was captured";

const TraceProbe::Range& range_of(const TraceProbe::Range& range) { return range; }
const TraceProbe::Range& range_of(const GraphSchedule::Written& written) { return written.range; }

// Without the memory that the capture has allocated.
template <class Piece>
std::vector<Piece> not_of(const std::optional<CaptureMemory>& memory, std::vector<Piece> pieces) {
  if (!memory) return pieces;
  std::erase_if(pieces, [&](const Piece& piece) {
    const TraceProbe::Range& range = range_of(piece);
    const auto holds = [&](std::uint64_t begin, std::uint64_t size) { return range.address - begin < size; };
    return std::ranges::any_of(memory->events, [&](const auto& event) { return holds(event.address, event.size); }) ||
           std::ranges::any_of(memory->blocks, [&](const auto& block) { return holds(block.base, block.size); });
  });
  return pieces;
}

std::vector<const ImageInfo*> images_of(const ProgramGraph& graph) {
  std::vector<const ImageInfo*> images;
  for (const ProgramNode& node : graph.nodes())
    if (node.call.kind == CallKind::launch) images.push_back(functions().find(node.call.launch.function).image);
  std::sort(images.begin(), images.end());
  images.erase(std::unique(images.begin(), images.end()), images.end());
  return images;
}

// Where the memory plan of a graph's schedule puts its capture's allocations; null if it has none.
std::shared_ptr<const CapturePlan> capture_plan(const CaptureMemory& memory, const GraphSchedule& schedule) {
  auto plan = std::make_shared<CapturePlan>();
  auto offset = schedule.offsets.begin();
  for (const CaptureMemory::Event& event : memory.events) {
    if (event.released) continue;
    CapturePlan::Allocation& allocation = plan->allocations.emplace_back();
    allocation.size = event.size;
    if (std::binary_search(memory.lasting.begin(), memory.lasting.end(), event.address)) continue;
    if (offset == schedule.offsets.end()) return nullptr;
    allocation.offset = *offset++;
    plan->bytes = std::max(plan->bytes, *allocation.offset + event.size);
  }
  return offset == schedule.offsets.end() ? plan : nullptr;
}

}  // namespace

void GraphPreparation::instantiated(const Call& call) {
  if (!uses_.functions.load()) return;
  const std::uint64_t number = seen_.fetch_add(1, std::memory_order_relaxed) + 1;
  uses_.requests.made(call.graph.exec);
  const GraphApi& api = uses_.functions.graphs();
  const auto made = std::make_shared<GraphPair>(api, uses_.functions.driver(), tune_, number, current_context());
  made->goes_without(uses_.dry_runs.strays_of(call.graph.handle));
  cuuint64_t flags = 0;
  if (api.cuGraphExecGetFlags_) api.cuGraphExecGetFlags_(call.graph.exec, &flags);
  LiveGraphs::Analysis analysis(uses_.graphs);
  if (const std::string why = rewrite(call.graph.handle, flags, *made); !why.empty()) {
    made->keep(why);
    if (why != kNothingInIt) uses_.log.say("graph " + std::to_string(number) + " stays as it is: " + why);
  }
  analysis.put(call.graph.exec, made, [&](GraphPair& replaced) { uses_.onlookers.leave(replaced); });
  // The device may launch it unseen, so it keeps its memory; other graphs need none until they are launched.
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
    uses_.pool.graphs().keep(nullptr, call.graph.exec);
  } else {
    made->transient(call.graph.exec, uses_.pool.graphs());
  }
}

std::string GraphPreparation::rewrite(CUgraph graph, std::uint64_t flags, GraphPair& made) {
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) return "kernels may launch it";
  const ProgramGraph original(uses_.functions.graphs(), graph);
  if (!original.why_not().empty()) return original.why_not();
  if (original.nodes().size() < 2) return kNothingInIt;
  if (uses_.memory.names_released(original)) return kReleased;
  const std::optional<CaptureMemory> memory = uses_.pool.memory_of(graph);
  if (memory && memory->kind == CaptureMemory::Kind::broken) return "the capture did not follow its plan";
  const bool with_memory = memory && memory->kind == CaptureMemory::Kind::once;
  if (with_memory && !original.in_order_of_creation()) return "its nodes are not in the order of their creation";
  const auto one_at_a_time = uses_.recordings.one_at_a_time();
  const GraphRecordings::Use recording = uses_.recordings.for_graph();
  if (!recording) return kFull;
  const GraphRecording::Nodes recorded = recording->nodes(original, with_memory ? &*memory : nullptr, made.number());
  if (!recorded.why_not.empty()) return recorded.why_not;
  const GraphSchedule found =
      graph_schedule(recording->trace(), recorded.place, recorded.given, rules_, trust_, known_);
  tell_onlookers(made, found);
  if (with_memory) uses_.requests.planned(capture_plan(*memory, found));
  for (std::size_t i = 0; i < found.unknown.size() && i < kMostUnknown; ++i)
    uses_.log.say("graph " + std::to_string(made.number()) + ": " + found.unknown[i]);
  tell_writes(made, found, memory);
  if (!found.why_not.empty()) return found.why_not;
  return build(original, recorded, found, memory, (flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0, made);
}

// Tells the observers' table which memory its nodes name, whoever allocated it; without cuDNN's own, which no one
// observes.
void GraphPreparation::tell_onlookers(GraphPair& graph, const GraphSchedule& found) {
  std::vector<MemoryRange> ranges;
  for (const TraceProbe::Range& range : found.memory) {
    const auto is_it = [&](const GraphSchedule::Written& each) { return each.range == range; };
    const bool written = !found.writes || std::ranges::any_of(*found.writes, is_it);
    if (range.bytes != 0 && !uses_.memory.is_librarys(range.address))
      ranges.push_back({range.address, range.address + range.bytes, written});
  }
  sort_and_merge(ranges);
  const bool variables =
      std::ranges::any_of(found.schedule.functions, [](const auto& function) { return !function.globals.empty(); });
  const bool is_known = found.why_not.empty() && found.unknown.empty() && !ranges.empty();
  uses_.onlookers.touches(graph, ranges, variables, is_known);
}

void GraphPreparation::tell_writes(GraphPair& graph, const GraphSchedule& found,
                                   const std::optional<CaptureMemory>& memory) const {
  if (!found.writes) return;
  std::vector<GraphSchedule::Written> written = not_of(memory, *found.writes);
  std::erase_if(written, [&](const auto& each) { return uses_.memory.is_librarys(each.range.address); });
  graph.facts().writes(std::move(written));
}

void GraphPreparation::describe(const ProgramGraph& original, const GraphSchedule& found,
                                const std::optional<CaptureMemory>& memory, GraphPair& made) const {
  GraphFacts::Nodes nodes;
  nodes.count = static_cast<std::uint32_t>(original.nodes().size());
  nodes.streams = found.schedule.segments.front().lanes;
  nodes.images = images_of(original);
  nodes.memory = not_of(memory, found.memory);
  nodes.nowhere = found.nowhere;
  std::ranges::copy_if(found.nowhere, std::back_inserter(nodes.known),
                       [&](std::uint64_t word) { return uses_.memory.is_known(word); });
  made.describe(original.context(), std::move(nodes));
}

std::string GraphPreparation::build(const ProgramGraph& original, const GraphRecording::Nodes& recorded,
                                    const GraphSchedule& found, const std::optional<CaptureMemory>& memory,
                                    bool own_priorities, GraphPair& made) {
  describe(original, found, memory, made);
  const CurrentContext current(uses_.functions.driver(), original.context());
  if (std::string why = made.rewritten().build(original, found.schedule, recorded.node, own_priorities); !why.empty())
    return why;
  if (uses_.memory.names_released(original)) return kReleased;
  if (!found.beliefs.empty()) std::call_once(beliefs_told_, [&] { uses_.log.say("graphs: " + found.beliefs); });
  uses_.log.say("graph " + std::to_string(made.number()) + ": " + std::to_string(original.nodes().size()) + " nodes, " +
                found.text);
  return {};
}

}  // namespace nimble::shim
