// See engine.h.
#include "tests/simcuda/engine/engine.h"

#include <algorithm>
#include <chrono>

#include "tests/simcuda/driver/driver.h"
#include "tests/simcuda/engine/execute.h"
#include "tests/simcuda/observe/observer.h"

namespace simcuda {
namespace {

constexpr std::size_t kChunk = 128;
constexpr std::size_t kKeepStaging = 1 << 16;

bool takes_time(const Work& work) {
  return work.kind == WorkKind::kKernel || work.kind == WorkKind::kCopy || work.kind == WorkKind::kSet;
}

}  // namespace

std::uint64_t Engine::random() {
  // splitmix64
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void Engine::set_seed(std::uint64_t seed) { seed_ = state_ = seed; }

Op* Engine::make() {
  if (free_.empty()) {
    chunks_.push_back(std::make_unique<Op[]>(kChunk));
    for (std::size_t i = kChunk; i-- > 0;) free_.push_back(&chunks_.back()[i]);
  }
  Op* op = free_.back();
  free_.pop_back();
  op->number = ++next_number_;
  op->waits_for = 0;
  op->ready_us = 0;
  op->stream_id = 0;
  op->before.clear();
  return op;
}

void Engine::drop(Op* op) {
  op->number = 0;
  op->successors.clear();
  op->clock.reset();
  op->keeps.reset();
  if (op->staging.capacity() > kKeepStaging) std::vector<std::byte>().swap(op->staging);
  free_.push_back(op);
}

void Engine::depend(Op* op, const OpRef& on) {
  if (!on.pending() || on.op == op) return;
  on.op->successors.push_back(op);
  ++op->waits_for;
}

void Engine::follow(Op* op, const Tail& tail) {
  depend(op, tail.last);
  op->ready_us = std::max(op->ready_us, tail.end_us);
  Tracking::join(op->before, tail.clock);
}

void Engine::submit(Op* op, CUstream stream) {
  CUcontext context = stream->context;
  op->context = context;
  op->stream_id = stream->id;
  follow(op, stream->tail);
  if (stream->legacy) {
    // Waits for all blocking streams, and thereby represents their work so far.
    for (CUstream other : context->since_legacy) {
      follow(op, other->tail);
      other->in_since_legacy = false;
    }
    context->since_legacy.clear();
  } else if (stream->blocking) {
    follow(op, context->legacy->tail);
    if (!stream->in_since_legacy) {
      stream->in_since_legacy = true;
      context->since_legacy.push_back(stream);
    }
  }
  if (driver().tracking.on() && !stream->has_chain) {
    stream->chain = driver().tracking.new_chain();
    stream->has_chain = true;
  }
  op->chain = stream->chain;
  enqueue(op, stream);
  stream->tail = tail_of(op);
  if (pending_ > kMaxPending) {
    const OpRef self(op);
    run_until([&] { return pending_ <= kMaxPending / 2 || !self.pending(); });
  }
}

void Engine::submit_unordered(Op* op, CUcontext context, std::uint32_t chain) {
  op->context = context;
  op->stream_id = 0;
  op->chain = chain;
  enqueue(op, nullptr);
}

void Engine::enqueue(Op* op, CUstream stream) {
  Driver& d = driver();
  if (d.tracking.on()) {
    // The host had seen all that it waited for before it submitted this.
    const Ticks& host = d.tracking.host();
    if (op->before.size() < host.size()) op->before.resize(host.size());
    for (std::size_t i = 0; i < host.size(); ++i) op->before[i] = std::max(op->before[i], host[i]);
    op->clock = d.tracking.step(op->chain, std::move(op->before), op->tick);
    op->before.clear();
  }

  double ready = op->ready_us;
  if (takes_time(op->work)) {
    ready += stream != nullptr ? d.clock.model().stream_edge_us : d.clock.model().graph_edge_us;
  }
  op->end_us = d.clock.place(op->work, std::max(ready, d.clock.now()), copy_direction(op->work));
  op->begin_us = d.clock.last_begin_us();
  op->call = d.observed_call;
  op->caller = d.caller;
  op->context->all.end_us = std::max(op->context->all.end_us, op->end_us);

  if (seed_ == 0) {
    op->key = ~op->number;
  } else if (seed_ % 2 == 0 || stream == nullptr) {
    op->key = random();
  } else {
    if (stream->key == 0 || random() % 16 == 0) stream->key = random();
    op->key = stream->key;
  }
  ++pending_;
  ++op->context->pending;
  if (op->waits_for == 0) push_ready(op);
}

void Engine::push_ready(Op* op) {
  ready_.emplace_back(op->key, op);
  std::push_heap(ready_.begin(), ready_.end());
}

void Engine::recheck_blocked() {
  for (std::size_t i = 0; i < blocked_.size();) {
    if (value_arrived(blocked_[i]->work.value)) {
      push_ready(blocked_[i]);
      blocked_[i] = blocked_.back();
      blocked_.pop_back();
    } else {
      ++i;
    }
  }
}

bool Engine::run_one() {
  if (!blocked_.empty()) recheck_blocked();
  while (!ready_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end());
    Op* op = ready_.back().second;
    ready_.pop_back();
    if (op->work.kind == WorkKind::kWaitValue && op->context->fault == CUDA_SUCCESS && !value_arrived(op->work.value)) {
      blocked_.push_back(op);
      continue;
    }
    execute(*op);
    complete(op);
    return true;
  }
  return false;
}

void Engine::complete(Op* op) {
  if (takes_time(op->work) || op->work.kind == WorkKind::kEventRecord) observe_run(*op);
  --pending_;
  --op->context->pending;
  for (Op* successor : op->successors) {
    if (--successor->waits_for == 0) push_ready(successor);
  }
  drop(op);
}

void Engine::run_until(const std::function<bool()>& done) {
  while (!done()) {
    if (run_one()) continue;
    // Another thread runs a host function, or something has yet to write a value: neither needs this thread's lock.
    std::unique_lock<std::mutex> lock(driver().mutex, std::adopt_lock);
    driver().changed.wait_for(lock, std::chrono::milliseconds(1));
    lock.release();
  }
}

void Engine::finish_all() {
  run_until([&] { return pending_ == 0; });
}

void Engine::make_some_progress() {
  for (std::uint64_t steps = seed_ == 0 ? 1 : random() % 4; steps > 0 && run_one(); --steps) {
  }
}

}  // namespace simcuda
