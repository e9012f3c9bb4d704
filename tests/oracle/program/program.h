// A random program: what it allocates, and the ops of the step that it repeats.
//
// Made from a seed alone, the same on every machine. It is valid: no op reads memory that nothing has written, memory
// is used between its allocation and its free, and every two ops that conflict are ordered, by their stream or by
// events. So whatever orders its ops any other way that a correct schedule allows computes the same.
//
// Plain data; no errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nimble::oracle {

enum class Memory : std::uint8_t {
  device,    // cuMemAlloc, for the whole run
  managed,   // cuMemAllocManaged, likewise
  pooled,    // cuMemAllocAsync, likewise
  pinned,    // cuMemAllocHost, likewise
  pageable,  // the host's own
  local,     // cuMemAllocAsync and cuMemFreeAsync in the step
  own_pool,  // the same, from a pool of the program's
  plain,     // cuMemAlloc and cuMemFree in the step
  carried,   // cuMemAllocAsync in the step, cuMemFreeAsync before that in the next one
};

struct Buffer {
  Memory memory = Memory::device;
  std::uint32_t bytes = 0;
  bool input = false;      // pinned: the host writes it before each step, in two halves by turns
  bool addresses = false;  // holds addresses, so its contents are not part of the result
  bool later = false;      // not there before something is kept as this buffer (OpKind::keep)
};

// Bytes of a buffer.
struct Range {
  std::uint32_t buffer = 0, begin = 0, end = 0;
  bool writes = false;
};

// Where a pointer points to. It may be somewhere else from step to step; in memory that stays only. Here and below
// steps are counted from the first that is not calm, and in what is calm all is as in step 0.
struct Place {
  std::uint32_t buffer = 0, offset = 0;
  std::uint32_t stride = 0, period = 1;   // so many bytes further in every step, and back to the beginning
  std::uint32_t other = 0;                // the buffer in other steps:
  std::uint32_t other_from = 0xffffffff;  // from this one on
  bool other_odd = false;                 // every second one
};

// See kernels.cu.
// clang-format off
#define NIMBLE_ORACLE_KERNELS(X)                                                                          \
  X(map1, "_Z3mapILi1EEvPKjPjij") X(map3, "_Z3mapILi3EEvPKjPjij") X(gather, "_Z6gatherPKjS0_Pjij")        \
  X(in_place, "_Z8in_placePjij") X(accumulate, "_Z10accumulatePjPKji") X(reduce, "_Z6reducePKjPji")       \
  X(fill, "_Z4fillPjij") X(strided, "_Z7stridedPKjPjii") X(scatter, "_Z7scatterPKjPji")                   \
  X(bytes, "_Z5bytesPKhPhi") X(by_struct, "_Z9by_struct3Job") X(by_array, "_Z8by_arrayi8Pointers")        \
  X(moved, "_Z5movedPjlli") X(backwards, "_Z9backwardsPjij") X(sometimes, "_Z9sometimesPKjPjij")          \
  X(through_table, "_Z13through_tablePKPji") X(opaque_map, "opaque_map")                                  \
  X(opaque_in_place, "opaque_in_place")
// clang-format on

enum class Kernel : std::uint8_t {
#define X(id, name) id,
  NIMBLE_ORACLE_KERNELS(X)
#undef X
      count
};

const char* name_of(Kernel kernel);

// Whether memory comes and goes with the step.
inline bool of_step(Memory memory) {
  return memory == Memory::local || memory == Memory::own_pool || memory == Memory::plain || memory == Memory::carried;
}
inline bool on_device(Memory memory) { return memory != Memory::pinned && memory != Memory::pageable; }

