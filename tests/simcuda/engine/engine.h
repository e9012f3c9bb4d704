// The queue of work, and the choice of what runs next.
//
// Ops are queued with all that must precede them, and run late: when the program waits for something, asks about it, or
// has queued too much. Among the ready ops the one with the greatest key runs. With seed 0 keys follow program order.
// With any other seed they are drawn at random: for even seeds op by op, for odd seeds stream by stream, with a new
// draw now and then, which runs one stream far ahead of another. Either way every order is legal, and a program that
// misses a dependency computes something else for some seed.
//
// Guarded by the driver's mutex, which is held by whoever calls; it is released while a host function runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/simcuda/driver/objects.h"
#include "tests/simcuda/engine/op.h"

namespace simcuda {

class Engine {
 public:
  // A fresh op, to be filled and then submitted or dropped.
  Op* make();
  void drop(Op* op);

  // Makes the op wait for everything up to this tail. Before submission only.
  void follow(Op* op, const Tail& tail);
  // Puts the op at the end of a stream, under the rules of default streams.
  void submit(Op* op, CUstream stream);
  // Orders the op after its predecessors only: the inside of a graph.
  void submit_unordered(Op* op, CUcontext context, std::uint32_t chain);
  Tail tail_of(Op* op) const { return {OpRef(op), op->end_us, op->clock}; }

  // Runs ops until the condition holds.
  void run_until(const std::function<bool()>& done);
  void finish(const OpRef& op) {
    if (op.pending()) run_until([&] { return !op.pending(); });
  }
  void finish_all();
  // What a poll lets happen: a little, sometimes nothing.
  void make_some_progress();
  bool run_one();

  void set_seed(std::uint64_t seed);
  bool adversarial() const { return seed_ != 0; }
  std::uint64_t pending() const { return pending_; }
  std::uint64_t last_number() const { return next_number_; }
  std::uint64_t random();

 private:
  static constexpr std::uint64_t kMaxPending = 8192;

  void depend(Op* op, const OpRef& on);
  void enqueue(Op* op, CUstream stream);
  void push_ready(Op* op);
  void recheck_blocked();
  void complete(Op* op);

  std::uint64_t seed_ = 0, state_ = 0;
  std::uint64_t next_number_ = 0, pending_ = 0;
  std::vector<std::pair<std::uint64_t, Op*>> ready_;  // a heap
  std::vector<Op*> blocked_;                          // waits for a value in memory
  std::vector<std::unique_ptr<Op[]>> chunks_;
  std::vector<Op*> free_;
};

// The driver's mutex is released, and the thread may not call the driver, while this lives.
struct HostFunctionScope {
  HostFunctionScope();
  ~HostFunctionScope();
};

}  // namespace simcuda
