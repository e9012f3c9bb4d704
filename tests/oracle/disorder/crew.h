// Threads that issue the ops of a step together.
//
// For one thread to use, which waits meanwhile. Ends its threads with itself.
#pragma once

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/oracle/disorder/disorder.h"

namespace nimble::oracle {

class Crew {
 public:
  // Each makes the context that is current now its own.
  Crew(std::uint32_t threads, std::function<void(std::uint32_t)> issue);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Issues all ops, `by[i]` being the thread of the ith, and returns when that is done.
  void run(const std::vector<Op>& ops, std::vector<std::uint32_t> by, Threads how);

 private:
  void work(std::uint32_t thread, CUcontext context);
  void find_order(const std::vector<Op>& ops, Threads how);

  const std::function<void(std::uint32_t)> issue_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t round_ = 0;  // what to do changes with it
  std::uint32_t busy_ = 0;
  bool over_ = false;
  // Of the round:
  std::vector<std::uint32_t> by_;
  std::vector<std::vector<std::uint32_t>> after_;  // per op: which must have been issued
  std::unique_ptr<std::atomic<bool>[]> issued_;
};

}  // namespace nimble::oracle
