// The records of a schedule: what analyzer/ writes and replayer/ reads. The grammar on disk stands in
// docs/reference/formats.md.
//
// Plain data without behaviour. It holds no address of the process that was recorded: pointers are (object, offset).
// Whoever read or built a Schedule owns it; once built it is not changed, so threads may share it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nimble/internal/trace.h"

namespace nimble {

inline constexpr int kScheduleVersion = 6;

// The highest priority of a node. Devices have as many levels or fewer.
inline constexpr std::uint32_t kMaxPriority = 5;

// The most streams that a step may use.
inline constexpr std::uint32_t kMaxStreams = 16;

// The most kinds of step in a schedule.
inline constexpr std::uint32_t kMaxKinds = 16;

// Bytes: where the memory plan may put an object. What the driver's own pools keep to, and what a texture needs
// (CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT of all GPUs so far).
inline constexpr std::uint64_t kPlanAlignment = 512;

// A stream of the program's that the step uses. The first one in the list is the one that graphs are launched on.
struct ScheduleStream {
  StreamKind kind = StreamKind::blocking;  // never per_thread
  // All that the step puts on it comes, by the program's own events, after something that the step has put on the first
  // stream before.
  bool forked = false;
};

// One allocation that the step touches. `step_local` objects are allocated and freed by ops of the step: the replayer
// gives them addresses from the memory plan. All others are the program's, found by the pointers that it passes.
struct ScheduleObject {
  MemoryKind memory = MemoryKind::device;
  std::uint64_t size = 0;  // bytes
  bool step_local = false;
  std::uint64_t plan_offset = 0;  // step_local: bytes from the start of the arena; a multiple of kPlanAlignment
};

// A pointer into an object. `fixed` says that the schedule's parallelism rests on this offset, so the live call must
// have the same one; otherwise it may move freely inside the object.
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

// A word of what a copy from the host carries that is a pointer for kernels to follow.
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
//   order    an event wait for what the step itself has recorded: nothing is submitted, since its segment's graph keeps
//            the order, as that of the graphs before it does
//   plan     an async alloc or free of a step_local object: answered from the memory plan, nothing is submitted
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
  std::uint32_t priority = 0;     // launches of a graph: who gets multiprocessors first, 0 to kMaxPriority

  std::uint32_t function = kNone;  // launch
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t shared_bytes = 0;
  bool fixed_launch = false;  // the launch shape must match to the letter (its accesses were ranges)
  // The op keeps its place among all others, whatever it touches: its parameters may hold anything, and are not looked
  // into. `pointers` and `numbers` are empty then.
  bool barrier = false;
  std::vector<ScheduleParam> pointers;
  // Bytes in the parameter buffer of 8-byte words that are no pointers, whatever they look like: a rule or the code
  // says so. Any other word that is not in `pointers` must lead nowhere (nimble/internal/address_probe.h) in the live
  // step.
  std::vector<std::uint32_t> numbers;
  std::vector<ScheduleBytes> equal;  // bytes of the parameters that must be as recorded
  // Launches, for audits: the objects that it may write, where that is known; and those that it reads only if a name, a
  // rule or an observation tells the truth.
  std::optional<std::vector<std::uint32_t>> writes = std::nullopt;
  std::vector<std::uint32_t> believed_reads = {};

  SchedulePointer dst, src;  // copy, set
  std::uint64_t dst_pitch = 0, src_pitch = 0;
  std::uint64_t width = 0, height = 1;  // bytes, rows
  std::uint32_t element = 1;            // set
  // copy, direct ones as well: other ops' accesses rest on its content, which must hold these pointers and no others.
  std::optional<std::vector<SchedulePayload>> payload;

  // order: the op of the same step that has recorded the event; kNone: one of an earlier step.
  std::uint32_t record = kNone;

  std::uint32_t object = kNone;  // alloc_async, free_async: the object, where it is one of the schedule's
  std::uint64_t size = 0;        // alloc_async: bytes asked for
};

// A run of graph and order ops that one graph submits. `edges` are pairs of indices into Schedule::ops, both inside the
// segment, the earlier op first: everything that the graph must keep in order, without redundant edges. `order` lists
// the ops in the order in which their nodes are to be created: a topological order, critical path first. Both name
// graph ops only.
struct ScheduleSegment {
  std::uint32_t first = 0, last = 0;   // inclusive range of op indices; `plan` ops may lie between
  std::uint32_t lanes = 0;             // streams used
  std::uint32_t synchronizations = 0;  // dependencies between different lanes
  std::vector<std::array<std::uint32_t, 2>> edges;
  std::vector<std::uint32_t> order;
};

