#include "shim/rewrite/graph_sink.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <new>
#include <thread>
#include <utility>

#include "analyzer/service.h"
#include "nimble/internal/process/not_cancelled.h"
#include "nimble/internal/process/own_file.h"
#include "replayer/driver/current_context.h"
#include "shim/record/observers/make_observers.h"
#include "shim/record/trace/trace_text.h"
#include "shim/rewrite/context_wait.h"
#include "shim/rewrite/graph/program_graph.h"
#include "shim/state/entry.h"
#include "shim/state/function_table.h"

namespace nimble::shim {

namespace {

// Whether the call at hand was known to end a context before the driver saw it.
thread_local bool t_context_ends __attribute__((tls_model("initial-exec"))) = false;
// How much was retired when the call at hand began.
thread_local std::uint64_t t_retirements __attribute__((tls_model("initial-exec"))) = 0;
// A use of the recording that was told that the call at hand begins; empty where it is recorded nowhere.
thread_local DetachedUse t_recorded __attribute__((tls_model("initial-exec")));

constexpr const char* kNothingInIt = "it holds no two nodes";  // not worth a line
constexpr std::size_t kMostThreads = 1024;
constexpr std::size_t kMostUnknown = 4;  // kinds of nodes that are named, of which nothing is known
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

bool is_release(CallKind kind) { return kind == CallKind::free || kind == CallKind::free_async; }

// Whether somebody beside the program's own work may see memory of the program's from now on.
bool others_may_reach(const Call& call) {
  return call.shown || (call.kind == CallKind::alloc && call.memory == MemoryKind::external);
}

}  // namespace

GraphSink::GraphSink(GraphOptions options, CallContext& context)
    : options_(std::move(options)),
      rules_(options_.rules),
      context_(context),
      history_(context),
      pool_(context),
      watch_(context),
      released_(context),
      onlookers_(context) {
  recording_.put(make_recording());
}

GraphSink::~GraphSink() = default;

std::unique_ptr<GraphRecording> GraphSink::make_recording() {
  ObserverOptions observers;
  observers.probe = true;
  observers.probe_limit_bytes = options_.probe_limit_bytes;
  observers.probe_first = options_.probe_first;
  observers.probe_on_request = !options_.probe;
  return std::make_unique<GraphRecording>(make_observers(observers, context_), options_.limit_bytes, captured_,
                                          context_);
}

// A recording that is full, or has so many bytes of what nobody learned from behind what somebody did, is ended, and
// one begins that knows what is allocated, but not what was done. Not in the middle of a capture, or while anybody
// learns. The analysis lock is held.
void GraphSink::record_anew(std::uint64_t unlearned_bytes) {
  const Recordings::Use old = recording_.use();
  if (old && !old->is_over() && old->store().bytes() - learned_bytes_.load(std::memory_order_relaxed) < unlearned_bytes)
    return;
  if (captures_.load(std::memory_order_relaxed) > 0) return;
  {
    const std::lock_guard lock(threads_mutex_);
    for (const auto& [number, thread] : threads_)
      if (thread.learns || !thread.plans.empty()) return;
  }
  auto next = make_recording();
  next->recorder().start();
  {
    // Whoever allocates or begins a capture meanwhile waits, so that it is in the one or in the other.
    const std::lock_guard lock(history_mutex_);
    // It would not know of the capture, and take what is captured to be done.
    if (captures_.load(std::memory_order_relaxed) > 0) return;
    next->begin_behind(history_.calls_to_record());
    recording_.put(std::move(next));
  }
  learned_bytes_.store(0, std::memory_order_relaxed);
  if (old) old->end();
}

std::uint64_t GraphSink::room_before_graph() const {
  constexpr std::uint64_t kUnlearned = std::uint64_t{256} << 10;
  const bool tells_more =
      options_.probe || !options_.trace_path.empty() || learned_bytes_.load(std::memory_order_relaxed) != 0;
  return tells_more ? std::numeric_limits<std::uint64_t>::max() : kUnlearned;
}

// A full one is of no more use to anybody, but for whoever wants to see in the end what it was. Where somebody analyzes
// a graph just now the next call does it.
void GraphSink::end_full_recording() noexcept {
  if (!options_.trace_path.empty()) return;
  const std::unique_lock one_at_a_time(analysis_mutex_, std::try_to_lock);
  if (!one_at_a_time) return;
  const Recordings::Use full = recording_.use();
  if (full && full->is_over() && recording_.end(full)) full->end();
}

// ---- the program's driver calls ----

void GraphSink::say(const std::string& text) const noexcept try {
  options_.log(ReplayLog::info, text);
} catch (...) {  // it is left unsaid
}

void GraphSink::failed(const Call& call, const std::exception& error) const noexcept try {
  options_.log(ReplayLog::warning, std::string(call.symbol) + ": " + error.what());
} catch (...) {  // no memory even for that
}

std::optional<CUresult> GraphSink::before(Call& call) noexcept {
  recording_.attach(t_recorded);  // of a call that has never come back
  try {
    if (const auto answer = receive(call)) return answer;
    look(call);
  } catch (const std::exception& error) {
    failed(call, error);
  }
  Recordings::Use present;
  try {
    present = follow(call, std::nullopt);
  } catch (const std::exception& error) {
    failed(call, error);
    present = recording_.use();
  }
  if (present && !present->is_over()) {
    auto answer = present->recorder().before(call);
    t_recorded = std::move(present).detach();
    return answer;
  }
  Recorder::skip();
  if (present) end_full_recording();
  return std::nullopt;
}

// What is allocated, and where the call is to be recorded: an allocation counts from its answer, all else from before
// that. A recording that begins meanwhile knows what was followed before, and gets what is followed later. With the
// result, empty but for allocations.
GraphSink::Recordings::Use GraphSink::follow(const Call& call, std::optional<CUresult> result) {
  if (!CallHistory::matters(call)) return result && !is_allocation(call.kind) ? Recordings::Use() : recording_.use();
  history_.prepare();
  const std::lock_guard lock(history_mutex_);
  if (result) {
    history_.after(call, *result);
  } else {
    history_.before(call);
  }
  return recording_.use();
}

// What answers a call throws nothing from where it has done what it answers.
std::optional<CUresult> GraphSink::receive(Call& call) {
  if (call.question != Question::none) return answer(call);
  if (call.exec && call.kind != CallKind::graph_launch) edited(call);
  if (call.edit == GraphEdit::destroy || call.edit == GraphEdit::end) handle_ends(call);
  t_context_ends = call.kind == CallKind::context_end;
  if (t_context_ends) wait_for_helper(call.context);
  if (is_release(call.kind) || t_context_ends || call.ends == Ends::code) let_go_of(call);
  if (rehearsals_.any()) rehearsals_.ending(call);
  if (call.ends == Ends::stream) {
    forget_captures(call);
    pool_.stream_ended(call.stream.key);
  }
  if (call.graph && (call.edit == GraphEdit::share || call.edit == GraphEdit::set_other))
    if (!pool_.keep(call.graph, nullptr)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (call.edit == GraphEdit::add_release) return add_release(call);
  switch (call.kind) {
    case CallKind::capture_begin: {
      {
        const std::lock_guard lock(history_mutex_);  // for record_anew()
        captures_.fetch_add(1);
      }
      const NotCancelled not_cancelled;
      while (waits_for_gpu_.load()) std::this_thread::sleep_for(std::chrono::microseconds(100));  // see give_back()
      return std::nullopt;
    }
    case CallKind::capture_end:
      capture_ending(call);
      return std::nullopt;
    case CallKind::alloc_async:
      return captures_.load(std::memory_order_relaxed) > 0 ? allocate(call) : std::nullopt;
    case CallKind::free:
    case CallKind::free_async:
      return release(call);
    case CallKind::graph_launch:
      return launch(call);
    case CallKind::stream_synchronize:
    case CallKind::context_synchronize:
      t_retirements = pool_.retirements();
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

void GraphSink::after(const Call& call, CUresult result) noexcept try {
  onlookers_.passed(call, result);
  const Recordings::Use begun = recording_.attach(t_recorded), present = follow(call, result);
  // Who was told that it begins is told that it has ended, full by now or not: a probe may wait for that.
  const Recordings::Use& told = is_allocation(call.kind) ? present : begun;
  if (told && (told.get() == begun.get() || !told->is_over())) told->recorder().after(call, result);
  const bool good = result == CUDA_SUCCESS;
  if (good && is_allocation(call.kind)) {
    const bool is_plain =
        call.kind == CallKind::alloc &&
        (call.memory == MemoryKind::device || call.memory == MemoryKind::pinned || call.memory == MemoryKind::managed);
    is_plain ? library_memory_.came(call.address, call.caller) : library_memory_.goes(call.address);
  }
  if (call.kind == CallKind::capture_begin) capture_began(call, good);
  if (call.kind == CallKind::capture_end) capture_ended(call, good);
  if (good && call.kind == CallKind::graph_launch) tell_launched(call.exec, call.stream.key);
  if (good) submitted(call);
  if (good && call.unordered)
    if (const std::optional<Capturing> capture = capturing(call.stream.handle); capture && capture->active)
      pool_.unordered(capture->id, call.stream.key);
  // The last user of a primary context ends it, which shows afterwards.
  if (good && call.kind == CallKind::context_end && !t_context_ends) let_go_of(call);
  if (call.kind == CallKind::context_end) pool_.context_ended(call.context, good && is_end_of_context(call));
  if (good) {
    switch (call.edit) {
      case GraphEdit::instantiate:
        pool_.instantiated(call.graph, call.exec);
        rewrite(call);
        break;
      case GraphEdit::update:
        pool_.updated(call.graph, call.exec);
        break;
      case GraphEdit::share:
      case GraphEdit::set_other:
        if (call.graph) pool_.shared(call.graph);
        break;
      default:
        break;
    }
  }
  if (good && is_allocation(call.kind)) {
    addresses_.came(call.address, call.size);
    fill(call);
    // What came while a graph was looked at was not seen in it.
    if (analyses_.load(std::memory_order_acquire) == 0) released_.came(call.address, call.size);
    tell_graphs(call);
  }
  if (good && others_may_reach(call)) tell_graphs(call);
  const auto going = [this](const std::vector<CapturePool::Slot>& slots) { gone(slots); };
  if (pool_.has_spare()) pool_.reuse(going);
  if (good && call.kind == CallKind::stream_synchronize)
    pool_.reserve().waited_for_stream(call.stream.key, t_retirements);
  if (!good || !was_waited_for(call)) return;
  pool_.waited(current_context(), t_retirements);
  if (pool_.has_retired()) pool_.sweep(t_retirements, going);
} catch (const std::exception& error) {
  failed(call, error);
}

// ---- graphs ----

std::shared_ptr<GraphPair> GraphSink::find(CUgraphExec exec) const {
  const std::shared_lock lock(graphs_mutex_);
  const auto found = graphs_.find(exec);
  return found == graphs_.end() ? nullptr : found->second;
}

// The lock is not held while the functions are looked up, which takes the dynamic loader's: threads that come at once
// all do.
bool GraphSink::load_driver() {
  if (ready_.load(std::memory_order_acquire)) return true;
  GraphApi api;
  DriverApi driver;
  if (api.load(context_) || driver.load(context_, false)) return false;
  const std::lock_guard lock(load_mutex_);
  if (ready_.load(std::memory_order_relaxed)) return true;
  api_ = api;
  driver_ = driver;
  ready_.store(true, std::memory_order_release);
  return true;
}

void GraphSink::rewrite(const Call& call) {
  if (!load_driver()) return;
  const std::uint64_t number = seen_.fetch_add(1, std::memory_order_relaxed) + 1;
  {
    const std::lock_guard lock(threads_mutex_);
    OfThread& thread = threads_[thread_index()];
    thread.last = call.exec;
    if (!thread.learns) {
      thread.made.clear();
      thread.made_to_learn = false;
    }
    thread.made.push_back(nullptr);
    // Threads come and go: of those that have nothing under way, as far as can be told, only so many are remembered.
    if (threads_.size() > kMostThreads)
      std::erase_if(threads_, [&](const auto& one) {
        const OfThread& other = one.second;
        return &other != &thread && !other.learns && other.plans.empty() && other.unplanned == 0 && !other.rehearsing;
      });
  }
  auto made = std::make_shared<GraphPair>(api_, driver_, options_.tune, number, current_context());
  onlookers_.expect();
  onlookers_.uses(*made->work(), {}, false, /*anything=*/true);  // as long as nothing is known
  made->goes_without(stray_.of(call.graph));
  cuuint64_t flags = 0;
  if (api_.cuGraphExecGetFlags_) api_.cuGraphExecGetFlags_(call.exec, &flags);
  const Missed missed(*this);
  if (const std::string why = rewrite(call.graph, flags, *made); why.empty()) {
    rewritten_.fetch_add(1, std::memory_order_relaxed);
  } else {
    made->keep(why);
    if (why != kNothingInIt) say("graph " + std::to_string(number) + " stays as it is: " + why);
  }
  const std::shared_ptr<GraphPair> pair = made;
  {
    const std::unique_lock lock(graphs_mutex_);
    missed.tell(*made);
    std::swap(graphs_[call.exec], made);  // one of the same handle that ended unseen goes without the lock
    if (made) onlookers_.leave(made->work());
  }
  // Launches that nobody sees may come of it; others of which none ever comes need no memory.
  (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) ? void(pool_.keep(nullptr, call.exec))
                                                      : void(transient(*pair, call.exec));
}

GraphSink::Missed::Missed(GraphSink& sink) : sink_(sink) {
  const std::lock_guard lock(sink.missed_mutex_);
  sink.analyses_.fetch_add(1, std::memory_order_release);
  first_ = sink.missed_.size();
}

GraphSink::Missed::~Missed() {
  const std::lock_guard lock(sink_.missed_mutex_);
  if (sink_.analyses_.fetch_sub(1, std::memory_order_release) == 1) sink_.missed_.clear();
}

// Nobody adds to them meanwhile: graphs_mutex_ is held by this thread alone.
void GraphSink::Missed::tell(GraphPair& graph) const {
  for (std::size_t i = first_; i < sink_.missed_.size(); ++i) sink_.tell(graph, sink_.missed_[i]);
}

namespace {

std::vector<const ImageInfo*> images_of(const ProgramGraph& graph) {
  std::vector<const ImageInfo*> images;
  for (const ProgramNode& node : graph.nodes())
    if (node.call.kind == CallKind::launch) images.push_back(functions().find(node.call.function).image);
  std::sort(images.begin(), images.end());
  images.erase(std::unique(images.begin(), images.end()), images.end());
  return images;
}

}  // namespace

std::string GraphSink::rewrite(CUgraph graph, std::uint64_t flags, GraphPair& made) {
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) return "kernels may launch it";
  const ProgramGraph original(api_, graph);
  if (!original.why_not().empty()) return original.why_not();
  if (original.nodes().size() < 2) return kNothingInIt;
  if (released_.is_named_by(original)) return kReleased;
  const std::optional<CaptureMemory> memory = pool_.memory_of(graph);
  if (memory && memory->kind == CaptureMemory::Kind::broken) return "the capture did not keep to its plan";
  const bool with_memory = memory && memory->kind == CaptureMemory::Kind::once;
  if (with_memory && !original.in_order_of_creation()) return "its nodes stand in another order than they came";
  const std::lock_guard one_at_a_time(analysis_mutex_);
  record_anew(room_before_graph());
  const Recordings::Use recording = recording_.use();
  if (!recording) return kFull;
  const GraphRecording::Nodes recorded = recording->nodes(original, with_memory ? &*memory : nullptr, made.number());
  if (!recorded.why_not.empty()) return recorded.why_not;
  const GraphSchedule found = graph_schedule(recording->trace(), recorded.place, recorded.given, rules_);
  names(made, found);
  if (with_memory) {
    const std::lock_guard lock(threads_mutex_);
    threads_[thread_index()].made.back() = capture_plan(*memory, found);
  }
  for (std::size_t i = 0; i < found.unknown.size() && i < kMostUnknown; ++i)
    options_.log(ReplayLog::info, "graph " + std::to_string(made.number()) + ": " + found.unknown[i]);
  if (found.writes) {
    std::vector<GraphSchedule::Written> written = not_of(memory, *found.writes);
    std::erase_if(written, [&](const auto& each) { return library_memory_.holds(each.range.address); });
    made.writes(std::move(written));
  }
  if (!found.why_not.empty()) return found.why_not;
  std::vector<std::uint64_t> known;
  std::ranges::copy_if(found.nowhere, std::back_inserter(known),
                       [&](std::uint64_t word) { return addresses_.holds(word); });
  made.describe(original.context(), static_cast<std::uint32_t>(original.nodes().size()),
                found.schedule.segments.front().lanes, images_of(original), not_of(memory, found.memory), found.nowhere,
                std::move(known));
  const CurrentContext current(driver_, original.context());
  if (std::string why = made.rewritten().build(original, found.schedule, recorded.node,
                                               (flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY) != 0);
      !why.empty())
    return why;
  if (released_.is_named_by(original)) return kReleased;
  options_.log(ReplayLog::info, "graph " + std::to_string(made.number()) + ": " +
                                    std::to_string(original.nodes().size()) + " nodes, " + found.text);
  return {};
}

std::optional<CUresult> GraphSink::launch(Call& call) {
  // Where it is captured it becomes a part of another, as the program has made it.
  if (captures_.load(std::memory_order_relaxed) > 0 && capturing(call)) {
    if (!pool_.keep(nullptr, call.exec)) return CUDA_ERROR_OUT_OF_MEMORY;
    pool_.shared(call.exec);
    return std::nullopt;
  }
  const std::shared_ptr<GraphPair> graph = find(call.exec);
  if (!graph) return std::nullopt;
  TransientMemory::Shared part;
  Recordings::Use present;
  bool is_recorded = false;
  try {
    part = transient(*graph, call.exec);
    if (!part && graph->passes()) return std::nullopt;
    present = recording_.use();
    is_recorded = present && !present->is_over();
    is_recorded ? static_cast<void>(present->recorder().before(call)) : Recorder::skip();
  } catch (const std::bad_alloc&) {
    // Its memory may be gone, and the driver launches it all the same.
    if (!graph->transient() || part) return CUDA_ERROR_OUT_OF_MEMORY;
    throw;
  }
  if (present && !is_recorded) end_full_recording();
  GraphPair::Launch made = launch_with_memory(call, *graph, part.get());
  if (is_recorded) present->recorder().after(call, made.result);
  launches_.fetch_add(made.rewritten, std::memory_order_relaxed);
  if (!made.news.empty()) say(made.news);  // which throws nothing
  try {
    if (made.result == CUDA_SUCCESS) {
      tell_launched(call.exec, call.stream.key);
      submitted(call);
    }
  } catch (const std::exception& error) {  // it is launched, and must not be once more
    failed(call, error);
  }
  return made.result;
}

// The memory that a launch of it has to bring back, if that is gone; null where there is none that goes.
TransientMemory::Shared GraphSink::transient(GraphPair& graph, CUgraphExec exec) {
  std::optional<TransientMemory::Shared> known = graph.transient();
  if (known) return *known;
  std::vector<TransientMemory::Shared> found = pool_.transient_of(exec);
  // One that several captures have made is rare enough to have all of its memory always.
  if (found.size() > 1 && pool_.keep(nullptr, exec)) found.clear();
  known = found.empty() ? nullptr : found.front();
  if (found.size() <= 1) graph.uses(known);
  return *known;
}

// The program changes an executable graph, or ends it.
void GraphSink::edited(const Call& call) {
  if (call.edit == GraphEdit::instantiate) return;
  std::shared_ptr<GraphPair> graph = find(call.exec);
  if (!graph) return;
  if (call.edit != GraphEdit::destroy) {
    if (call.edit == GraphEdit::update) graph->uses(std::nullopt);
    graph->writes(std::nullopt);
    onlookers_.uses(*graph->work(), {}, false, /*anything=*/true);
    graph->work()->is_known = false;
    if (graph->keep("it is changed"))
      options_.log(ReplayLog::info,
                   "graph " + std::to_string(graph->number()) + " is the program's own: it is changed");
    return;
  }
  const std::unique_lock lock(graphs_mutex_);
  graphs_.erase(call.exec);  // `graph` goes behind the lock
  onlookers_.leave(graph->work());
}

// Before the driver knows: from then on another thread may be given the same handle. One that the driver does not take
// is none of a graph's, or the program is past helping.
void GraphSink::handle_ends(const Call& call) {
  if (call.edit == GraphEdit::destroy) {
    pool_.destroyed(call.exec);
    return;
  }
  pool_.destroyed(call.graph);
  released_.destroyed(call.graph);
  stray_.destroyed(call.graph);
}

// What graphs rest on is about to go.
void GraphSink::let_go_of(const Call& call) {
  watch_.ends(call);
  if (call.ends == Ends::code) library_memory_.code_goes();
  tell_graphs(call);
  if (call.kind != CallKind::context_end) return;
  library_memory_.forget();
  pool_.context_ends(call.context);
  forget_captures(call);
}

// Something that graphs may rest on has changed. Those that are being analyzed hear of it when they are done.
void GraphSink::tell_graphs(const Call& call) {
  const std::shared_lock lock(graphs_mutex_);
  for (const auto& [exec, graph] : graphs_) tell(*graph, call);
  if (analyses_.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard missed_lock(missed_mutex_);
  missed_.push_back(call);
}

void GraphSink::tell(GraphPair& graph, const Call& call) {
  const auto keep = [&](const char* why) {
    if (why && graph.keep(why)) say("graph " + std::to_string(graph.number()) + " is the program's own: " + why);
  };
  if (is_release(call.kind)) graph.memory_goes(call);
  if (call.ends == Ends::code) graph.code_goes(call.image);
  if (call.kind == CallKind::context_end) graph.context_ended(call.context);
  // The program learns of the memory behind this: no launch that uses it comes before.
  if (is_allocation(call.kind) && !graph.passes()) keep(graph.memory_comes(call));
  // What is done in the program's order alone may be seen from outside from now on.
  if (others_may_reach(call)) keep("others may reach its memory now");
}

// ---- the rest ----

void GraphSink::mark(bool begins, const char* name, std::uint32_t thread) noexcept {
  if (begins) steps_marked_.fetch_add(1, std::memory_order_relaxed);
  if (const Recordings::Use present = recording_.use()) present->recorder().mark(begins, name, thread);
}

SinkReport GraphSink::report() {
  SinkReport report;
  const Recordings::Use present = recording_.use();
  report.phase = present && !present->is_over() ? SinkPhase::recording : SinkPhase::aside;
  report.counters.steps_marked = steps_marked_.load(std::memory_order_relaxed);
  report.counters.graph_launches = launches_.load(std::memory_order_relaxed);
  report.counters.recordings = 1;
  return report;
}

// For people who want to see why: nimble-analyze takes the graphs for marked steps.
void GraphSink::finish() noexcept try {
  if (options_.trace_path.empty() || finished_.exchange(true)) return;
  const Recordings::Use last = recording_.use();
  if (!last) return;
  last->recorder().finish();
  OwnFile file;
  int error = file.open(options_.trace_path);
  const auto write = [&](std::string_view text) {
    if (error == 0) error = file.write(text.data(), text.size());
  };
  for (const auto& chunk : last->store().text()) write(*chunk);
  if (!last->store().full()) {
    write(
        R"json({"ph":"M","pid":1,"tid":0,"name":"nimble.coverage","args":{"source":"none","why":"graphs were rewritten"}},)json"
        "\n");
    write(kTraceEnd);
  }
  if (error == 0) error = file.place(FileKind::trace);
  if (error != 0) {
    file.discard();
    return options_.log(ReplayLog::warning, "cannot write " + options_.trace_path + ": " + std::strerror(error));
  }
  const std::string wrote = "wrote " + file.path() + ". Next: nimble-analyze " + file.path();
  if (file.why_other().empty()) return options_.log(ReplayLog::info, wrote);
  options_.log(ReplayLog::warning, left_alone(options_.trace_path, file.why_other()) + ": " + wrote);
} catch (...) {
}

bool GraphSink::forked() noexcept {
  const Recordings::Use present = recording_.use();
  return present && present->recorder().forked();
}

}  // namespace nimble::shim
