// Memory for what a program allocates in stream order while it captures.
//
// The driver would make a node of each such allocation, whose memory exists only while the graph runs, and of which a
// graph may have one executable alone. Here each gets a slot, at once and for as long as the graph may run, as a
// caching allocator gives it: then the graph holds nothing but work, and any number of executables can be made of it.
//
// By itself a slot is used again as soon as the program has released it, as such allocators do: a graph that meets its
// memory again soon finds it in the device's cache, and may leave there what it needs the next time (H200: mobilenet_v2
// at batch 1 takes 17 % longer where no memory is used twice). But nodes that have nothing else to do with each other
// then have to follow each other. A capture that the program makes to learn from gets every slot but once; and one that
// it makes again gets them where the plan of that graph has them (analyzer/plan/memory_plan.h), which shares memory
// only where the order of the graph's own allows it.
//
// A capture has kept to its plan only where it has allocated just what was planned, on one stream, and released all
// that lies in the plan's block before the next one got those bytes: memory that the program still has is never handed
// out.
//
// It comes from where the driver would take it: the device's pool, where the program has put another into its place, or
// has let other devices reach it (they may be told to write there); else from the device at once.
//
// Owns that memory. What belongs to one capture is released together: once the program has released all of it, and the
// captured graph and all its executables are gone. Then it is retired, and goes back to the driver with the next
// sweep(): that may wait for the GPU, so it is for when the program has just done so itself. Of a graph that the
// program puts into another or clones, or whose memory a node of the program's own making releases, nobody can tell
// when that is: its memory stays.
//
// Memory that a graph allocates and does not release is there from the graph's launch to a release of the program's, or
// to a launch of another graph that has captured one; and from its next launch again. Where a capture fails, or its
// graph goes and was never launched, it never was there: then the program has no use for it, but may still release it,
// as frameworks do whose tensors live longer. So it goes to later captures, none of which gets memory that begins where
// something of it did: a release says no more than where memory begins.
//
// One lock, never held while the driver is called. Any thread.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "nimble/internal/call.h"
#include "shim/rewrite/memory/backing.h"
#include "shim/rewrite/memory/graph_heap.h"
#include "shim/rewrite/memory/graph_reserve.h"
#include "shim/rewrite/memory/transient.h"

namespace nimble::shim {

// Where the allocations of a capture go: of each, in their order, what it asked for, and its place in one block of
// memory. Those that last beyond the capture have none.
struct CapturePlan {
  struct Allocation {
    std::uint64_t size = 0;
    std::optional<std::uint64_t> offset;
  };
  std::vector<Allocation> allocations;
  std::uint64_t bytes = 0;  // of the block
};

// What has become of a capture's allocations.
struct CaptureMemory {
  struct Event {
    std::size_t node = 0;  // how many nodes the graph had by then
    bool released = false;
    std::uint64_t address = 0, size = 0;  // as asked for
  };
  // `again`: slots were used again as they came, and each is taken for one allocation.
  // `once`: no two allocations share a byte; or only as the plan says.
  // `broken`: the capture has not kept to its plan, or is one of several that have made the graph.
  enum class Kind : std::uint8_t { again, once, broken };
  Kind kind = Kind::again;
  std::vector<Event> events;
  std::vector<std::uint64_t> lasting;  // addresses that were not released in it
  struct Block {
    std::uint64_t base = 0, size = 0;
  };
  std::vector<Block> blocks;  // of plans
};

class CapturePool {
 public:
  enum class Serve : std::uint8_t { again, once, planned };

  explicit CapturePool(CallContext& context)
      : context_(context), backing_(context), transient_(backing_, retirements_) {}

  struct Slot {
    std::uint64_t address = 0, size = 0;
    bool known = false;  // it has been handed out before
  };

