// The records of a trace: what shim/record/trace/ writes and analyzer/input/ reads. docs/reference/formats.md has the
// grammar on disk.
//
// Plain data without behaviour; not synchronised.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nimble/internal/address_expressions.h"

namespace nimble {

// Raised whenever a reader of the previous version would misread a file. Listed with its reason in
// docs/reference/formats.md.
inline constexpr int kTraceVersion = 2;

inline constexpr std::uint32_t kNone = 0xffffffffu;  // "no such id" wherever an id is optional

// Every kind of call that a trace holds, with its name on disk. The first group puts work on a stream: ops. The last
// ones are not driver calls: the program has marked its step (include/nimble/nimble.h).
// clang-format off
#define NIMBLE_CALL_KINDS(X)                                                                     \
  X(launch) X(copy) X(set) X(event_record) X(event_wait) X(host_function) X(graph_launch)        \
  X(alloc_async) X(free_async) X(opaque)                                                         \
  X(alloc) X(free) X(stream_synchronize) X(event_synchronize) X(context_synchronize)             \
  X(capture_begin) X(capture_end) X(hidden) X(context_end)                                       \
  X(step_begin) X(step_end)
// clang-format on

enum class CallKind : std::uint8_t {
#define X(name) name,
  NIMBLE_CALL_KINDS(X)
#undef X
};

inline constexpr std::string_view kCallKindNames[] = {
#define X(name) #name,
    NIMBLE_CALL_KINDS(X)
#undef X
};

inline constexpr std::string_view name(CallKind kind) { return kCallKindNames[static_cast<int>(kind)]; }

// Whether calls of this kind put work on a stream.
inline constexpr bool is_op(CallKind kind) { return kind <= CallKind::opaque; }
inline constexpr bool is_allocation(CallKind kind) { return kind == CallKind::alloc || kind == CallKind::alloc_async; }

// Where an allocation's memory is, and who can touch it. `global` is a module's variable, `mapped` a VMM mapping or
// memory of a program's graph, `external` memory that another process or another API also reaches.
// clang-format off
#define NIMBLE_MEMORY_KINDS(X) \
  X(device) X(stream_ordered) X(pinned) X(registered) X(managed) X(mapped) X(global) X(external)
// clang-format on

enum class MemoryKind : std::uint8_t {
#define X(name) name,
  NIMBLE_MEMORY_KINDS(X)
#undef X
};

inline constexpr std::string_view kMemoryKindNames[] = {
#define X(name) #name,
    NIMBLE_MEMORY_KINDS(X)
#undef X
};

inline constexpr std::string_view name(MemoryKind kind) { return kMemoryKindNames[static_cast<int>(kind)]; }

// Whether such memory outlives the context that it was allocated in: pools and mappings belong to the device.
inline constexpr bool outlives_contexts(MemoryKind kind) {
  return kind == MemoryKind::stream_ordered || kind == MemoryKind::mapped || kind == MemoryKind::external;
}

// How a stream is ordered with others: `legacy` and `per_thread` are the default streams; a `blocking` stream is
// ordered with the legacy stream, a `non_blocking` one is not.
#define NIMBLE_STREAM_KINDS(X) X(legacy) X(per_thread) X(blocking) X(non_blocking)

enum class StreamKind : std::uint8_t {
#define X(name) name,
  NIMBLE_STREAM_KINDS(X)
#undef X
};

inline constexpr std::string_view kStreamKindNames[] = {
#define X(name) #name,
    NIMBLE_STREAM_KINDS(X)
#undef X
};

inline constexpr std::string_view name(StreamKind kind) { return kStreamKindNames[static_cast<int>(kind)]; }

// A kernel parameter's place in the packed parameter buffer, in bytes.
struct ParamLayout {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
  bool operator==(const ParamLayout&) const = default;
};

// A loaded module or library. `self_contained` is true only if its code was read and has no global variables and no
// calls out of it (printf, device malloc, dynamic parallelism): then its kernels reach memory through their parameters
// alone. If it could not be read it is false, and `why` says so.
struct TraceImage {
  bool self_contained = false;
  std::string why;
};

// A condition: the number of 1, 2, 4 or 8 bytes at this offset of the packed parameters equals `value`, or does not.
struct ParamCondition {
  std::uint32_t at = 0, bytes = 0;
  bool equal = true;
  std::uint64_t value = 0;
  bool operator==(const ParamCondition&) const = default;
};

// Memory that a kernel may touch, by its code: that which a pointer in one of these 8-byte words of the packed
// parameters (byte offsets, ascending) points to. Nearly always one word; several if the code selects between them, or
// adds them.
struct ProvenAccess {
  std::vector<std::uint32_t> at;
  bool reads = false, writes = false;
  std::vector<ParamCondition> when = {};  // it does so only in launches for which all of these hold
  bool operator==(const ProvenAccess&) const = default;
};

// A variable of its image that a kernel may touch, by its code, and its address.
struct ProvenGlobal {
  std::string name;
  std::uint64_t address = 0, bytes = 0;
  bool reads = false, writes = false;
  bool operator==(const ProvenGlobal&) const = default;
};

// All that a kernel may touch, by the data flow of its PTX. If the machine code is for another architecture, the source
// may differ there: then `same_code` is false.
struct KernelProof {
  std::vector<ProvenAccess> accesses;
  std::vector<ProvenGlobal> globals;  // by name, ascending
  std::vector<std::uint32_t> stored;  // words that it may store to memory unchanged: pointers for others to follow
  AddressExtents extents;             // how far these accesses get
  bool same_code = false;
};

// A kernel. `params` is absent if the driver could not tell the layout; then launches have no parameter bytes.
struct TraceFunction {
  std::string name;             // as the driver gives it: mangled for C++ kernels
  std::uint32_t image = kNone;  // index into Trace::images, kNone if unknown
  std::optional<std::vector<ParamLayout>> params;
  // As in TraceImage, but for this kernel alone: that of its image if the trace does not tell.
  bool self_contained = false;
  // It would be, except for constant variables of its image. No kernel can write these, and the host only at an address
  // that it has looked up: if the program has looked up none, the trace reader sets `self_contained`.
  bool constants = false;
  std::string why;
  std::optional<KernelProof> proof;
  std::string why_not_proven;
  bool follows_memory = false;  // where nothing is proven: its code may follow addresses that it loads from memory
  std::uint64_t code = 0;       // a digest of its image; 0 if unknown
};

// What a probe saw of a launch, by comparing memory before and after it (NIMBLE_PROBE). Both ascending, without
// overlap.
struct TraceProbe {
  struct Range {
    std::uint64_t address = 0, bytes = 0;
    bool operator==(const Range&) const = default;
  };
  std::vector<Range> compared;  // objects, each from its first byte to its last
  std::vector<Range> written;   // what changed in them, in whole chunks
  bool addresses = false;       // what was written there looks like addresses of the program's memory
  bool plain = false;           // nothing in any of them, before the launch or after it, does
};

// The probe's totals.
struct TraceProbing {
  std::uint64_t limit_bytes = 0;          // larger objects were left out; 0: none
  std::uint64_t launches = 0;             // while the probe was active
  std::uint64_t compared = 0, bytes = 0;  // launches that were compared, at least in part; bytes copied to the host
  double ms = 0;                          // that the program waited
  std::uint64_t too_large = 0;            // objects that were left out
  std::string why_ended;                  // if it ended before the program did
};

struct TraceStream {
  std::uint32_t context = 0;
  StreamKind kind = StreamKind::blocking;
  std::uint32_t thread = kNone;  // for per_thread: whose
};

// A rectangle of bytes: `height` rows of `width` bytes, `pitch` bytes apart. One row for plain ranges.
struct TraceRegion {
  std::uint64_t address = 0;
  std::uint64_t pitch = 0;
};

// An op's access to a range of bytes. No bytes: to the whole allocation that holds the address.
struct TraceAccess {
  std::uint64_t address = 0, bytes = 0;
  bool reads = false, writes = false;
  bool operator==(const TraceAccess&) const = default;
};

// A word in a copy: 8 bytes at a multiple of 8 in the copy's destination that may be an address.
struct TraceWord {
  std::uint64_t offset = 0;  // from where the copy begins
  std::uint64_t value = 0;
};

// What each launch of one of the program's graphs does: what its copies, sets and allocations touch, and the kernels
// with their packed parameters. If a node could not be read the whole graph is unknown, and `why` says so.
struct TraceGraph {
  struct Kernel {
    std::uint32_t function = kNone;
    std::vector<std::uint8_t> params;
  };
  bool known = false;
  std::string why;
  std::vector<TraceAccess> accesses;
  std::vector<Kernel> kernels;
};

// One call. `kind` decides which fields are meaningful; all others keep their defaults.
struct TraceCall {
  std::uint64_t seq = 0;  // position in the order of the program's calls, over all threads
  CallKind kind = CallKind::opaque;
  std::string symbol;            // the entry point that the program called
  std::uint32_t thread = 0;      // the calling thread
  double host_begin_us = 0;      // host time of the call, microseconds since the trace began
  double host_duration_us = 0;   // how long the call took on the host
  std::int32_t result = 0;       // CUresult; calls that failed have no effect but stay in the trace
  std::uint32_t stream = kNone;  // ops and stream_synchronize
  std::uint32_t event = kNone;   // event_record, event_wait, event_synchronize; launch: recorded by the launch itself
  std::uint32_t event2 = kNone;  // launch: a second one
  // When the GPU ran the op, on the clock of host_begin_us. For a graph: all of its nodes. Negative: unknown.
  double device_begin_us = -1, device_duration_us = -1;
  bool query = false;        // the synchronize kinds: asked without waiting
  bool synchronous = false;  // ops: the host waited for it

