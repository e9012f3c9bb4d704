// The records of a schedule: what analyzer/ writes and replayer/ reads. docs/reference/formats.md has the grammar on
// disk.
//
// Plain data without behaviour. It holds no address of the recorded process: pointers are (object, offset). Once built
// it does not change, so threads may share it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nimble/internal/evidence.h"
#include "nimble/internal/trace.h"

namespace nimble {

inline constexpr int kScheduleVersion = 6;

// The highest priority of a node. Devices have at most as many levels.
inline constexpr std::uint32_t kMaxPriority = 5;

// The most streams that a step may use.
inline constexpr std::uint32_t kMaxStreams = 16;

// The most kinds of step in a schedule.
inline constexpr std::uint32_t kMaxKinds = 16;

// Bytes: the alignment of objects in the memory plan. That of the driver's own pools, and enough for textures
// (CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT of all GPUs so far).
inline constexpr std::uint64_t kPlanAlignment = 512;

// One of the program's streams that the step uses. Graphs are launched on the first one in the list.
struct ScheduleStream {
  StreamKind kind = StreamKind::blocking;  // never per_thread
  // By the program's own events, all of the step's work on it is ordered after earlier work of the step on the first
  // stream.
  bool forked = false;
};

// One allocation that the step touches. `step_local` objects are allocated and freed by ops of the step: the replayer
// gives them addresses from the memory plan. All others belong to the program, and are found by the pointers that it
// passes.
struct ScheduleObject {
  MemoryKind memory = MemoryKind::device;
  std::uint64_t size = 0;  // bytes
  bool step_local = false;
  std::uint64_t plan_offset = 0;  // step_local: bytes from the start of the arena; a multiple of kPlanAlignment
};

// A pointer into an object. `fixed` says that the schedule's parallelism depends on this offset, so the live call must
// have the same one; otherwise it may vary freely inside the object.
struct SchedulePointer {
  std::uint32_t object = kNone;
  std::uint64_t offset = 0;
  bool fixed = false;
};

// A pointer among a launch's parameters: an 8-byte aligned word at byte `at` of the packed parameter buffer.
struct ScheduleParam {
  std::uint32_t at = 0;
  SchedulePointer pointer;
};

// A word in a copy from the host that is a pointer for kernels to follow.
struct SchedulePayload {
  std::uint64_t at = 0;  // byte of the payload
  SchedulePointer pointer;
};

// Bytes of a launch's packed parameters.
struct ScheduleBytes {
  std::uint32_t at = 0;
  std::vector<std::uint8_t> bytes;
};

// How the replayer submits an op:
//   graph    a node of its segment's graph
//   order    an event wait for a record of the step itself: not submitted, since its segment's graph, or the order of
//            graphs, ensures it
//   plan     an async alloc or free of a step_local object: answered from the memory plan, not submitted
//   direct   by the program's own call, between segments
enum class Submit : std::uint8_t { graph, order, plan, direct };

inline constexpr std::string_view kSubmitNames[] = {"graph", "order", "plan", "direct"};

inline constexpr std::string_view name(Submit submit) { return kSubmitNames[static_cast<int>(submit)]; }

// Whether such an op is held for its segment's graph.
inline constexpr bool is_held(Submit submit) { return submit == Submit::graph || submit == Submit::order; }

struct ScheduleOp {
  CallKind kind = CallKind::opaque;
  Submit submit = Submit::direct;
  std::uint32_t stream = 0;       // index into Schedule::streams
  std::uint32_t segment = kNone;  // graph and order ops: which
  std::uint32_t lane = 0;         // graph ops: the stream that the policy assigned, within the segment
  std::uint32_t priority = 0;     // launches of a graph: for multiprocessors, 0 to kMaxPriority

  std::uint32_t function = kNone;  // launch
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t shared_bytes = 0;
  bool fixed_launch = false;  // the launch shape must match exactly (its accesses were ranges)
  // The op is ordered with all others, whatever it touches: its parameters may hold anything, and are not inspected.
  // `pointers` and `numbers` are empty then.
  bool barrier = false;
  std::vector<ScheduleParam> pointers;
  // Offsets in the parameter buffer of 8-byte words that are not pointers, whatever they look like, by a rule or the
  // code. Any other word that is not in `pointers` must point nowhere (nimble/internal/address_probe.h) in the live
  // step.
  std::vector<std::uint32_t> numbers;
  std::vector<ScheduleBytes> equal;  // bytes of the parameters that must be as recorded
  // Launches, for audits: the objects that it may write, if known; and those that it only reads if a name, a rule or an
  // observation is right.
  std::optional<std::vector<std::uint32_t>> writes = std::nullopt;
  std::vector<std::uint32_t> believed_reads = {};

  SchedulePointer dst, src;  // copy, set
  std::uint64_t dst_pitch = 0, src_pitch = 0;
  std::uint64_t width = 0, height = 1;  // bytes, rows
  std::uint32_t element = 1;            // set
  // copy, also direct: other ops' accesses depend on its content, which must hold these pointers and no others.
  std::optional<std::vector<SchedulePayload>> payload;

  // order: the op of the same step that recorded the event; kNone: one of an earlier step.
  std::uint32_t record = kNone;

