// NIMBLE_STEPS: ends a recording once it holds as many steps as the user wants.
//
// Steps that the program marks are counted as they come. If it marks none, a background thread of a low priority
// searches what has been written so far for the step that the analyzer would find: each time at a multiple of the
// length, so that all looks together read it only a few times. It makes no driver call, and only the destructor waits
// for it. The recording ends between two calls of the program (RecordQueue::stop).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "shim/record/trace/record_queue.h"

namespace nimble::shim {

class StepCount {
 public:
  // Stops looking beyond `limit_bytes` of trace. `queue` must outlive it.
  StepCount(std::uint32_t steps, std::uint64_t limit_bytes, RecordQueue& queue)
      : steps_(steps), limit_bytes_(limit_bytes), queue_(queue) {}
  ~StepCount();
  StepCount(const StepCount&) = delete;
  StepCount& operator=(const StepCount&) = delete;

  // A mark by the program, whose record has been pushed. Any thread.
  void mark(bool begins, std::uint32_t thread, std::uint64_t seq);
  // Starts looking for unmarked steps. `calls`: how many have been recorded, of any kind. Once.
  void look(std::function<std::uint64_t()> calls);

 private:
  // Per thread: a step runs from its beginning to the thread's next mark.
  struct Marks {
    bool open = false;
    std::uint64_t begin = 0;  // seq
    std::uint32_t steps = 0;
  };

  void work(const std::function<std::uint64_t()>& calls);
  // Looks once, and returns the number of steps; 0 if none was found. Nothing if looking further is pointless;
  // `why_not` says why.
  std::optional<std::uint64_t> steps_so_far(std::string& why_not);
  void enough(std::uint64_t steps, const char* how);

  const std::uint32_t steps_;
  const std::uint64_t limit_bytes_;
  RecordQueue& queue_;
  std::mutex mutex_;  // guards marks_
  std::map<std::uint32_t, Marks> marks_;
  std::atomic<bool> marked_{false}, over_{false}, looking_{false};
};

}  // namespace nimble::shim