  // How much memory of this context captures have that are not this one; nothing where it has asked for its memory to
  // be of here, or has had any, or has a bound.
  std::optional<std::uint64_t> held_by_others(std::uint64_t capture, CUcontext context) const;
  // How much device memory of this context all captures hold, those among them whose graphs have gone.
  std::uint64_t held(CUcontext context) const;
  // This capture gets no more than so much from here.
  void bound(std::uint64_t capture, std::uint64_t bytes);
  // Whether anything of this context is retired.
  bool has_retired_in(CUcontext context) const;
  // A capture has begun, with this id (cuStreamGetCaptureInfo), for somebody who has asked for its memory to be of
  // here. Others are served `again`.
  void began(std::uint64_t capture, Serve serve, std::shared_ptr<const CapturePlan> plan);
  // Where the memory of a capture lies.
  struct Home {
    CUcontext context = nullptr;
    // Of the device's pool, as it is since the program has changed it so many times; 0: from the device at once.
    std::uint64_t pool = 0;
    bool operator==(const Home&) const = default;
  };
  // Memory for an allocation on the stream with this key, which is in that capture, whose graph has so many nodes.
  // Nothing where the driver has none, or what the capture has lies elsewhere.
  std::optional<Slot> allocate(std::uint64_t capture, Home home, std::uint64_t stream, std::size_t nodes,
                               std::uint64_t size);
  // Whether no two allocations of this capture share a byte; or only as its plan says, by which one of so many bytes
  // comes next.
  bool serves_apart(std::uint64_t capture, std::uint64_t bytes) const;
  // Whether its memory must be of here.
  bool is_asked_for(std::uint64_t capture) const;
  // Of an allocation that got nothing: what to answer where it must be of here; nothing where the driver may serve it.
  std::optional<CUresult> refusal(std::uint64_t capture, Home home) const;
  // The program releases memory on this stream. `nodes`: where that stream is in the capture with this id, too, how
  // many nodes its graph has. Whether it is of here; or is, and there is nothing there to release.
  enum class Release : std::uint8_t { foreign, done, nothing_there };
  Release release(std::uint64_t address, std::uint64_t stream, std::uint64_t capture, std::optional<std::size_t> nodes);
  // A graph of the program's own making releases it. Whether it is of here.
  bool released_by_graph(std::uint64_t address);
  // What the program has at an address, where that is in memory of here. Nothing where it is not; or where it is of a
  // capture that somebody has asked for, who is to see the memory as it is.
  struct Found {
    bool there = false;                   // the driver's memory would be: from a launch to its release
    std::uint64_t address = 0, size = 0;  // as asked for
    CUcontext context = nullptr;
  };
  std::optional<Found> find(std::uint64_t address) const;
  // Whether a slot of here begins there, or did and the program may not know that it is gone.
  bool holds(std::uint64_t address) const;
  // In this capture what is put on the stream does not come behind all that was put on it before, any more.
  void unordered(std::uint64_t capture, std::uint64_t stream);
  // A stream has ended: what comes under its handle is another, which comes behind nothing of it.
  void stream_ended(std::uint64_t stream);
  // Of the capture that ended in this graph; nothing where no memory is of here.
  std::optional<CaptureMemory> memory_of(CUgraph graph) const;

  // The capture has ended in this graph; or in none: then `kept` says that the program may have its nodes all the same.
  void ended(std::uint64_t capture, CUgraph graph, bool kept = false);
  void instantiated(CUgraph graph, CUgraphExec exec);
  // What it does comes from this graph now, and from no other any more.
  void updated(CUgraph graph, CUgraphExec exec);
  // The program has launched it on the stream with this key. Where memory was that the launch releases.
  std::vector<std::uint64_t> launched(CUgraphExec exec, std::uint64_t stream);
  void destroyed(CUgraph graph);
  void destroyed(CUgraphExec exec);
  // The graph has become a part of another, or was cloned.
  void shared(CUgraph graph);
  void shared(CUgraphExec exec);
  // A context ends, and its memory with it; what came from the device's pool stays taken there.
  void context_ends(CUcontext context);

  // The driver has ended it, or has refused to.
  void context_ended(CUcontext context, bool good) { backing_.context_ended(context, good); }

  TransientMemory& transient() { return transient_; }
  GraphReserve& reserve() { return reserve_; }
  // The host has waited for all that was submitted in the context before this moment, as retirements() had it.
  void waited(CUcontext context, std::uint64_t moment) {
    transient_.waited(context, moment);
    reserve_.waited(context, moment);
  }
  // The reserve gives back what no graph uses.
  void trim(CUcontext context, CUdevice device);
  // What the graph that this one was made of has allocated and released while it was captured, each time that it was;
  // without what is not to go.
  std::vector<TransientMemory::Shared> transient_of(CUgraphExec exec);
  // That of this graph, or of the one that this was made of, from now on is not. False where it cannot be had.
  bool keep(CUgraph graph, CUgraphExec exec);

  // Rises whenever anything is retired, or transient memory used: a moment. Whether anything is retired.
  std::uint64_t retirements() const { return retirements_.load(std::memory_order_acquire); }
  bool has_retired() const { return any_retired_.load(std::memory_order_relaxed); }
  // Gives what is retired of the current context back to the driver, as far as it was within the first so many times.
  // Returns the slots that were in it; `going` is told of them before anybody else may get the memory, without our
  // lock.
  using Going = std::function<void(const std::vector<Slot>&)>;
  std::vector<Slot> sweep(std::uint64_t first, const Going& going = {});
  // Whether there is memory of captures that came to nothing which no other has got yet; from here on they may. As
  // sweep().
  bool has_spare() const { return any_spare_.load(std::memory_order_relaxed); }
  std::vector<Slot> reuse(const Going& going = {});

