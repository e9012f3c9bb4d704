// How far a command is: a line on standard error, if that is a terminal, once the command has taken two seconds.
//
// Owns a thread that shows it; the line is gone when the Progress is. at(): any thread. No errors: without a thread,
// nothing is shown.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace nimble::analyzer {

class Progress {
 public:
  // `what` is being done: "reading trace.json". `is_wanted`: false if the terminal shows something else meanwhile.
  explicit Progress(std::string what, bool is_wanted = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // How far that is: "45 %". Until it is called, the seconds so far are shown.
  void at(std::string how_far);

 private:
  void run();

  const std::string what_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable ends_;
  std::string how_far_;   // under mutex_
  bool is_over_ = false;  // likewise
  std::thread thread_;
};

}  // namespace nimble::analyzer
