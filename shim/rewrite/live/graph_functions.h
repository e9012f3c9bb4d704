// The driver functions that graphs are read, made and launched by. They are looked up when they are needed first.
//
// The lock is not held while they are looked up, which takes the dynamic loader's: threads that come at once all do.
// Any thread; constant once load() has said true.
#pragma once

#include <atomic>
#include <mutex>

#include "nimble/internal/call.h"
#include "replayer/driver/driver_api.h"
#include "shim/rewrite/graph/graph_api.h"

namespace nimble::shim {

class GraphFunctions {
 public:
  // `context` must outlive it.
  explicit GraphFunctions(CallContext& context) : context_(context) {}

  // False where the driver lacks one.
  bool load();
  // Once that was true.
  const GraphApi& graphs() const { return graphs_; }
  const DriverApi& driver() const { return driver_; }

 private:
  CallContext& context_;
  GraphApi graphs_;
  DriverApi driver_;
  std::mutex mutex_;  // for who has loaded them
  std::atomic<bool> ready_{false};
};

}  // namespace nimble::shim
