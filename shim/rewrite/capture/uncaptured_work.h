// Work that goes past a capture, or would go past one that is only rehearsed (Rehearsals): what its threads submit
// while it goes on, and the driver does at once, since no captured work comes before it in any stream.
//
// No replay of the graph would do it again. That is a program's own affair where it has asked for the capture; who
// captures somebody else's function in order to replay it in its place must know. A thread belongs to a capture that it
// has begun, or put work into: what others do meanwhile, as those that load data, is not meant. Nor is what NCCL copies
// to the device for the launches that it captures, which is theirs for good: such calls return into it. One lock, never
// held while the driver is called, or the dynamic loader. Any thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <span>

namespace nimble::shim {

// Whether a place in the code is in NCCL's library.
bool is_in_nccl(const void* place);

class StrayWork {
 public:
  // Tests have another question in the place of this one.
  explicit StrayWork(bool (*is_preparing)(const void*) = is_in_nccl) : is_preparing_(is_preparing) {}

  // A thread has begun a capture; 0 is none.
  void began(std::uint64_t capture, std::uint32_t thread);
  // A thread has submitted work: to be a part of a capture, or of none (0). `rehearsed`: what it would be a part of, of
  // what is only rehearsed. `caller`: where the call returns to.
  void submitted(std::uint32_t thread, std::uint64_t capture, const void* caller,
                 std::span<const std::uint64_t> rehearsed = {});
  // A capture has ended, with a graph or without. How many pieces of work its threads have submitted past it.
  std::uint64_t ended(std::uint64_t capture, CUgraph graph);
  // How many pieces of work the threads of the graph's capture have submitted past all captures meanwhile.
  std::uint64_t of(CUgraph graph);
  // A graph ends: its handle may become another's.
  void destroyed(CUgraph graph);

 private:
  struct OfThread {
    bool belongs = false;
    std::uint64_t past = 0;
  };

  bool (*const is_preparing_)(const void*);
  std::mutex mutex_;                                                     // guards what follows
  std::map<std::uint64_t, std::map<std::uint32_t, OfThread>> captures_;  // that go on: by thread
  std::map<const void*, bool> prepares_;     // places that calls return to, while any capture goes on
  std::map<CUgraph, std::uint64_t> graphs_;  // with such work
};

}  // namespace nimble::shim
