// The pairs of ops that a schedule must order, for the checker: found from the accesses, in another way than
// dependencies are.
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

// Two ops that must be ordered, and the accesses that require it: kNone if one of the ops is a barrier, a record, or
// may be communicating.
struct Pair {
  std::uint32_t first, second;
  std::uint32_t first_access = kNone, second_access = kNone;
};

// Lists the pairs of one segment that must be ordered, as its ops go by in program order.
//
// Not every pair that conflicts: once a write has covered a piece of memory, what touched it before is ordered with
// what touches it later if both are ordered with that write, and these pairs are listed. So a pair that is left out is
// implied, and if a schedule misses any pair it misses one that is listed.
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
    ByteRect rect;
  };
  struct Piece {
    std::uint64_t end;
    std::vector<Use> writes, reads;
  };

  // An op that comes after all that the program has put before it: after the last such op on its stream, and what that
  // one does not come after.
  void add_sign(std::uint32_t op);

  void touch(std::uint32_t op, std::uint32_t index);
  // Accesses by chance, with each that they are in conflict with and that the program has put before; true if this is
  // one.
  bool touch_by_chance(std::uint32_t op, std::uint32_t index);

  // Ops that may each hold the room that the other waits for: each comes after the last on every stream that the
  // program has put before it.
  void make_room(std::uint32_t op);

  // Ops that may be communicating, and ops that touch memory that a message may be about.
  void hear(std::uint32_t op);

  // Splits the piece that holds `at` in two there.
  void split(Address at);

  void add(Piece& piece, const Use& use, bool writes);

  const StepAccesses& accesses_;
  const ScheduleOrder& schedule_;
  const ProgramOrder& order_;
  std::map<Address, Piece> pieces_;  // disjoint
  bool has_chance_ = false;
  std::map<std::uint32_t, std::vector<Use>> uses_;  // by object, if there are accesses by chance
  std::vector<std::uint32_t> since_barrier_, since_shared_talk_;
  std::vector<std::vector<std::uint32_t>> on_, waiting_;  // the ops so far, by stream; those that wait for others' room
  // Per stream: the last op that comes after all before it, the last record, and the last op that others may have told
  // something.
  std::vector<std::uint32_t> sign_, record_, heard_;
  std::uint32_t last_barrier_ = kNone, last_talk_ = kNone, last_shared_talk_ = kNone;
};

}  // namespace nimble::analyzer
