#include "shim/rewrite/live/graph_functions.h"

namespace nimble::shim {

bool GraphFunctions::load() {
  if (ready_.load(std::memory_order_acquire)) return true;
  GraphApi graphs;
  DriverApi driver;
  if (graphs.load(context_) || driver.load(context_, false)) return false;
  const std::lock_guard lock(mutex_);
  if (ready_.load(std::memory_order_relaxed)) return true;
  graphs_ = graphs;
  driver_ = driver;
  ready_.store(true, std::memory_order_release);
  return true;
}

}  // namespace nimble::shim
