#include "shim/graphs/graph_sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <map>
#include <thread>
#include <utility>

#include "replayer/current_context.h"
#include "shim/auto/make_schedule.h"
#include "shim/decode/entry.h"
#include "shim/graphs/program_graph.h"

namespace nimble::shim {

namespace {

// The capture that the call at hand may end.
thread_local std::optional<GraphSink::Capturing> t_ending __attribute__((tls_model("initial-exec")));

// How long an analysis waits for the recording to be written: its writer looks twenty times a second.
constexpr std::chrono::milliseconds kPatience{2000};
constexpr std::chrono::microseconds kLook{200};

// Which of the two is faster.
std::string text(const Tuner& tuner) {
  const auto us = [&](Way way) {
    const double median = tuner.medians()[static_cast<std::size_t>(way)];
    return median < 0 ? std::string("not timed") : fmt::format("{:.1f} us", median);
  };
  return fmt::format("the {} is launched: {} a launch; the program's own {}",
                     tuner.settled() == Way::schedule ? "rewritten one" : "program's own", us(Way::schedule),
                     us(Way::own));
}

bool is_release(CallKind kind) { return kind == CallKind::free || kind == CallKind::free_async; }

}  // namespace

// An executable graph of the program's for which there is another.
struct GraphSink::Graph {
  Graph(const GraphApi& api, const DriverApi& driver, Tune tune, std::uint64_t place)
      : number(place), rewritten(api), tuner(tune), clock(driver) {
    tuner.exclude(Way::one_stream);
  }

  // Whether the call releases memory that its nodes touch.
  bool uses(const Call& call) const {
    const auto first = std::lower_bound(memory.begin(), memory.end(), call.address);
    return first != memory.end() && (*first == call.address || *first - call.address < call.size);
  }

  const std::uint64_t number;  // for the log
  // Constant once it is in the table.
  std::vector<std::uint64_t> memory;  // where what its nodes touch begins, but for the pool's; ascending
  CUcontext context = nullptr;
  std::uint32_t nodes = 0, streams = 0;

