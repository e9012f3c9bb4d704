// What each op of the step reads and writes, and how we know.
//
// Sources of evidence implement one interface, AccessSource, and are asked in order of strength: the strongest that
// answers speaks for the op. To add one, derive a class and put it into the list that infer_accesses() is given.
// StepAccesses owns its results and refers to objects by their index in StepObjects; once built it does not change.
// Regions are bytes within the object. No errors: if no source answers, the op is assumed to touch everything.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/access/pinned_bytes.h"
#include "analyzer/memory/byte_rect.h"
#include "analyzer/memory/objects.h"
#include "analyzer/memory/step_objects.h"
#include "nimble/internal/evidence.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

class KnownKernels;
class KnownLaunch;
class PointersInMemory;

struct Access {
  std::uint32_t object = kNone;  // index into StepObjects::objects
  ByteRect rect;
  bool whole = false;  // the object, wherever in it the pointer points
  bool reads = false, writes = false;
  Evidence evidence = Evidence::assumed;
  std::uint32_t at = 0;  // as in PointerWord
  // A number leads there (analyzer/access/leaving.h), which may be chance: the program's order is kept, but where the
  // program has none, this is no reason to say that it should.
  bool by_chance = false;
};

// One op, as a source of evidence sees it.
struct OpQuestion {
  const Trace& trace;
  const TraceCall& call;
  std::span<const PointerWord> pointers;  // objects by their index in the trace's ObjectTable
  const ObjectTable& objects;
  std::span<const PointerWord> unsure;  // ObjectTable::unsure()
  std::uint32_t op = kNone;             // its place in the step; kNone for a kernel within a graph
  std::uint32_t index = kNone;          // its place in the trace; likewise
  KnownLaunch* known = nullptr;         // of a launch: what was found of it before (analyzer/access/launch_of.h)

  // Whether other nodes of the graph may fill memory before it.
  bool in_graph() const { return op == kNone; }
};

// What must be in every step as it was recorded, for a launch.
struct Pinned {
  bool shape = false;  // grid, block and shared memory
  PinnedBytes params;
  // Likewise, as far as they were the same in all steps that were recorded.
  bool usual_shape = false;
  PinnedBytes usual_params;
};

class AccessSource {
 public:
  virtual ~AccessSource() = default;
  virtual Evidence evidence() const = 0;

  // Appends what the op touches to `found` and returns true; or appends nothing, returns false, and says why in
  // `why_not`, unless the op does not concern this source. Access::object is the index of the object in op.objects; the
  // caller fills in `evidence`. A source may cache per function; one thread asks it.
  virtual bool ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) = 0;

  // Whether what it says follows from the kernel's code, and so holds only for the code that it was read from.
  virtual bool from_code() const { return false; }

  // What its answer for an op is based on, for people: "its signature".
  virtual std::string basis(const OpQuestion&) { return "what is known of it"; }

  // Whether the 8-byte word at byte `at` of the launch's parameters may be an address. The launch is one that this
  // source answered for.
  virtual bool is_pointer(const OpQuestion& op, std::uint32_t at) { return true; }

  // Adds what must be the same in every step for this source's answer to hold.
  virtual void pin(const OpQuestion& op, Pinned& pinned) {}
};

// How an op is ordered with the others.
enum class OpRole : std::uint8_t {
  accesses,  // ordered by what it touches
  barrier,   // nothing is known: ordered with everything
  record,    // event record: comes after everything before it
  wait,      // event wait: comes after the record
  none,      // alloc or free of a step-local object: answered from the memory plan
};

// Whether it may be communicating while it runs, and how that is known (analyzer/order/communication.h).
enum class Communicates : std::uint8_t {
  no,
  by_memory,  // it touches memory that others can reach: nothing says whether it communicates
  by_rule,    // a rule says so
};

struct OpAccesses {
  OpRole role = OpRole::accesses;
  Evidence evidence = Evidence::assumed;
  bool from_code = false;              // as its source says
  std::uint32_t first = 0, count = 0;  // accesses in StepAccesses::all
  std::uint32_t why = kNone;           // barrier: index into StepAccesses::reasons
  Communicates communicates = Communicates::no;
  std::uint32_t communicates_why = kNone;  // if it does: likewise
  bool shares = false;                     // touches memory that others can reach
  // It writes such memory, and whoever sees that may conclude that all before it is done.
  bool tells = false;
  bool hears = false;        // it may be waiting for what others write there, and later ops rely on that
  bool blocks_wait = false;  // they wait for each other, in a launch that does not guarantee them room
};

struct StepAccesses {
  std::vector<OpAccesses> ops;
  std::vector<Access> all;
  std::vector<std::string> reasons;
  // Per op: words of the packed parameters that the source knows not to be addresses, whatever they look like; byte
  // offsets, ascending.
  std::vector<std::vector<std::uint32_t>> no_pointers;
  std::vector<Pinned> pinned;  // per op
  // Per op: 1 for a copy or a set whose content the accesses of other ops rely on: it must stay in its place and, from
  // the host, carry the same pointers. May be empty: there are none.
  std::vector<std::uint8_t> compared;
  bool carries = false;  // accesses rely on pointers that the step before has left in memory

  std::span<const Access> of(std::uint32_t op) const { return {all.data() + ops[op].first, ops[op].count}; }
};

class ConflictFinder;

// `sources` in order of strength. `pointers` is what those sources share that ask about pointers in memory; it may be
// null. `conflicts` may correct what the sources say; it may be null. `known` keeps what launches like these reach; it
// may be null.
StepAccesses infer_accesses(const Trace& trace, const ObjectTable& table, const StepObjects& objects,
                            std::span<const std::uint32_t> calls,
                            std::span<const std::unique_ptr<AccessSource>> sources,
                            PointersInMemory* pointers = nullptr, ConflictFinder* conflicts = nullptr,
                            KnownKernels* known = nullptr);

}  // namespace nimble::analyzer