enum class OpKind : std::uint8_t {
  launch,
  copy,   // `height` rows
  set,    // likewise
  alloc,  // `buffer`
  free,   // likewise
  graph,  // all of Program::graph, captured beforehand
  record,
  wait,         // `event`: between streams, or for the host
  host_wait,    // for `event`; then the host reads `places`, if there are any
  poll,         // the host asks for `event`, and does not mind the answer
  synchronize,  // the host waits for all, and reads `places`
  // In disorder only (disorder.h):
  keep,           // `buffer` is `other` from here on
  exchange,       // `buffer` and `other` change places
  replace,        // `buffer` moves to memory of its own; `blocking`: it is freed first, and holds something else then
  renew_event,    // `event` is destroyed, and another one made
  query,          // the host asks for the stream, and does not mind the answer
  wait_stream,    // the host waits for the stream
  read_back,      // the host reads `places`, `width` bytes, by a blocking copy
  host_function,  // does nothing
  look,           // what the driver knows of the first of `places`
  captured,       // a launch, captured and launched as a graph
  reloaded,       // a launch of a kernel that is loaded anew, and goes again
  dawdle,         // the host takes `count` microseconds
};

inline bool launches(OpKind kind) {
  return kind == OpKind::launch || kind == OpKind::captured || kind == OpKind::reloaded;
}

constexpr std::uint32_t kReadBytes = 64;  // of each place that the host reads where it waits for all

struct Op {
  OpKind kind = OpKind::launch;
  std::uint32_t stream = 0;
  std::vector<Place> places;  // launch: its pointers in the order of parameters; copy: to, from; set: to

  Kernel kernel = Kernel::map1;
  bool proven = false;  // from the image with PTX
  std::uint32_t count = 0, stride = 0;
  std::uint32_t salt = 0;  // launch: mixed with the number of the step; set: the value

  std::uint32_t width = 0, height = 1, to_pitch = 0, from_pitch = 0;  // bytes
  std::uint32_t element = 1;                                          // set: 1, 2, 4
  bool blocking = false;                                              // by the call that returns when it is done
  bool packed = false;                                                // launch: parameters in one buffer

  std::uint32_t skip = 0;  // left out in each that many'th step; 0: never
  bool shrinks = false;    // launch: of half as many elements in every second step
  bool stale = false;      // launch: passes where `buffer` is or was, and does not touch it

  std::uint32_t buffer = 0, event = 0, other = 0;
  std::uint32_t more_blocks = 0;  // launch: whose threads have nothing to do
  std::uint32_t more_bytes = 0;   // alloc: unused
  std::vector<Range> ranges;      // just what it touches, in all steps together
  bool opaque = false;            // whatever looks at it from outside must take it to touch anything
};

enum class StreamKind : std::uint8_t { legacy, blocking, non_blocking };

// How steps end, where the host writes the next one's input.
enum class Ending : std::uint8_t { none, synchronize, events };

struct Program {
  std::uint64_t seed = 0;
  std::uint32_t repeats = 0;
  std::uint32_t calm = 0;  // how many initial steps are all alike; variation begins after them
  std::uint32_t streams = 1;
  StreamKind stream_kind = StreamKind::blocking;
  bool ordered_widely =
      false;  // several streams: ops that touch the same buffer are ordered though they do not conflict
  Ending ending = Ending::none;
  std::vector<Buffer> buffers;
  std::vector<Op> ops;
  std::vector<Op> graph;
  std::uint32_t events = 0;
  std::vector<Place> table;                        // where the pointers of the table lead to; empty: no table
  std::uint32_t table_buffer = 0, table_host = 0;  // where it is
  bool swaps = false;                              // after each step, buffers 0 and 1 change places
  bool spare_stream = false;                       // one more stream, which the step does not use
  std::uint32_t extra_every = 0;                   // an op between steps, after each that many; 0: none
};

struct Limits {
  std::uint32_t ops = 0xffffffff;      // no more than so many of the ops that are drawn
  std::vector<std::uint32_t> without;  // of these, the ones to leave out, and what cannot do without them
  std::uint32_t repeats = 0;           // 0: as drawn
  bool several_streams = false;        // whatever was drawn
};

Program make_program(std::uint64_t seed, const Limits& limits = {});

// How many ops were drawn before `limits` and what orders streams.
std::uint32_t drawn_ops(std::uint64_t seed, bool several_streams = false);

// One line per op, for people.
std::string describe(const Program& program);
std::string line_of(const Op& op);

}  // namespace nimble::oracle
