// NIMBLE_STEPS: ends a recording once it holds as many steps as the user wants.
//
// Steps that the program marks are counted as they come. Where it marks none, a background thread of the lowest
// priority looks through what has been written so far, for the step that the analyzer would find: each time that much
// more is there, so that all looks together read it a few times. It makes no driver call and is never waited for but by
// the destructor. The recording ends between two calls of the program (RecordQueue::stop).
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
  // Beyond `limit_bytes` of trace nothing is looked for. `queue` must outlive it.
  StepCount(std::uint32_t steps, std::uint64_t limit_bytes, RecordQueue& queue)
      : steps_(steps), limit_bytes_(limit_bytes), queue_(queue) {}
  ~StepCount();
  StepCount(const StepCount&) = delete;
  StepCount& operator=(const StepCount&) = delete;

  // A mark of the program's, whose record has been pushed. Any thread.
  void mark(bool begins, std::uint32_t thread, std::uint64_t seq);
  // Begins to look for steps without marks. `calls`: how many have been recorded, of any kind. Once.
  void look(std::function<std::uint64_t()> calls);

 private:
  // Of one thread: a step runs from where one begins to the thread's next mark.
  struct Marks {
    bool open = false;
    std::uint64_t begin = 0;  // seq
    std::uint32_t steps = 0;
  };

  void work(const std::function<std::uint64_t()>& calls);
  // Looks once. How many steps there are; 0 where none was found. Nothing where there is nothing more to look at, which
  // `why_not` tells.
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