// A variable of the function's image that it touches by its code.
struct ScheduleGlobal {
  std::string name;
  std::uint32_t object = kNone;
  bool reads = false, writes = false;
};

// A run of ops, from `first` to where the next branch begins, that comes in a step right behind the op `after`, which
// is of an earlier branch. kNone: a step begins with it.
struct ScheduleBranch {
  std::uint32_t first = 0, after = kNone;
};

struct ScheduleFunction {
  std::string name;
  std::vector<ParamLayout> params;
  bool self_contained = false;  // what the recorded code was; the live one must be no less
  // What its code proved, where dependencies rest on that: the live code must prove the same.
  std::optional<std::vector<ProvenAccess>> proven = std::nullopt;
  std::vector<std::uint32_t> stored = {};    // of what is proven: as of KernelProof
  std::vector<ScheduleGlobal> globals = {};  // the same; by name, ascending
  // A digest of the image that it came from, where dependencies rest on what its launches were seen to do: the live
  // code must be the same. 0: any may be.
  std::uint64_t code = 0;
};

// What the schedule's freedom rests on: pairs of ops of one graph that nothing orders, by the weaker evidence of the
// two.
struct ScheduleFreedom {
  std::uint64_t exact = 0, proven = 0, declared = 0, observed = 0;
  bool estimated = false;
};

// Whether an 8-byte word could be an address that user space can have. Linux maps nothing below 2^16; 2^57 is the most
// that five-level page tables give.
inline constexpr bool could_be_address(std::uint64_t word) {
  return word >= std::uint64_t{1} << 16 && word < std::uint64_t{1} << 57;
}

// What such a word stands for although it leads nowhere, so that nobody can tell what a kernel does with it: what
// begins fewer bytes behind it than this (arrays that are counted from one, iterators that go backwards), and what the
// bits that addresses have say, where there is a tag in the others.
inline constexpr std::uint64_t kJustBefore = 256;
inline constexpr std::uint64_t kAddressBits = (std::uint64_t{1} << 48) - 1;

// What replay found out about the ways of submitting steps of one kind (replayer/tune/tuner.h), where it was asked to
// keep it.
struct ScheduleChoice {
  std::uint32_t way = kNone;             // the fastest; kNone: nothing is known
  std::array<double, 3> us{-1, -1, -1};  // microseconds of a step by each way; negative: not timed
};

struct Schedule {
  std::string policy;
  std::string trace_digest;  // XXH3-64 of the trace file, hex: for reports
  std::string trust;         // the weakest evidence that was believed: for checks and reports
  ScheduleFreedom freedom;   // for reports
  std::vector<ScheduleFunction> functions;
  std::vector<ScheduleObject> objects;
  std::vector<ScheduleStream> streams = std::vector<ScheduleStream>(1);
  // The step, in the order in which it was recorded. Of that, replay holds the program to the order of each stream, and
  // to what its events say across them.
  std::vector<ScheduleOp> ops;
  // Where the program has several kinds of step: the branches of their ops, ascending, and of each kind the last op.
  // No segment goes beyond its branch, nor beyond an op behind which another branch begins or a step may end.
  // nimble/internal/step_paths.h makes paths of them. One branch, and no ends, for a step of one kind.
  std::vector<ScheduleBranch> branches = std::vector<ScheduleBranch>(1);
  std::vector<std::uint32_t> ends;
  std::vector<ScheduleSegment> segments;
  std::uint64_t arena_bytes = 0;  // what the memory plan needs
  bool carries = false;  // it rests on what the step before has left in memory: that one must have been as recorded
  std::vector<ScheduleChoice> tuned;  // by kind of step; empty where nothing was kept
  bool textures = false;  // it holds although the program has textures or surfaces: no access rests on their absence

  // Whether it rests on which pointers lie in memory, the step's own ones or those of the step before.
  bool rests_on_pointers() const {
    return carries || std::any_of(ops.begin(), ops.end(), [](const ScheduleOp& op) { return op.payload.has_value(); });
  }
};

}  // namespace nimble