  std::uint32_t object = kNone;  // alloc_async, free_async: the object, if it is one of the schedule's
  std::uint64_t size = 0;        // alloc_async: bytes requested
};

// A run of graph and order ops that one graph submits. `edges` are pairs of indices into Schedule::ops, both inside the
// segment, the earlier op first: all the order that the graph must keep, without redundant edges. `order` lists the ops
// in the order in which their nodes are to be created: a topological order, critical path first. Both name graph ops
// only.
struct ScheduleSegment {
  std::uint32_t first = 0, last = 0;   // inclusive range of op indices; `plan` ops may lie between
  std::uint32_t lanes = 0;             // streams used
  std::uint32_t synchronizations = 0;  // dependencies between different lanes
  std::vector<std::array<std::uint32_t, 2>> edges;
  std::vector<std::uint32_t> order;
};

// A variable of the function's image that its code touches.
struct ScheduleGlobal {
  std::string name;
  std::uint32_t object = kNone;
  bool reads = false, writes = false;
};

// A run of ops, from `first` to the begin of the next branch, that in a step directly follows the op `after`, of an
// earlier branch. kNone: it begins a step.
struct ScheduleBranch {
  std::uint32_t first = 0, after = kNone;
};

struct ScheduleFunction {
  std::string name;
  std::vector<ParamLayout> params;
  bool self_contained = false;  // of the recorded code; the live code must be so, too
  // What its code proved, if dependencies rely on that: the live code must prove the same.
  std::optional<std::vector<ProvenAccess>> proven = std::nullopt;
  std::vector<std::uint32_t> stored = {};    // of what is proven: as in KernelProof
  std::vector<ScheduleGlobal> globals = {};  // the same; by name, ascending
  // Of doubts that launches' numbers exclude (digest_of_doubts): the live code must have the same.
  std::uint64_t doubts = 0;
  // A digest of its image, if dependencies rely on observations of its launches: the live code must be the same. 0: any
  // code.
  std::uint64_t code = 0;
};

// What the schedule's freedom relies on: pairs of unordered ops in a graph, by the weaker evidence of the two.
struct ScheduleFreedom {
  std::uint64_t exact = 0, proven = 0, declared = 0, observed = 0;
  bool estimated = false;
};

// Whether an 8-byte word could be a user-space address. Linux maps nothing below 2^16; five-level page tables end at
// 2^57.
inline constexpr bool could_be_address(std::uint64_t word) {
  return word >= std::uint64_t{1} << 16 && word < std::uint64_t{1} << 57;
}

// A word that points nowhere may still mean memory that begins fewer bytes after it than this (arrays indexed from one,
// backward iterators), or, with a tag in its upper bits, the address in the others; then it is unknown what a kernel
// does with it.
inline constexpr std::uint64_t kJustBefore = 256;
inline constexpr std::uint64_t kAddressBits = (std::uint64_t{1} << 48) - 1;

// What replay found about the ways of submitting steps of one kind (replayer/tune/tuner.h), if asked to keep it.
struct ScheduleChoice {
  std::uint32_t way = kNone;             // the fastest; kNone: unknown
  std::array<double, 3> us{-1, -1, -1};  // microseconds of a step by each way; negative: not timed
};

struct Schedule {
  std::string policy;
  std::string trace_digest;  // XXH3-64 of the trace file, hex: for reports
  std::string trust;         // the weakest evidence that was trusted
  ScheduleFreedom freedom;
  std::vector<ScheduleFunction> functions;
  std::vector<ScheduleObject> objects;
  std::vector<ScheduleStream> streams = std::vector<ScheduleStream>(1);
  // The step, in recorded order. Of that order, replay requires the program to keep each stream's, and what its events
  // add between streams.
  std::vector<ScheduleOp> ops;
  // If the program has several kinds of step: the branches of their ops, ascending, and each kind's last op. No segment
  // extends beyond its branch, nor beyond an op after which another branch begins or a step may end.
  // nimble/internal/step_paths.h makes paths of them. One branch, and no ends, for one kind of step.
  std::vector<ScheduleBranch> branches = std::vector<ScheduleBranch>(1);
  std::vector<std::uint32_t> ends;
  std::vector<ScheduleSegment> segments;
  std::uint64_t arena_bytes = 0;  // what the memory plan needs
  bool carries = false;  // it relies on memory contents left by the previous step, which must have been as recorded
  std::vector<ScheduleChoice> tuned;  // by kind of step; empty if nothing was kept
  bool textures = false;  // it holds even if the program has textures or surfaces: no access relies on their absence

  // Whether two ops may be unordered only because of what is believed of one of them. An estimate may have missed that.
  bool rests_on_beliefs() const {
    const bool believes = trust == name(Evidence::declared) || trust == name(Evidence::observed);
    return freedom.declared + freedom.observed > 0 || (freedom.estimated && believes);
  }

  // Whether it relies on which pointers lie in memory, from this step or the previous one.
  bool rests_on_pointers() const {
    return carries || std::any_of(ops.begin(), ops.end(), [](const ScheduleOp& op) { return op.payload.has_value(); });
  }
};

}  // namespace nimble
