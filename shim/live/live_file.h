// What a process is doing, in a file that it keeps up to date for `nimble top`: one line of JSON, written anew each
// second (docs/reference/formats.md).
//
// Owned by the session, and never destroyed. open() and end(): any thread; keep() starts the thread that writes.
// Errors: what cannot be written is not kept, which the log says once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "nimble/internal/call.h"
#include "nimble/internal/process/light_mutex.h"
#include "nimble/internal/process/quiet_file.h"

namespace nimble::shim {

class LiveFile {
 public:
  // Each text is so long, filled up with blanks: a reader that comes while it is written sees that by its ends.
  static constexpr std::size_t kBytes = 4096;

  // Creates the file, or takes over one that Nimble has written and no process keeps. Within a call of the program's,
  // which may open files (program_turn.h).
  void open(const std::string& path, std::string mode);
  // From now on the file says what `sink`, which must outlive it, is doing.
  void keep(CallSink& sink) noexcept;
  // The last word, as the process ends.
  void end(CallSink& sink) noexcept;
  // The same where a signal may have interrupted anything: what was written last has ended. Takes no memory, and waits
  // for nothing.
  void end_interrupted() noexcept;
  // In a forked child: closes its copy of the file, which keeps it locked.
  void let_go() noexcept { file_.close(); }

 private:
  bool write(const SinkReport& report, bool is_last);
  bool put(const void* data, std::size_t bytes, std::size_t at) noexcept;

  std::string mode_, program_;
  std::chrono::steady_clock::time_point begun_;
  LightMutex mutex_;  // for the rest
  QuietFile file_;
  std::uint64_t number_ = 0;
  std::atomic<bool> over_{false};
};

}  // namespace nimble::shim
