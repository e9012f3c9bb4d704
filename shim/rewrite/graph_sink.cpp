#include "shim/rewrite/graph_sink.h"

#include <exception>
#include <string>
#include <utility>

#include "shim/record/observers/probe/probe_observer.h"
#include "shim/rewrite/context_bounce.h"
#include "shim/rewrite/context_wait.h"
#include "shim/state/device_reader.h"

namespace nimble::shim {

namespace {

// Whether the current call was known to end a context before the driver saw it.
thread_local bool t_context_ends __attribute__((tls_model("initial-exec"))) = false;

}  // namespace

GraphSink::GraphSink(GraphOptions options, CallContext& context)
    : context_(context),
      log_(std::move(options.log)),
      functions_(context),
      captures_(context),
      dry_runs_(captures_),
      pool_(context),
      memory_(context),
      recordings_(options, context, captures_, requests_, log_),
      graphs_(log_),
      onlookers_(context, graphs_, log_),
      shortage_(context, pool_, requests_, options.probe, log_),
      allocator_({context, pool_, captures_, shortage_, graphs_, memory_, recordings_, functions_, log_}),
      workspaces_(pool_, captures_, shortage_, allocator_, log_),
      memory_return_({context, pool_, captures_, shortage_, allocator_, graphs_, functions_, log_}),
      fill_(context, captures_),
      preparation_(std::move(options.rules), options.trust, options.tune,
                   {pool_, requests_, dry_runs_, memory_, recordings_, graphs_, onlookers_, functions_, log_}),
      launcher_({pool_, captures_, dry_runs_, graphs_, onlookers_, recordings_, allocator_, memory_return_, log_}) {}

GraphSink::~GraphSink() = default;

// ---- the program's driver calls ----

Answer GraphSink::before(Call& call) noexcept {
  recordings_.next_call();
  try {
    if (const auto answer = receive(call)) {
      if (!call.shown || !call.asked.sets) return answer;
      onlookers_.comes(call);  // by the answer others may look
      onlookers_.went(call, *answer);
      return answer;
    }
    onlookers_.comes(call);
  } catch (const std::exception& error) {
    log_.failed(call, error);
  }
  const Answer answer = recordings_.before(call);
  if (answer) onlookers_.went(call, *answer);  // the driver will not have it
  return answer;
}

// Notes what the call is about to end or to change, whatever its outcome.
void GraphSink::hear(const Call& call) {
  if (call.graph.exec && call.kind != CallKind::graph_launch) edited(call);
  if (call.graph.edit == GraphEdit::destroy || call.graph.edit == GraphEdit::end) handle_ends(call);
  t_context_ends = call.kind == CallKind::context_end;
  if (t_context_ends) wait_for_helper(call.context);
  if (is_release(call.kind) || t_context_ends || call.ends == Ends::code) let_go_of(call);
  dry_runs_.ending(call);
  if (call.ends != Ends::stream) return;
  forget_captures(call);
  pool_.stream_ended(call.stream.key);
}

// What answers a call throws nothing from where it has done what it answers.
Answer GraphSink::receive(Call& call) {
  if (call.asked.question != Question::none) return allocator_.answer(call);
  hear(call);
  if (call.graph.handle && (call.graph.edit == GraphEdit::share || call.graph.edit == GraphEdit::set_other))
    if (!pool_.graphs().keep(call.graph.handle, nullptr)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (call.graph.edit == GraphEdit::add_release) return allocator_.add_release(call);
  switch (call.kind) {
    case CallKind::capture_begin:
      recordings_.capture_begins();
      captures_.wait_until_free();
      return std::nullopt;
    case CallKind::capture_end:
      if (const std::optional<std::uint64_t> capture = captures_.ends(call)) workspaces_.release(*capture, call.stream);
      return std::nullopt;
    case CallKind::alloc_async:
      return captures_.any() ? allocator_.allocate(call) : std::nullopt;
    case CallKind::free:
    case CallKind::free_async:
      return allocator_.release(call);
    case CallKind::graph_launch:
      return launcher_.launch(call);
    case CallKind::stream_synchronize:
    case CallKind::context_synchronize:
      memory_return_.wait_begins();
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

void GraphSink::after(const Call& call, CUresult result) noexcept try {
  onlookers_.went(call, result);
  recordings_.after(call, result);
  const bool good = result == CUDA_SUCCESS;
  if (call.kind == CallKind::capture_begin) capture_began(call, good);
  if (call.kind == CallKind::capture_end) capture_ended(call, good);
  // The last user of a primary context ends it, which we learn afterwards.
  if (good && call.kind == CallKind::context_end && !t_context_ends) let_go_of(call);
  if (call.kind == CallKind::context_end) pool_.context_ended(call.context, good && is_end_of_context(call));
  if (good) has_done(call);
  memory_return_.after(call, good);
} catch (const std::exception& error) {
  log_.failed(call, error);
}

void GraphSink::has_done(const Call& call) {
  if (call.kind == CallKind::graph_launch) allocator_.launched(call);
  if (call.kind == CallKind::copy || call.kind == CallKind::set) allocator_.copied(call);
  dry_runs_.submitted(call);
  if (call.unordered)
    if (const auto capture = captures_.of(call.stream.handle); capture && capture->active)
      pool_.unordered(capture->id, call.stream.key);
  has_edited(call);
  if (is_allocation(call.kind)) {
    fill_.came(call);
    memory_.came(call, graphs_.any_analysis());
    graphs_.tell(call);
  }
  if (call.shown) graphs_.tell(call);
}

// ---- captures ----

void GraphSink::capture_began(const Call& call, bool good) {
  const std::optional<CapturesUnderWay::Begun> begun = captures_.began(call, good);
  if (!begun) return;
  memory_.capture_began(begun->id);
  dry_runs_.began(begun->id);
  if (std::optional<CaptureRequests::Request> request = requests_.next())
    pool_.began(begun->id, request->serve, std::move(request->plan));
}

void GraphSink::capture_ended(const Call& call, bool good) {
  if (!good) requests_.failed();
  const std::optional<CapturesUnderWay::Begun> begun = captures_.ended(call);
  if (!begun) return;
  CUgraph const graph = good ? call.graph.handle : nullptr;
  pool_.graphs().ended(begun->id, graph, !good && begun->to_graph);
  memory_.capture_ended(begun->id, graph);
  dry_runs_.ended(begun->id, graph);
  if (!good) return;
  if (const std::optional<CaptureMemory> memory = pool_.memory_of(graph)) recordings_.came(*memory);
}

// Captures whose stream or context ends will not end by themselves.
void GraphSink::forget_captures(const Call& call) {
  for (const CapturesUnderWay::Begun& begun : captures_.forget(call)) {
    workspaces_.forget(begun.id);
    pool_.graphs().ended(begun.id, nullptr, begun.to_graph);
    memory_.capture_ended(begun.id, nullptr);
    dry_runs_.ended(begun.id, nullptr);
  }
}

bool GraphSink::learn(bool learns) {
  if (learns) {
    requests_.drop_plans();  // else this thread itself would keep a recording
    recordings_.learning_begins();
  } else {
    recordings_.catch_up();
  }
  if (requests_.learns() == learns) return false;
  if (!learns) recordings_.learning_ends();
  requests_.learn(learns);
  const bool probes = learns && recordings_.probes_learned();
  ProbeObserver::probe_this_thread(probes);
  if (probes) recordings_.wait_for_what_came_before();
  return true;
}

// ---- graphs ----

// The program changes an executable graph, or ends it.
void GraphSink::edited(const Call& call) {
  if (call.graph.edit == GraphEdit::instantiate) return;
  if (call.graph.edit == GraphEdit::destroy) {
    graphs_.remove(call.graph.exec, [&](GraphPair& graph) { onlookers_.leave(graph); });
    return;
  }
  const LiveGraphs::Shared graph = graphs_.find(call.graph.exec);
  if (!graph) return;
  if (call.graph.edit == GraphEdit::update) graph->forget_transient();
  graph->facts().writes(std::nullopt);
  const bool is_news = graph->keep("the program has changed it");
  onlookers_.is_changed(*graph);
  if (is_news)
    log_.say("graph " + std::to_string(graph->number()) +
             ": the program's own is launched from now on: the program has changed it");
}

// The driver has done so.
void GraphSink::has_edited(const Call& call) {
  switch (call.graph.edit) {
    case GraphEdit::instantiate:
      pool_.graphs().instantiated(call.graph.handle, call.graph.exec);
      preparation_.instantiated(call);
      break;
    case GraphEdit::update:
      pool_.graphs().updated(call.graph.handle, call.graph.exec);
      break;
    case GraphEdit::share:
    case GraphEdit::set_other:
      if (call.graph.handle) pool_.graphs().shared(call.graph.handle);
      break;
    default:
      break;
  }
}

// Before the driver knows: from then on another thread may get the same handle. If the driver refuses the call, the
// handle is not a graph's, or the program is broken anyway.
void GraphSink::handle_ends(const Call& call) {
  if (call.graph.edit == GraphEdit::destroy) {
    pool_.graphs().destroyed(call.graph.exec);
    return;
  }
  pool_.graphs().destroyed(call.graph.handle);
  memory_.destroyed(call.graph.handle);
  dry_runs_.destroyed(call.graph.handle);
}

// Something that graphs depend on is about to end.
void GraphSink::let_go_of(const Call& call) {
  memory_.is_about_to_end(call);
  graphs_.tell(call);
  if (call.kind != CallKind::context_end) return;
  pool_.context_ends(call.context);
  forget_captures(call);
}

std::optional<GraphStatus> GraphSink::status(CUgraphExec exec) {
  if (!exec) exec = requests_.last();
  const LiveGraphs::Shared graph = graphs_.find(exec);
  if (!graph) return std::nullopt;
  return graph->status(exec);
}

std::optional<bool> GraphSink::writes_only(CUgraphExec exec, const std::vector<TraceProbe::Range>& ranges) {
  const LiveGraphs::Shared graph = graphs_.find(exec);
  if (!graph) return std::nullopt;
  std::string what_else;
  const bool only = graph->facts().writes_only(ranges, what_else);
  if (!only)
    log_.say("graph " + std::to_string(graph->number()) + " may write to memory that is not listed: " + what_else);
  return only;
}

bool GraphSink::keep(CUgraphExec exec) {
  const LiveGraphs::Shared graph = graphs_.find(exec ? exec : requests_.last());
  if (graph) graph->keep("the program asked for it");
  return graph != nullptr;
}

// ---- the rest ----

void GraphSink::mark(bool begins, const char* name, std::uint32_t thread) noexcept {
  if (begins) steps_marked_.fetch_add(1, std::memory_order_relaxed);
  recordings_.mark(begins, name, thread);
}

SinkReport GraphSink::report() {
  SinkReport report;
  report.phase = recordings_.is_recording() ? SinkPhase::recording : SinkPhase::aside;
  report.counters.steps_marked = steps_marked_.load(std::memory_order_relaxed);
  report.counters.graph_launches = launcher_.launches();
  report.counters.recordings = 1;
  return report;
}

bool GraphSink::is_idle(CUstream stream) const {
  if (captures_.any()) return false;
  const auto ask = reinterpret_cast<decltype(&::cuStreamQuery)>(context_.driver_symbol("cuStreamQuery"));
  const RelaxedCaptures relaxed(context_);  // one may begin meanwhile, and the query would invalidate it
  return ask && ask(stream) == CUDA_SUCCESS;
}

bool GraphSink::settle() {
  if (captures_.count() != 0) return false;
  const RelaxedCaptures relaxed(context_);  // another thread may begin one meanwhile
  if (!shim::settle(context_)) return false;
  graphs_.each([](GraphPair& graph) { graph.driver_settled(); });
  return true;
}

}  // namespace nimble::shim
