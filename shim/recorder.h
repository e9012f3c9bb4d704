// Record mode: keeps what happened, in a queue that a background thread writes out.
//
// A CallSink, called from any thread. The calling thread copies the call into a shared buffer under a short lock; all
// formatting is the writer thread's work. The trace file is opened at the first call of a kind that traces hold, so
// processes that never use the GPU leave no file. Knows nothing of preloading: tests drive it directly.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "nimble/call.h"
#include "shim/record_queue.h"

namespace nimble::shim {

class Recorder final : public CallSink {
 public:
  // Records to `path`. `context` must outlive the recorder.
  Recorder(std::string path, CallContext& context);
  ~Recorder() override;

  std::optional<CUresult> before(Call& call) noexcept override;
  void after(const Call& call, CUresult result) noexcept override;
  void finish() noexcept override;
  void finish_interrupted() noexcept override;
  bool forked() noexcept override;

 private:
  // Whether the op goes into a graph that the program is capturing instead of being executed.
  bool captured(const Call& call);
  void give_up(const char* why) noexcept;

  const std::string path_;
  CallContext& context_;
  std::atomic<std::uint64_t> next_seq_{0};
  std::atomic<int> captures_{0};  // streams that capture right now
  RecordQueue queue_;
};

}  // namespace nimble::shim