  std::mutex mutex;  // guards all below
  RewrittenGraph rewritten;
  Tuner tuner;
  StepClock clock;
  std::uint32_t decisions = 0;
  bool launched = false, last_was_rewritten = false;
  std::uint64_t last_stream = 0;  // key of the stream of the last launch
  std::string stale;              // why it is not launched any more
};

GraphSink::GraphSink(GraphOptions options, CallContext& context)
    : options_(std::move(options)),
      context_(context),
      store_(std::make_shared<TraceStore>(options_.limit_bytes)),
      recorder_({.path = "NIMBLE_GRAPHS",
                 .probe = true,
                 .probe_limit_bytes = options_.probe_limit_bytes,
                 .probe_first = options_.probe_first,
                 .store = store_,
                 .probe_on_request = !options_.probe},
                context),
      pool_(context) {}

GraphSink::~GraphSink() = default;

// ---- the program's driver calls ----

std::optional<CUresult> GraphSink::before(Call& call) noexcept try {
  if (const auto answer = receive(call)) return answer;
  return recorder_.before(call);
} catch (const std::exception& error) {
  options_.log(ReplayLog::warning, std::string(call.symbol) + ": " + error.what());
  return recorder_.before(call);
}

std::optional<CUresult> GraphSink::receive(Call& call) {
  if (call.edit != GraphEdit::none) edited(call);
  if (is_release(call.kind) || call.kind == CallKind::context_end || call.ends != Ends::nothing) let_go_of(call);
  switch (call.kind) {
    case CallKind::capture_begin:
      captures_.fetch_add(1, std::memory_order_relaxed);
      return std::nullopt;
    case CallKind::capture_end: {
      // Which capture that is nobody can ask once it has ended.
      t_ending = capturing(call);
      return std::nullopt;
    }
    case CallKind::alloc_async:
      return captures_.load(std::memory_order_relaxed) > 0 ? allocate(call) : std::nullopt;
    case CallKind::free_async:
      return release(call);
    case CallKind::graph_launch:
      return launch(call);
    default:
      return std::nullopt;
  }
}

void GraphSink::after(const Call& call, CUresult result) noexcept try {
  recorder_.after(call, result);
  const bool good = result == CUDA_SUCCESS;
  std::vector<CapturePool::Slot> gone;
  if (call.kind == CallKind::capture_begin) {
    if (!good) captures_.fetch_sub(1, std::memory_order_relaxed);
    const std::optional<Capturing> capture = good ? capturing(call) : std::nullopt;
    const std::lock_guard lock(threads_mutex_);
    OfThread& thread = threads_[call.thread];
    if (capture && thread.plan) {
      pool_.began(capture->id, CapturePool::Serve::planned, std::exchange(thread.plan, nullptr));
    } else if (capture && thread.learns) {
      pool_.began(capture->id, CapturePool::Serve::once, nullptr);
    }
  }
  // It may be the end of none, and a capture may go on after a call that should have ended it.
  if (call.kind == CallKind::capture_end && t_ending && !capturing(call)) {
    captures_.fetch_sub(1, std::memory_order_relaxed);
    pool_.ended(t_ending->id, good ? call.graph : nullptr, gone);
    if (good)
      if (const std::optional<CaptureMemory> memory = pool_.memory_of(call.graph)) record_memory(*memory);
  }
  if (good) {
    switch (call.edit) {
      case GraphEdit::instantiate:
        pool_.instantiated(call.graph, call.exec);
        rewrite(call);
        break;
      case GraphEdit::update:
        pool_.instantiated(call.graph, call.exec);
        break;
      case GraphEdit::destroy:
        pool_.destroyed(call.exec, gone);
        break;
      case GraphEdit::end:
        pool_.destroyed(call.graph, gone);
        break;
      case GraphEdit::share:
      case GraphEdit::set_other:
        if (call.graph) pool_.shared(call.graph);
        break;
      default:
        break;
    }
  }
  forget(gone);
} catch (const std::exception& error) {
  try {
    options_.log(ReplayLog::warning, std::string(call.symbol) + ": " + error.what());
  } catch (...) {
  }
}

std::optional<GraphSink::Capturing> GraphSink::capturing(const Call& call) const {
  if (!call.has_stream) return std::nullopt;
  const auto ask =
      reinterpret_cast<decltype(&::cuStreamGetCaptureInfo_v2)>(context_.driver_symbol("cuStreamGetCaptureInfo_v2"));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  Capturing found;
  cuuint64_t id = 0;
  if (!ask || ask(call.stream.handle, &status, &id, &found.graph, nullptr, nullptr) != CUDA_SUCCESS ||
      status == CU_STREAM_CAPTURE_STATUS_NONE)
    return std::nullopt;
  found.id = id;
  return found;
}

std::size_t GraphSink::count_nodes(CUgraph graph) const {
  std::size_t count = 0;
  const auto ask = reinterpret_cast<decltype(&::cuGraphGetNodes)>(context_.driver_symbol("cuGraphGetNodes"));
  if (ask && graph) ask(graph, nullptr, &count);
  return count;
}

// ---- memory of captures ----

// What is recorded of our own doing.
void GraphSink::record(Call call) {
  call.traced = true;
  call.thread = thread_index();
  recorder_.before(call);
  recorder_.after(call, CUDA_SUCCESS);
}

std::optional<CUresult> GraphSink::allocate(Call& call) {
  if (call.own_pool) return std::nullopt;
  const std::optional<Capturing> capture = capturing(call);
  if (!capture) return std::nullopt;
  const std::optional<CapturePool::Slot> slot =
      pool_.allocate(capture->id, call.stream.key, count_nodes(capture->graph), call.size);
  if (!slot) return std::nullopt;
  call.address = slot->address;
  return CUDA_SUCCESS;
}

// Where the release is captured it would be done when the graph runs: nothing is, here and there.
std::optional<CUresult> GraphSink::release(const Call& call) {
  if (!pool_.holds(call.address)) return std::nullopt;
  std::optional<std::size_t> nodes;
  if (captures_.load(std::memory_order_relaxed) > 0)
    if (const std::optional<Capturing> capture = capturing(call)) nodes = count_nodes(capture->graph);
  std::vector<CapturePool::Slot> gone;
  if (!pool_.release(call.address, call.stream.key, nodes, gone)) return std::nullopt;
  forget(gone);
  return CUDA_SUCCESS;
}

// The memory of a capture as whoever looks at anything but its nodes may take it: as it is while no graph runs.
void GraphSink::record_memory(const CaptureMemory& memory) {
  const auto there = [&](std::uint64_t address, std::uint64_t size) {
    Call allocation;
    allocation.symbol = "memory of a captured graph";
    allocation.kind = CallKind::alloc;
    allocation.memory = MemoryKind::device;
    allocation.address = address;
    allocation.size = size;
    record(allocation);
  };
  const auto in_block = [&](std::uint64_t address) { return address - memory.block < memory.block_bytes; };
  std::map<std::uint64_t, std::uint64_t> slots;  // the largest that was at an address
  for (const CaptureMemory::Event& event : memory.events)
    if (!in_block(event.address)) slots[event.address] = std::max(slots[event.address], event.size);
  for (const auto& [address, size] : slots) there(address, size);
  if (memory.block) there(memory.block, memory.block_bytes);
}

void GraphSink::forget(const std::vector<CapturePool::Slot>& gone) {
  for (const CapturePool::Slot& slot : gone) {
    Call release;
    release.symbol = "memory of a captured graph";
    release.kind = CallKind::free;
    release.address = slot.address;
    record(release);
  }
}

// ---- graphs ----

std::shared_ptr<GraphSink::Graph> GraphSink::find(CUgraphExec exec) const {
  const std::shared_lock lock(graphs_mutex_);
  const auto found = graphs_.find(exec);
  return found == graphs_.end() ? nullptr : found->second;
}

void GraphSink::rewrite(const Call& call) {
  std::call_once(load_, [&] { ready_ = !api_.load(context_) && !driver_.load(context_, false); });
  if (!ready_) return;
  const std::uint64_t number = seen_.fetch_add(1, std::memory_order_relaxed) + 1;
  auto made = std::make_shared<Graph>(api_, driver_, options_.tune, number);
  made->stale = rewrite(call.graph, *made);
  if (made->stale.empty()) {
    rewritten_.fetch_add(1, std::memory_order_relaxed);
  } else {
    options_.log(ReplayLog::info, "graph " + std::to_string(number) + " stays as it is: " + made->stale);
  }
  {
    const std::lock_guard lock(threads_mutex_);
    threads_[thread_index()].last = call.exec;
  }
  const std::unique_lock lock(graphs_mutex_);
  graphs_[call.exec] = std::move(made);
}

std::string GraphSink::rewrite(CUgraph graph, Graph& made) {
  const ProgramGraph original(api_, graph);
  if (!original.why_not().empty()) return original.why_not();
  if (original.nodes().size() < 2) return "it holds no two nodes";
  const std::optional<CaptureMemory> memory = pool_.memory_of(graph);
  if (memory && memory->kind == CaptureMemory::Kind::broken) return "the capture did not keep to its plan";
  const bool with_memory = memory && memory->kind == CaptureMemory::Kind::once;
  if (with_memory && !original.in_order_of_creation()) return "its nodes stand in another order than they came";
  const std::lock_guard one_at_a_time(analysis_mutex_);
  const Recorded recorded = record_nodes(original, with_memory ? &*memory : nullptr, made.number);
  if (!recorded.why_not.empty()) return recorded.why_not;
  const GraphSchedule found = graph_schedule(store_->text(), recorded.place, options_.rules);
  if (with_memory) {
    const std::lock_guard lock(threads_mutex_);
    threads_[thread_index()].made = plan_of(*memory, found);
  }
  if (!found.why_not.empty()) return found.why_not;
  made.context = original.context();
  for (const TraceProbe::Range& used : found.memory)
    if (!pool_.holds(used.address)) made.memory.push_back(used.address);
  made.nodes = static_cast<std::uint32_t>(original.nodes().size());
  made.streams = found.schedule.segments.front().lanes;
  const CurrentContext current(driver_, made.context);
  const CUresult result = made.rewritten.build(original, found.schedule, recorded.node);
  if (result != CUDA_SUCCESS) return "the driver refuses it (error " + std::to_string(result) + ")";
  options_.log(ReplayLog::info, "graph " + std::to_string(made.number) + ": " +
                                    std::to_string(original.nodes().size()) + " nodes, " + found.text);
  return {};
}

// The nodes as ops, one behind the other: what they do when the graph is launched. With memory, what the capture has
// allocated and released as ops among them.
GraphSink::Recorded GraphSink::record_nodes(const ProgramGraph& original, const CaptureMemory* memory,
                                            std::uint64_t number) {
  Recorded result;
  const StreamRef stream{nullptr, reinterpret_cast<std::uint64_t>(original.context()) | 1};
  const auto op = [&](Call call, std::uint32_t node) {
    call.stream = stream;
    call.has_stream = true;
    record(call);
    result.node.push_back(node);
  };
  const std::string name = "graph " + std::to_string(number);
  recorder_.mark(true, name.c_str(), thread_index());
  result.place.first_seq = recorder_.calls();
  auto event = memory ? memory->events.begin() : std::vector<CaptureMemory::Event>::const_iterator();
  const auto events_up_to = [&](std::size_t place) {
    for (; memory && event != memory->events.end() && event->node <= place; ++event) {
      if (std::binary_search(memory->lasting.begin(), memory->lasting.end(), event->address)) continue;
      Call call;
      call.symbol = "memory of a graph";
      call.kind = event->released ? CallKind::free_async : CallKind::alloc_async;
      call.memory = MemoryKind::stream_ordered;
      call.address = event->address;
      call.size = event->size;
      op(call, kNone);
    }
  };
  for (std::uint32_t node = 0; node < original.nodes().size(); ++node) {
    events_up_to(original.nodes()[node].place);
    op(original.nodes()[node].call, node);
  }
  events_up_to(std::numeric_limits<std::size_t>::max());
  result.place.last_seq = recorder_.calls() - 1;
  result.place.ops = static_cast<std::uint32_t>(result.node.size());
  recorder_.mark(false, nullptr, thread_index());
  const std::uint64_t pushed = recorder_.pushed();
  if (memory) record_memory(*memory);
  const auto since = std::chrono::steady_clock::now();
  while (recorder_.written() < pushed && !store_->full()) {
    if (std::chrono::steady_clock::now() - since > kPatience) {
      result.why_not = "the recording is not written";
      return result;
    }
    std::this_thread::sleep_for(kLook);
  }
  if (store_->full()) result.why_not = "the recording is full (NIMBLE_AUTO_LIMIT)";
  return result;
}

// What the memory plan of the schedule makes of the capture's allocations.
std::shared_ptr<const CapturePlan> GraphSink::plan_of(const CaptureMemory& memory, const GraphSchedule& schedule) {
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

bool GraphSink::learn(bool learns) {
  const std::lock_guard lock(threads_mutex_);
  if (std::exchange(threads_[thread_index()].learns, learns) == learns) return false;
  Recorder::probe_this_thread(learns);
  return true;
}

bool GraphSink::capture_again() {
  const std::lock_guard lock(threads_mutex_);
  OfThread& thread = threads_[thread_index()];
  thread.plan = std::exchange(thread.made, nullptr);
  return thread.plan != nullptr;
}

std::optional<CUresult> GraphSink::launch(Call& call) {
  // Where it is captured it becomes a part of another, as the program has made it.
  if (captures_.load(std::memory_order_relaxed) > 0 && capturing(call)) {
    pool_.shared(call.exec);
    return std::nullopt;
  }
  const std::shared_ptr<Graph> graph = find(call.exec);
  if (!graph) return std::nullopt;
  const std::lock_guard lock(graph->mutex);
  if (!graph->stale.empty()) return std::nullopt;
  const Tuner::Step next = graph->tuner.next();
  bool rewritten = next.way == Way::schedule;
  bool tried =
      captures_.load(std::memory_order_relaxed) == 0;  // a capture forbids asking whether an event has happened
  // The driver keeps launches of one executable graph apart, but knows nothing of two: these follow each other on one
  // stream alone.
  if (graph->launched && graph->last_was_rewritten != rewritten && graph->last_stream != call.stream.key) {
    rewritten = graph->last_was_rewritten;
    tried = false;
  }
  graph->launched = true;
  graph->last_was_rewritten = rewritten;
  graph->last_stream = call.stream.key;
  launches_.fetch_add(rewritten, std::memory_order_relaxed);
  const CurrentContext current(driver_, graph->context);
  const bool timed = tried && next.timed && !graph->clock.full();
  recorder_.before(call);
  if (timed) graph->clock.begin(next.way, call.stream.handle);
  CUresult result =
      rewritten ? graph->rewritten.launch(call.stream.handle) : api_.cuGraphLaunch_(call.exec, call.stream.handle);
  if (timed) graph->clock.end(call.stream.handle);
  recorder_.after(call, result);
  if (tried) {
    graph->clock.read([&](std::uint32_t, Way way, double us) { graph->tuner.add(way, us); });
    graph->tuner.done(graph->clock.late());
  }
  if (graph->tuner.decisions() != graph->decisions) {
    graph->decisions = graph->tuner.decisions();
    options_.log(ReplayLog::info, "graph " + std::to_string(graph->number) + ": " + text(graph->tuner));
  }
  return result;
}

// The program changes an executable graph, or ends it.
void GraphSink::edited(const Call& call) {
  if (!call.exec || call.edit == GraphEdit::instantiate) return;
  const std::shared_ptr<Graph> graph = find(call.exec);
  if (!graph) return;
  {
    const std::lock_guard lock(graph->mutex);  // until a launch that is under way is made
    if (call.edit != GraphEdit::destroy && graph->stale.empty())
      options_.log(ReplayLog::info, "graph " + std::to_string(graph->number) + " is the program's own: it is changed");
    if (graph->stale.empty()) graph->stale = "it is changed";
  }
  if (call.edit != GraphEdit::destroy) return;
  const std::unique_lock lock(graphs_mutex_);
  graphs_.erase(call.exec);
}

// What graphs rest on is about to go.
void GraphSink::let_go_of(const Call& call) {
  const std::shared_lock lock(graphs_mutex_);
  for (const auto& [exec, graph] : graphs_) {
    if (is_release(call.kind) && !graph->uses(call)) continue;
    const std::lock_guard its_lock(graph->mutex);
    if (call.ends == Ends::stream && graph->last_stream == call.stream.key) graph->last_stream = 0;
    const bool ends = call.kind == CallKind::context_end && (!call.context || call.context == graph->context);
    if (ends) graph->rewritten.abandon();
    if (!graph->stale.empty()) continue;
    if (ends) graph->stale = "its context has ended";
    if (call.ends == Ends::code) graph->stale = "code was unloaded";
    if (is_release(call.kind)) graph->stale = "its memory was released";
  }
  if (call.kind == CallKind::context_end) pool_.context_ended(call.context);
}

std::optional<GraphStatus> GraphSink::status(CUgraphExec exec) {
  if (!exec) {
    const std::lock_guard lock(threads_mutex_);
    exec = threads_[thread_index()].last;
  }
  const std::shared_ptr<Graph> graph = find(exec);
  if (!graph) return std::nullopt;
  const std::lock_guard lock(graph->mutex);
  GraphStatus status;
  status.exec = exec;
  status.nodes = graph->nodes;
  status.streams = graph->streams;
  status.own_us = graph->tuner.medians()[static_cast<std::size_t>(Way::own)];
  status.rewritten_us = graph->tuner.medians()[static_cast<std::size_t>(Way::schedule)];
  status.text = graph->stale;
  using State = GraphStatus::State;
  const bool decided = graph->tuner.decisions() != 0 || options_.tune == Tune::off;
  const bool own = graph->tuner.decisions() != 0 && graph->tuner.settled() == Way::own;
  status.state = !graph->stale.empty() ? State::kept : !decided ? State::trying : own ? State::own : State::rewritten;
  return status;
}

// ---- the rest ----

void GraphSink::mark(bool begins, const char* name, std::uint32_t thread) noexcept {
  if (begins) steps_marked_.fetch_add(1, std::memory_order_relaxed);
  recorder_.mark(begins, name, thread);
}

SinkReport GraphSink::report() {
  SinkReport report;
  report.phase = store_->full() ? SinkPhase::aside : SinkPhase::recording;
  report.counters.steps_marked = steps_marked_.load(std::memory_order_relaxed);
  report.counters.graph_launches = launches_.load(std::memory_order_relaxed);
  report.counters.recordings = 1;
  return report;
}

// For people who want to see why: nimble-analyze takes the graphs for marked steps.
void GraphSink::finish() noexcept try {
  if (options_.trace_path.empty() || finished_.exchange(true)) return;
  recorder_.finish();
  std::ofstream file(options_.trace_path, std::ios::binary);
  for (const auto& chunk : store_->text()) file << *chunk;
  file.close();
  options_.log(file.good() ? ReplayLog::info : ReplayLog::warning,
               (file.good() ? "wrote " : "cannot write ") + options_.trace_path);
} catch (...) {
}

bool GraphSink::forked() noexcept { return recorder_.forked(); }

}  // namespace nimble::shim