  std::uint32_t function = kNone;  // launch
  std::array<std::uint32_t, 3> grid{}, block{};
  std::uint32_t shared_bytes = 0;    // dynamic shared memory
  std::vector<std::uint8_t> params;  // packed parameter buffer, empty if the layout is unknown
  // Words of it that look like addresses without memory that a kernel could reach; byte offsets, ascending.
  std::vector<std::uint32_t> nowhere;
  std::vector<std::uint32_t> attributes;  // CUlaunchAttributeID of attributes that are not at their default
  bool cooperative = false;
  std::uint32_t probe = kNone;  // index into Trace::probes, if it was compared
  bool plain = true;            // ops except launches: without unusual flags

  std::optional<std::vector<TraceAccess>> accesses;  // opaque: all that it touches, if known
  std::uint32_t graph = kNone;                       // graph_launch: index into Trace::graphs, kNone if unknown

  TraceRegion dst, src;                 // copy: both; set: dst
  std::uint64_t width = 0, height = 1;  // copy, set: bytes in a row, rows
  // copy from the host, of one row: all its words that point where memory was allocated. Absent: not examined.
  std::optional<std::vector<TraceWord>> words;
  std::uint32_t value = 0, element = 1;  // set: the value, and its size in bytes

  std::uint64_t address = 0, size = 0;  // alloc, alloc_async, free, free_async (size: of a free that covers more)
  MemoryKind memory = MemoryKind::device;
  bool own_pool = false;                 // alloc_async: from a pool that the program named or changed
  std::uint32_t image = kNone;           // alloc of a variable: index into Trace::images, kNone if unknown
  std::optional<std::uint32_t> context;  // alloc: in which; context_end, context_synchronize: which. Absent: unknown

