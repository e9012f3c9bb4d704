// How the program's streams are ordered with others, asked of the driver once per stream. One table per process,
// thread-safe; a known stream costs no lock to the thread that used it last.
#pragma once

#include <atomic>
#include <shared_mutex>
#include <unordered_map>

#include "nimble/internal/call.h"

namespace nimble::shim {

class StreamTable {
 public:
  StreamKind kind(const StreamRef& stream);
  // The context of a stream that the program created, of a legacy default stream, or of the calling thread's own
  // default stream. Null if the driver does not say.
  CUcontext context(const StreamRef& stream);
  // The stream is being destroyed; its handle may be reused.
  void ended(const StreamRef& stream);
  // The context is being destroyed, and its streams with it. Null: unknown which.
  void context_ended(CUcontext context);

 private:
  struct Facts {
    StreamKind kind = StreamKind::blocking;
    CUcontext context = nullptr;
  };
  Facts facts(const StreamRef& stream);

  std::shared_mutex mutex_;
  std::unordered_map<std::uint64_t, Facts> facts_;  // by StreamRef::key
  std::atomic<std::uint64_t> generation_{1};
};

StreamTable& streams();

}  // namespace nimble::shim
