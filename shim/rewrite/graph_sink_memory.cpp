// GraphSink: captures that go on, and the memory that the program allocates in them.
#include <algorithm>
#include <chrono>
#include <utility>

#include "replayer/driver/current_context.h"
#include "shim/driver/guard.h"
#include "shim/record/observers/probe/probe_observer.h"
#include "shim/rewrite/context_wait.h"
#include "shim/rewrite/graph_sink.h"
#include "shim/state/device_reader.h"
#include "shim/state/entry.h"
#include "shim/state/stream_table.h"

namespace nimble::shim {

namespace {

// The capture that the call at hand may end.
thread_local bool t_ending __attribute__((tls_model("initial-exec")));

}  // namespace

// ---- captures ----

std::optional<GraphSink::Capturing> GraphSink::capturing(const Call& call) const {
  return call.has_stream ? capturing(call.stream.handle) : std::nullopt;
}

std::optional<GraphSink::Capturing> GraphSink::capturing(CUstream stream) const {
  const auto ask =
      reinterpret_cast<decltype(&::cuStreamGetCaptureInfo_v2)>(context_.driver_symbol("cuStreamGetCaptureInfo_v2"));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  Capturing found;
  cuuint64_t id = 0;
  if (!ask || ask(stream, &status, &id, &found.graph, nullptr, nullptr) != CUDA_SUCCESS ||
      status == CU_STREAM_CAPTURE_STATUS_NONE)
    return std::nullopt;
  found.id = id;
  found.active = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return found;
}

std::size_t GraphSink::count_nodes(CUgraph graph) const {
  std::size_t count = 0;
  const auto ask = reinterpret_cast<decltype(&::cuGraphGetNodes)>(context_.driver_symbol("cuGraphGetNodes"));
  if (ask && graph) ask(graph, nullptr, &count);
  return count;
}

// Allocations are no work, nor are events, by which it is put into a capture.
void GraphSink::submitted(const Call& call) {
  const bool are_rehearsed = rehearsals_.any();
  if (are_rehearsed) rehearsals_.follow(call);
  if (captures_.load(std::memory_order_relaxed) == 0 && !are_rehearsed) return;
  if (!call.traced) return;  // as a setting of a kernel, of which `kind` says nothing
  switch (call.kind) {
    case CallKind::launch:
    case CallKind::copy:
    case CallKind::set:
    case CallKind::host_function:
    case CallKind::graph_launch:
    case CallKind::opaque: {
      const std::optional<Capturing> capture = capturing(call);
      const std::vector<std::uint64_t> rehearsed =
          are_rehearsed ? rehearsals_.of(call.stream.key) : std::vector<std::uint64_t>();
      stray_.submitted(call.thread, capture ? capture->id : 0, call.caller, rehearsed);
      break;
    }
    default:
      break;
  }
}

void GraphSink::capture_began(const Call& call, bool good) {
  if (!good) captures_.fetch_sub(1, std::memory_order_relaxed);
  const std::optional<Capturing> capture = good ? capturing(call) : std::nullopt;
  if (!capture) return;
  released_.began(capture->id);
  stray_.began(capture->id, call.thread);
  {
    CUcontext const context = streams().context(call.stream);
    const std::lock_guard lock(captures_mutex_);
    const Begun begun{capture->id, context, call.graph != nullptr};
    // Of one that has ended unseen there.
    if (!begun_.insert_or_assign(call.stream.key, begun).second) captures_.fetch_sub(1, std::memory_order_relaxed);
  }
  const std::lock_guard lock(threads_mutex_);
  OfThread& thread = threads_[call.thread];
  if (!thread.plans.empty()) {
    std::shared_ptr<const CapturePlan> plan = std::move(thread.plans.front());
    thread.plans.pop_front();
    const auto serve = plan ? CapturePool::Serve::planned : CapturePool::Serve::again;
    pool_.began(capture->id, serve, std::move(plan));
  } else if (thread.learns) {
    pool_.began(capture->id, CapturePool::Serve::once, nullptr);
  } else if (thread.unplanned > 0) {
    --thread.unplanned;
    pool_.began(capture->id, CapturePool::Serve::again, nullptr);
  }
}

// Whether that is so nobody can ask once it has ended.
void GraphSink::capture_ending(const Call& call) {
  t_ending = capturing(call).has_value();
  std::optional<std::uint64_t> begun;  // of one that is spoilt the driver does not tell which
  {
    const std::lock_guard lock(captures_mutex_);
    if (const auto found = begun_.find(call.stream.key); found != begun_.end()) begun = found->second.id;
  }
  if (t_ending && begun) release_workspaces(*begun, call.stream);
}

void GraphSink::capture_ended(const Call& call, bool good) {
  if (!good) {
    // Those that were to follow are for a program that goes on as it did the first time.
    const std::lock_guard lock(threads_mutex_);
    threads_[call.thread].plans.clear();
    threads_[call.thread].unplanned = 0;
  }
  // It may be the end of none, and a capture may go on after a call that should have ended it.
  if (!t_ending || capturing(call)) return;
  Begun begun;
  {
    const std::lock_guard lock(captures_mutex_);
    const auto found = begun_.find(call.stream.key);
    if (found == begun_.end()) return;
    begun = found->second;
    begun_.erase(found);
    captures_.fetch_sub(1, std::memory_order_relaxed);
  }
  pool_.ended(begun.id, good ? call.graph : nullptr, !good && begun.to_graph);
  released_.ended(begun.id, good ? call.graph : nullptr);
  stray_.ended(begun.id, good ? call.graph : nullptr);
  if (good)
    if (const std::optional<CaptureMemory> memory = pool_.memory_of(call.graph)) {
      const CapturedRanges::Ranges ranges = captured_.add(*memory);
      if (const Recordings::Use present = recording_.use()) present->there(ranges);
    }
}

// Those whose stream or context ends never come to an end of their own.
void GraphSink::forget_captures(const Call& call) {
  std::vector<std::pair<std::uint64_t, bool>> gone;
  {
    const std::lock_guard lock(captures_mutex_);
    std::erase_if(begun_, [&](const auto& one) {
      const Begun& begun = one.second;
      const bool ends = call.ends == Ends::stream ? one.first == call.stream.key
                                                  : !call.context || !begun.context || begun.context == call.context;
      if (ends) gone.emplace_back(begun.id, begun.to_graph);
      return ends;
    });
    captures_.fetch_sub(static_cast<int>(gone.size()), std::memory_order_relaxed);
  }
  for (const auto& [id, to_graph] : gone) {
    for (const std::uint64_t slot : workspaces_.end(id)) pool_.release(slot, 0, 0, std::nullopt);
    pool_.ended(id, nullptr, to_graph);
    released_.ended(id, nullptr);
    stray_.ended(id, nullptr);
  }
}

// ---- memory of captures ----

// What the driver serves becomes a node, whose memory cannot be released before the graph was launched: who captures
// for a graph's sake, and lets go of what it was captured with, must not get such.
std::optional<CUresult> GraphSink::allocate(Call& call) {
  if (call.names_pool) return std::nullopt;
  const std::optional<Capturing> capture = capturing(call);
  if (!capture || !capture->active) return std::nullopt;
  if (asked_of_graphs_.load(std::memory_order_relaxed) && !pool_.is_asked_for(capture->id)) return std::nullopt;
  // The driver takes it where the stream is, whatever is current.
  CUcontext const context = streams().context(call.stream);
  if (!context) return pool_.refusal(capture->id, {});
  const CapturePool::Home home{context, default_pool_changes()};
  if (leaves_to_driver(capture->id, home)) return std::nullopt;
  const auto take = [&] {
    return pool_.allocate(capture->id, home, call.stream.key, count_nodes(capture->graph), call.size);
  };
  std::optional<CapturePool::Slot> slot = take();
  if (!slot && call.size != 0 && give_back_transient(context) != 0) slot = take();
  if (!slot && call.size != 0 && pool_.refusal(capture->id, home) == CUDA_ERROR_OUT_OF_MEMORY && let_go_of_rewritten())
    slot = take();
  if (!slot) {
    const std::optional<CUresult> refusal = call.size != 0 ? pool_.refusal(capture->id, home) : std::nullopt;
    if (refusal)
      say("a capture gets no " + std::to_string(call.size) + " bytes: " +
          (*refusal == CUDA_ERROR_OUT_OF_MEMORY
               ? "the driver has none"
               : "it has others of another device, or the pool was changed meanwhile"));
    return refusal;
  }
  call.address = slot->address;
  try {
    addresses_.came(call.address, call.size);
    tell_graphs(call);  // of others
  } catch (const std::exception& error) {
    failed(call, error);
  }
  return CUDA_SUCCESS;
}

// As the driver would of a graph's own memory: it is there from the graph's launch to its release, and no handle is
// given of it.
std::optional<CUresult> GraphSink::answer(Call& call) {
  switch (call.question) {
    case Question::graph_memory:
      // The nodes that stand for memory, which the driver would have made.
      if ((!call.graph || pool_.memory_of(call.graph)) && !asked_of_graphs_.exchange(true, std::memory_order_relaxed))
        say("the program asks about memory of its graphs: what it allocates in captures is the driver's from now on");
      return std::nullopt;
    case Question::free_memory:
      return answer_free_memory(call);
    case Question::trim:
      if (CUcontext const context = current_context(); context && load_driver()) {
        give_back_transient(context);
        trim(context);
      }
      return std::nullopt;
    case Question::memory:
    case Question::handle:
    case Question::physical:
      break;
    default:
      return std::nullopt;
  }
  const std::optional<CapturePool::Found> found = pool_.find(call.address);
  if (!found || !load_driver()) return std::nullopt;
  if (call.question != Question::memory) return CUDA_ERROR_INVALID_VALUE;
  if (!found->there) return CUDA_ERROR_NOT_FOUND;
  call.address = found->address;
  call.size = found->size;
  call.of_capture = true;
  answers_.answer(call, found->address, driver_, found->context);
  if (call.shown) tell_graphs(call);  // it does not come to after()
  return CUDA_SUCCESS;
}

// As much as there would be if the driver had served the captures: all that ours hold, of which it would keep a part.
std::optional<CUresult> GraphSink::answer_free_memory(Call& call) {
  CUcontext const context = current_context();
  const std::optional<CUdevice> device = device_of(context);
  if (!device) return std::nullopt;
  const std::uint64_t held = pool_.held(context);
  std::uint64_t kept = pool_.reserve().bytes(*device);
  if (held + kept == 0) return std::nullopt;
  const std::uint64_t free = free_memory();
  if (kept > held + free) {  // it would have given some back to whoever has that memory now
    trim(context);
    kept = pool_.reserve().bytes(*device);
  }
  const std::uint64_t given_back = std::min(held - std::min(held, kept), pool_.transient().all(context));
  call.size = free + given_back - std::min(free, kept - std::min(held, kept));
  return CUDA_SUCCESS;
}

// What comes to those addresses next is another allocation.
void GraphSink::tell_launched(CUgraphExec exec, std::uint64_t stream) {
  for (const std::uint64_t address : pool_.launched(exec, stream)) answers_.gone(address);
}

void GraphSink::gone(const std::vector<CapturePool::Slot>& slots) {
  captured_.remove(slots);
  if (const Recordings::Use present = recording_.use()) present->gone(slots);
  for (const CapturePool::Slot& slot : slots) {
    answers_.gone(slot.address);
    Call release;
    release.kind = CallKind::free;
    release.address = slot.address;
    release.size = slot.size;
    tell_graphs(release);
  }
}

// Where the release is captured it would be done when the graph runs: nothing is, here and there. In a capture that is
// spoilt the driver would refuse it, which frameworks do not expect of memory that they let go because of that.
std::optional<CUresult> GraphSink::release(const Call& call) {
  if (!pool_.holds(call.address)) {
    library_memory_.goes(call.address);
    released_.goes(call.address, call.size);
    return std::nullopt;
  }
  try {
    if (call.kind == CallKind::free)
      if (const CUresult result = wait_as_release_does(); result != CUDA_SUCCESS) return result;
    std::optional<Capturing> capture;
    if (call.has_stream && captures_.load(std::memory_order_relaxed) > 0) capture = capturing(call);
    if (capture && !capture->active) capture.reset();
    std::optional<std::size_t> nodes;
    if (capture) nodes = count_nodes(capture->graph);
    switch (pool_.release(call.address, call.stream.key, capture ? capture->id : 0, nodes)) {
      case CapturePool::Release::foreign:
        return std::nullopt;
      case CapturePool::Release::nothing_there:
        return CUDA_ERROR_INVALID_VALUE;
      case CapturePool::Release::done:
        if (!capture) answers_.gone(call.address);
        break;
    }
  } catch (const std::exception& error) {  // the driver does not know the memory
    failed(call, error);
  }
  return CUDA_SUCCESS;
}

// Whether the program has just waited until the GPU had done all that it knew of.
bool GraphSink::was_waited_for(const Call& call) const {
  return call.kind == CallKind::context_synchronize && !call.query &&
         (!call.context || call.context == current_context());
}

// As cuMemFree waits for the GPU, or is refused while somebody captures: by such a call on a piece of memory of ours.
CUresult GraphSink::wait_as_release_does() const {
  const auto get = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(context_.driver_symbol("cuMemAlloc_v2"));
  const auto free = reinterpret_cast<decltype(&::cuMemFree_v2)>(context_.driver_symbol("cuMemFree_v2"));
  const auto wait = reinterpret_cast<decltype(&::cuCtxSynchronize)>(context_.driver_symbol("cuCtxSynchronize"));
  const auto ours = [&](auto call) {
    const RelaxedCaptures relaxed(context_);
    return call();
  };
  CUdeviceptr piece = 0;
  if (!get || !free || ours([&] { return get(&piece, 1); }) != CUDA_SUCCESS) return wait ? wait() : CUDA_SUCCESS;
  const CUresult result = free(piece);
  if (result != CUDA_SUCCESS) ours([&] { return free(piece); });
  return result;
}

// A node that releases what is no allocation to the driver becomes an empty one.
std::optional<CUresult> GraphSink::add_release(const Call& call) {
  const auto add = reinterpret_cast<decltype(&::cuGraphAddEmptyNode)>(context_.driver_symbol("cuGraphAddEmptyNode"));
  const auto add_any = reinterpret_cast<decltype(&::cuGraphAddNode_v2)>(context_.driver_symbol("cuGraphAddNode_v2"));
  if (!pool_.released_by_graph(call.address)) return std::nullopt;
  auto* const out = static_cast<CUgraphNode*>(const_cast<void*>(call.arguments[0]));
  const auto* const dependencies = static_cast<const CUgraphNode*>(call.arguments[1]);
  const auto* const edges = static_cast<const CUgraphEdgeData*>(call.arguments[2]);
  const auto count = reinterpret_cast<std::size_t>(call.arguments[3]);
  if (!edges) return add ? add(out, call.graph, dependencies, count) : CUDA_ERROR_NOT_SUPPORTED;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_EMPTY;
  return add_any ? add_any(out, call.graph, dependencies, edges, count, &params) : CUDA_ERROR_NOT_SUPPORTED;
}

// ---- where memory is short ----

// Each capture has memory of its own here, and the driver's graphs share theirs as far as they do not run at the same
// time. So a capture that nobody learns from gets some only while others have no more than a part of what is left, and
// not more than a part of that; what is beyond is the driver's to serve, and the graph stays as it is.
bool GraphSink::leaves_to_driver(std::uint64_t capture, const CapturePool::Home& home) {
  constexpr std::uint64_t kPartForOthers = 4, kPart = 2;
  const std::optional<std::uint64_t> held = pool_.held_by_others(capture, home.context);
  if (!held) return false;
  const std::uint64_t free = free_memory_of(home.context);
  if (free == 0) return false;  // or it is not known
  // What they have while they run is given back where it is asked for.
  const std::uint64_t transient = pool_.transient().all(home.context), left = free + transient;
  const std::uint64_t lasts = *held - std::min(*held, transient);
  const bool serves = lasts <= left / kPartForOthers;
  pool_.bound(capture, serves ? left / kPart : 0);
  if (serves) return false;
  if (!said_short_.exchange(true))
    options_.log(ReplayLog::warning, "graphs that were captured hold " + std::to_string(lasts >> 20) +
                                         " MiB, and little is left: graphs that follow get theirs from the driver as "
                                         "long as that is so, and stay as they are.");
  return true;
}

bool GraphSink::let_go_of_rewritten() const {
  std::vector<std::shared_ptr<GraphPair>> graphs;
  {
    const std::shared_lock lock(graphs_mutex_);
    for (const auto& [exec, graph] : graphs_) graphs.push_back(graph);
  }
  bool any = false;
  for (const auto& graph : graphs) any = graph->give_back() || any;
  return any;
}

// Not while somebody looks at memory, who may be about to read what is there.
std::uint64_t GraphSink::give_back_transient(CUcontext context) {
  if (options_.probe) return 0;
  {
    const std::lock_guard lock(threads_mutex_);
    for (const auto& [number, thread] : threads_)
      if (thread.learns) return 0;
  }
  const std::uint64_t given = pool_.transient().give_back(context);
  if (given != 0) trim(context);  // as the driver gives its own
  return given;
}

// What nobody launches any more, and what captures have left once nothing can be at work in it.
bool GraphSink::give_back(const Call& call) noexcept try {
  constexpr std::chrono::milliseconds kPatience{1000};
  if (!load_driver()) return false;
  bool given = let_go_of_rewritten();
  const std::uint64_t first = pool_.retirements();
  CUcontext const context = current_context();
  TransientMemory& transient = pool_.transient();
  // Of graphs that are known not to run; the call may want more.
  if (const std::uint64_t gone = give_back_transient(context); gone != 0 && gone >= call.size) return true;
  if ((!pool_.has_retired_in(context) && transient.all(context) == 0) || waits_for_gpu_.exchange(true)) return given;
  const auto pass = [] { static thread_local const Guard guard; };  // for that thread's life
  // A capture that begins now waits for us, or we see it.
  const bool done = captures_.load() == 0 && is_done_within(kPatience, context, context_, pass);
  waits_for_gpu_.store(false);
  if (!done) return given;
  pool_.waited(context, first);
  given = give_back_transient(context) != 0 || given;
  return !pool_.sweep(first, [this](const std::vector<CapturePool::Slot>& slots) { gone(slots); }).empty() || given;
} catch (const std::exception& error) {
  failed(call, error);
  return false;
}

// ---- workspaces of cuBLAS's in captures ----

namespace {

Call release_of(std::uint64_t slot, const StreamRef& stream) {
  Call call;
  call.symbol = "cuMemFreeAsync";
  call.kind = CallKind::free_async;
  call.stream = stream;
  call.has_stream = true;
  call.address = slot;
  return call;
}

}  // namespace

void GraphSink::release_workspaces(std::uint64_t capture, const StreamRef& stream) {
  for (const std::uint64_t slot : workspaces_.end(capture)) release(release_of(slot, stream));
}

std::optional<CUdevice> GraphSink::device_of(CUcontext context) const {
  const auto ask = reinterpret_cast<decltype(&::cuCtxGetDevice)>(context_.driver_symbol("cuCtxGetDevice"));
  const auto push = reinterpret_cast<decltype(&::cuCtxPushCurrent_v2)>(context_.driver_symbol("cuCtxPushCurrent_v2"));
  const auto pop = reinterpret_cast<decltype(&::cuCtxPopCurrent_v2)>(context_.driver_symbol("cuCtxPopCurrent_v2"));
  CUdevice device = 0;
  if (!ask || !push || !pop || !context || push(context) != CUDA_SUCCESS) return std::nullopt;
  const bool known = ask(&device) == CUDA_SUCCESS;
  pop(&context);
  return known ? std::optional(device) : std::nullopt;
}

void GraphSink::trim(CUcontext context) {
  if (const std::optional<CUdevice> device = device_of(context)) pool_.trim(context, *device);
}

std::uint64_t GraphSink::free_memory_of(CUcontext context) const {
  const auto push = reinterpret_cast<decltype(&::cuCtxPushCurrent_v2)>(context_.driver_symbol("cuCtxPushCurrent_v2"));
  const auto pop = reinterpret_cast<decltype(&::cuCtxPopCurrent_v2)>(context_.driver_symbol("cuCtxPopCurrent_v2"));
  if (context == current_context()) return free_memory();
  if (!push || !pop || push(context) != CUDA_SUCCESS) return 0;
  const std::uint64_t free = free_memory();
  pop(&context);
  return free;
}

// Of the current context's device, by now.
std::uint64_t GraphSink::free_memory() const {
  const auto ask = reinterpret_cast<decltype(&::cuMemGetInfo_v2)>(context_.driver_symbol("cuMemGetInfo_v2"));
  const RelaxedCaptures relaxed(context_);
  std::size_t free = 0, total = 0;
  return ask && ask(&free, &total) == CUDA_SUCCESS ? free : 0;
}

// A slot comes and goes as if the program itself allocated and released it.
std::uint64_t GraphSink::workspace_for(CUstream stream, std::uint64_t workspace, std::uint64_t bytes,
                                       bool for_one) noexcept try {
  const bool may_capture =
      reinterpret_cast<std::uintptr_t>(stream) > reinterpret_cast<std::uintptr_t>(CU_STREAM_PER_THREAD);
  if (!may_capture || workspace == 0 || bytes == 0) return workspace;
  const std::optional<Capturing> capture = capturing(stream);
  if (!capture || !capture->active) return workspace;
  const std::size_t nodes = count_nodes(capture->graph);
  if (const auto given = workspaces_.given(capture->id, workspace, bytes, nodes, for_one)) return *given;
  Call call;
  call.symbol = "cuMemAllocAsync";
  call.kind = CallKind::alloc_async;
  call.memory = MemoryKind::stream_ordered;
  call.stream = stream_ref({DefaultStream::legacy}, stream);
  call.has_stream = true;
  call.size = bytes;
  if (const auto last = workspaces_.end_one(capture->id, workspace, for_one)) release(release_of(*last, call.stream));
  if (!pool_.serves_apart(capture->id, bytes)) return workspace;
  if (!workspaces_.left(capture->id)) workspaces_.bound(capture->id, free_memory());
  if (!workspaces_.may_have(capture->id, bytes)) return workspace;
  if (allocate(call) != CUDA_SUCCESS) {
    workspaces_.full(capture->id);
    return workspace;
  }
  workspaces_.began(capture->id, workspace, call.address, bytes, nodes, for_one);
  return call.address;
} catch (const std::exception& error) {
  Call call;
  call.symbol = "cuBLAS's workspace";
  failed(call, error);
  return workspace;
}

// What is in new memory is nobody's business, but a program that does the same twice may find there what it is about to
// store, and a store of what was there already is not seen. So while it is learned from, new memory holds what no
// kernel stores: a word of its own for each allocation, which is a finite number in all usual formats, and no address.
void GraphSink::fill(const Call& call) {
  const bool in_order = call.kind == CallKind::alloc_async;
  if (!ProbeObserver::probes_this_thread() || captures_.load(std::memory_order_relaxed) > 0 || call.address % 4 != 0 ||
      (!in_order && call.memory != MemoryKind::device))
    return;
  const std::uint32_t word = 0xf5000000u | (fills_.fetch_add(1, std::memory_order_relaxed) * 0x9e3779u & 0xffffffu);
  if (in_order) {
    if (const auto set = reinterpret_cast<decltype(&::cuMemsetD32Async)>(context_.driver_symbol("cuMemsetD32Async")))
      set(call.address, word, call.size / 4, call.stream.handle);
    return;
  }
  // Such memory may be used on any stream at once: so it is waited for.
  const auto set = reinterpret_cast<decltype(&::cuMemsetD32_v2)>(context_.driver_symbol("cuMemsetD32_v2"));
  const auto wait = reinterpret_cast<decltype(&::cuStreamSynchronize)>(context_.driver_symbol("cuStreamSynchronize"));
  if (set && wait && set(call.address, word, call.size / 4) == CUDA_SUCCESS) wait(CU_STREAM_LEGACY);
}

}  // namespace nimble::shim
