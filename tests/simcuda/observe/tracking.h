// What ops touch, and whether something orders them: exact access sets, illegal accesses, and races.
//
// Every op gets a vector clock when it is submitted, joined from all that precedes it by the program's own order: its
// stream, events, the legacy stream's rules, graph edges, and what the host had waited for. When it runs, its ranges
// are checked against a shadow of the last write and the reads since of every byte: an access that is neither before
// nor after another by these clocks, though one of them writes, is a race. The host counts as one thread, so that
// host-side synchronisation that the driver cannot see never makes a false report.
//
// Guarded by the driver's mutex. Costs nothing unless switched on.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/simcuda/image/image_abi.h"
#include "tests/simcuda/simcuda.h"

namespace simcuda {

class Memory;

using Ticks = std::vector<std::uint32_t>;          // by chain: a stream, or a path through a graph
using VectorClock = std::shared_ptr<const Ticks>;  // null: nothing precedes

// The driver call that submitted an op.
struct Caller {
  std::uint64_t call = 0;  // all calls are counted from 1, over all threads
  const char* symbol = "";
  std::uint64_t thread = 0;
};

struct Ranges {
  std::vector<SimcudaRange> reads, writes;
  bool exact = true;

  void read(std::uint64_t begin, std::uint64_t bytes) {
    if (bytes != 0) reads.push_back({begin, begin + bytes});
  }
  void write(std::uint64_t begin, std::uint64_t bytes) {
    if (bytes != 0) writes.push_back({begin, begin + bytes});
  }
};

// Collects the loads and stores of one kernel while it runs: two bits for each byte of the pages that it touches.
class KernelRecorder {
 public:
  void begin();
  Ranges finish();  // merged and sorted; all addresses, the kernel's own stack among them
  static const SimHooks& hooks();

 private:
  static constexpr std::uint64_t kPageBytes = 4096;
  struct Page {
    std::uint64_t number = 0;
    std::uint64_t read[kPageBytes / 64] = {}, written[kPageBytes / 64] = {};
  };

  static void access(const void* address, std::uint64_t bytes, bool write);
  void mark(std::uint64_t address, std::uint64_t bytes, bool write);
  Page& page(std::uint64_t number);

  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  Page* recent_[64] = {};
};

class Tracking {
 public:
  bool accesses = false, races = false;
  bool on() const { return accesses || races; }

  std::uint32_t new_chain() {
    next_tick_.push_back(0);
    return static_cast<std::uint32_t>(next_tick_.size() - 1);
  }
  // A clock that follows `before`, as the next op of this chain.
  VectorClock step(std::uint32_t chain, Ticks before, std::uint32_t& tick);
  static void join(Ticks& into, const VectorClock& other);
  void host_saw(const VectorClock& clock) { join(host_, clock); }
  const Ticks& host() const { return host_; }

  struct Actor {
    std::uint64_t op = 0;
    const char* name = "";
    std::uint64_t stream = 0;
    std::uint32_t chain = 0, tick = 0;
    VectorClock clock;
    Caller caller;
  };
  // An op ran. Ranges are within live memory already.
  void executed(const Actor& actor, Ranges&& ranges);
  // Memory came into being, or went: a race with any use of it, but no access.
  void lifetime(const Actor& actor, const SimcudaRange& range) {
    if (range.begin < range.end) check(actor, range, true);
  }
  void illegal(const Actor& actor, std::uint64_t address, bool write);

  const char* intern(const std::string& name) { return names_.insert(name).first->c_str(); }

  KernelRecorder recorder;

  struct Recorded {
    std::uint64_t op, stream;
    const char* name;
    Ranges ranges;
    Caller caller;
  };
  std::deque<Recorded> recorded;
  std::uint64_t recorded_dropped = 0;
  std::vector<SimcudaRace> found_races;
  struct Illegal {
    std::uint64_t op, address;
    const char* name;
    bool write;
  };
  std::vector<Illegal> illegal_accesses;
  void reset();
  void forget(std::uint64_t begin, std::uint64_t end);  // memory that can no longer be named
  // Physical memory backs these addresses, and perhaps others, too: all of its ops are compared with each other. `name`
  // is its own, and of no other: so many numbers from there are of no address.
  void map(std::uint64_t begin, std::uint64_t end, std::uint64_t name) { mapped_[begin] = {end, name}; }
  void unmap(std::uint64_t begin, std::uint64_t end) {
    mapped_.erase(mapped_.lower_bound(begin), mapped_.lower_bound(end));
  }

 private:
  struct Touch {
    std::uint32_t chain, tick;
    std::uint64_t op;
    const char* name;
  };
  struct Cell {
    std::uint64_t end = 0;
    Touch writer{};  // tick 0: none
    std::vector<Touch> readers;
  };
  using Shadow = std::map<std::uint64_t, Cell>;

  Shadow::iterator split(std::uint64_t address);
  void check(const Actor& actor, SimcudaRange range, bool write);
  void check_plain(const Actor& actor, const SimcudaRange& range, bool write);
  void report(const Touch& first, bool first_writes, const Actor& second, bool second_writes, SimcudaRange range);

  std::vector<std::uint32_t> next_tick_;
  Ticks host_;
  Shadow shadow_;
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> mapped_;  // begin: end and name
  std::set<std::pair<std::uint64_t, std::uint64_t>> reported_;
  std::set<std::string> names_;
};

// Sorts ranges and merges those that touch.
void merge(std::vector<SimcudaRange>& ranges);

}  // namespace simcuda