  std::string note;      // hidden: what was created; step_begin: the step's name; opaque: nothing
  bool texture = false;  // hidden: a texture or a surface, which only special instructions can read or write
};

// Symbols of graph nodes that a recording holds as ops: they did not run when they were recorded.
inline constexpr const char *kKernelOfAGraph = "a kernel of a graph", *kCopyOfAGraph = "a copy of a graph",
                            *kSetOfAGraph = "a set of a graph";
inline bool is_node_of_a_graph(const TraceCall& call) {
  return call.symbol == kKernelOfAGraph || call.symbol == kCopyOfAGraph || call.symbol == kSetOfAGraph;
}
// The symbol of everything done before a recording began: an op on no stream in particular.
inline constexpr const char* kNotRecorded = "what was not recorded";

// The symbol of a captured graph's memory as seen by everything except the graph's nodes: allocated, each time that its
// content starts afresh, and released.
inline constexpr const char* kMemoryOfACapture = "memory of a captured graph";

// Whether the recorder saw all launches, copies and sets, by an independent count.
struct TraceCoverage {
  std::string why_not;  // why nothing was counted; empty if it was
  std::uint64_t seen = 0, recorded = 0;
  std::vector<std::pair<std::string, std::uint64_t>> missed;  // by entry point
};

struct Trace {
  std::string program;  // its command line, for reports only
  std::string device;   // the name of device 0, for reports only
  int driver_version = 0;
  std::vector<TraceImage> images;
  std::vector<TraceFunction> functions;
  std::vector<TraceStream> streams;
  std::vector<TraceGraph> graphs;
  std::vector<TraceCall> calls;  // in ascending order of seq
  std::vector<TraceProbe> probes;
  std::optional<TraceProbing> probing;
  std::string why_stopped;    // why the recording ended before the program did; else empty
  bool complete = false;      // false if the recording process ended without closing the file
  std::uint64_t dropped = 0;  // events that the recorder could not keep
  TraceCoverage coverage{"the trace does not tell", 0, 0, {}};
};

}  // namespace nimble
