// The pairs of ops that a schedule must order, for the checker: found from the accesses, by other means than those by
// which dependencies are.
//
// The accesses, the schedule and the program's order have to outlive it. One thread at a time. Time is near linear in
// ops and accesses. No errors.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/check/program_order.h"
#include "analyzer/check/schedule_order.h"
#include "analyzer/memory/byte_rect.h"

namespace nimble::analyzer {

// Two ops that must be ordered, and the accesses for which: kNone where one of them is a barrier, a record, or may be
// talking to somebody else.
struct Pair {
  std::uint32_t first, second;
  std::uint32_t first_access = kNone, second_access = kNone;
};

// Lists the pairs of one segment that must be ordered, as its ops go by in program order.
//
// Not every pair that conflicts: once a write has covered a piece of memory, what touched it before is ordered with
// what touches it later if both are ordered with that write, and these pairs are listed. So a missing pair is implied,
// and of a pair that the schedule misses one is always in the list.
class Requirements {
 public:
  Requirements(const StepAccesses& accesses, const ScheduleOrder& schedule, const ProgramOrder& order);

  // Ops come in ascending order.
  void next(std::uint32_t op);

  std::vector<Pair> pairs;  // by their second op ascending, then by their first op descending

 private:
  using Address = std::pair<std::uint32_t, std::uint64_t>;  // an address space, and a byte in it
  static constexpr std::uint32_t kArena = 0, kSeveralNames = 1, kFirstOwn = 2;
  // What one op does to a piece of memory.
  struct Use {
    std::uint32_t op, access;
    Region region;
  };
  struct Piece {
    std::uint64_t end;
    std::vector<Use> writes, reads;
  };

  // Behind all that the program has put before it: behind the last such op on its stream, and what that is not behind.
  void add_sign(std::uint32_t op);

  void touch(std::uint32_t op, std::uint32_t index);

  // Those that may each hold the room that the other waits for: behind the last on each stream that the program has put
  // before it.
  void make_room(std::uint32_t op);

  // Who may be talking to somebody else, and who touches what such talk may be about.
  void hear(std::uint32_t op);

  // Cuts the piece that holds `at` in two there.
  void split(Address at);

  void add(Piece& piece, const Use& use, bool writes);

  const StepAccesses& accesses_;
  const ScheduleOrder& schedule_;
  const ProgramOrder& order_;
  std::map<Address, Piece> pieces_;  // without overlap
  std::vector<std::uint32_t> since_barrier_, since_shared_talk_;
  std::vector<std::vector<std::uint32_t>> on_, waiting_;  // the ops so far, by stream; those that wait for others' room
  // Of each stream the last that is behind all before it, the last record, and the last that others may have told
  // something.
  std::vector<std::uint32_t> sign_, record_, heard_;
  std::uint32_t last_barrier_ = kNone, last_talk_ = kNone, last_shared_talk_ = kNone;
};

}  // namespace nimble::analyzer