 private:
  struct Chunk {
    std::uint64_t base = 0, size = 0, used = 0;
  };
  // Slots of one size that the program has released on one stream, the last of them last.
  struct Released {
    std::uint64_t stream, size;
    auto operator<=>(const Released&) const = default;
  };
  struct Capture {
    Serve serve = Serve::again;
    bool asked_for = false;
    std::optional<std::uint64_t> bound;  // bytes of its chunks
    std::shared_ptr<const CapturePlan> plan;
    std::size_t allocations = 0;
    std::optional<Home> home;  // once it has any memory
    CUgraph graph = nullptr;
    bool ended = false, shared = false, launched = false;
    bool kept = false;  // its transient memory is not to go
    std::set<CUgraphExec> execs;
    std::vector<Chunk> chunks;
    Chunk block;               // of the plan
    std::uint64_t stream = 0;  // on which the plan's memory is allocated and released
    bool kept_to_plan = true;
    std::map<std::uint64_t, std::uint64_t> slots;  // by address: size
    TransientMemory::Shared transient;             // once asked for
    std::map<std::uint64_t, std::uint64_t> live;   // what the program has, by address: as asked for
    std::uint64_t left = 0;                        // how much memory the driver would have for it
    std::size_t counted = 0;                       // when there was so much of it
    std::map<Released, std::vector<std::uint64_t>> released;
    std::vector<CaptureMemory::Event> events;
    std::set<std::uint64_t> releases;  // memory of other captures, when it runs
  };

  struct Retired {
    Home home;
    std::vector<Chunk> chunks;
    std::map<std::uint64_t, std::uint64_t> slots;  // by address: size
    std::uint64_t number = 0;
  };
  struct Spare {
    Home home;
    Chunk chunk;
    bool ready = false;  // its slots have been told of, or
    bool told = false;   // are being
  };

  std::uint64_t size_of(const std::vector<Chunk>& chunks) const;
  std::vector<Backing::Piece> released_pieces(const Capture& capture) const;
  static CaptureMemory::Kind kind_of(const Capture& capture);
  static std::map<std::uint64_t, std::uint64_t> lasting(const Capture& capture);
  static GraphHeap heap_of(const Capture& capture);
  std::optional<GraphReserve::Place> place_of(const Capture& capture) const;
  void tell_left(GraphReserve::Place place);
  static std::optional<Slot> use_again(Capture& capture, std::uint64_t stream, std::uint64_t size);
  static std::optional<Slot> planned(Capture& capture, std::uint64_t stream, std::uint64_t size);
  std::optional<std::uint64_t> place_in(const Chunk& chunk, std::uint64_t size) const;
  std::optional<Slot> take(Capture& capture, std::uint64_t size);
  bool take_spare(Capture& capture, std::uint64_t size);
  Chunk ask_driver(Home home, std::uint64_t bytes, std::uint64_t to_share);
  CUresult ask_pool(CUdeviceptr& base, std::uint64_t bytes) const;
  bool is_abandoned(const Chunk& chunk) const;
  void released_abandoned(std::uint64_t address);
  bool released_behind_launch(std::uint64_t address);
  void widen(const Chunk& chunk);
  bool may_hold(std::uint64_t address) const;
  void let_go(std::uint64_t capture);
  void retire(Retired retired);

  CallContext& context_;
  Backing backing_;
  TransientMemory transient_;
  GraphReserve reserve_;
  std::atomic<bool> any_retired_{false}, any_spare_{false}, any_waits_{false};
  std::atomic<std::uint64_t> retirements_{0};
  // Between these lies all that ever was of here: a question about other memory, or its release, needs no lock.
  std::atomic<std::uint64_t> begin_{~std::uint64_t{0}}, end_{0};
  mutable std::mutex mutex_;  // guards all below
  std::map<std::uint64_t, Capture> captures_;
  std::vector<Retired> retired_;
  std::vector<Spare> spare_;
  std::vector<Slot> spare_slots_;           // of what is not ready
  std::set<std::uint64_t> abandoned_;       // where memory began that never was there, as far as it was not released
  std::set<CUgraphExec> waits_for_launch_;  // those whose next launch brings memory, or takes some
};

}  // namespace nimble::shim
