// Work that bypasses a capture, or would bypass a rehearsed one (Rehearsals): what its threads submit meanwhile, and
// the driver executes at once, since it is not ordered after captured work in any stream.
//
// A launch of the graph would not do it again. That is the program's own affair if it wanted the capture; code that
// captures another function in order to replay it must know. A thread belongs to a capture that it has begun, or put
// work into: work of other threads, such as data loaders, does not count. Nor do NCCL's copies to the device for the
// launches that it captures, whose data stay: such calls return into NCCL. One lock, never held while the driver or the
// dynamic loader is called. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <span>

namespace nimble::shim {

// Whether a code address is in NCCL's library.
bool is_in_nccl(const void* place);

class StrayWork {
 public:
  // Tests pass another function.
  explicit StrayWork(bool (*is_preparing)(const void*) = is_in_nccl) : is_preparing_(is_preparing) {}

  // A thread has begun a capture; 0 is none.
  void began(std::uint64_t capture, std::uint32_t thread);
  // A thread has submitted work that is part of a capture, or of none (0). `rehearsed`: the dry runs that it would be
  // part of. `caller`: the call's return address.
  void submitted(std::uint32_t thread, std::uint64_t capture, const void* caller,
                 std::span<const std::uint64_t> rehearsed = {});
  // A capture has ended, with a graph or without. Returns how many pieces of work its threads have submitted outside
  // it.
  std::uint64_t ended(std::uint64_t capture, CUgraph graph);
  // How many pieces of work the threads of the graph's capture have submitted outside any capture meanwhile.
  std::uint64_t of(CUgraph graph);
  // A graph ends: its handle may be reused.
  void destroyed(CUgraph graph);

 private:
  struct OfThread {
    bool belongs = false;
    std::uint64_t past = 0;
  };

  bool (*const is_preparing_)(const void*);
  std::mutex mutex_;                                                     // guards what follows
  std::map<std::uint64_t, std::map<std::uint32_t, OfThread>> captures_;  // under way: by thread
  std::map<const void*, bool> prepares_;     // return addresses of calls, while any capture is under way
  std::map<CUgraph, std::uint64_t> graphs_;  // with such work
};

}  // namespace nimble::shim
