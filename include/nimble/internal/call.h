// One intercepted driver call as the recorder and the replayer see it, and the interface through which they see it.
//
// The shim's decoders (shim/intercept/decode/) turn the arguments of all entry points that are intercepted into this
// one shape. A Call lives on the stack of the intercepted thread, and what it points to is the program's: valid between
// before() and after() only.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "nimble/internal/counters.h"
#include "nimble/internal/trace.h"

namespace nimble {

// What a call lets the host see of the GPU's progress: the last column of driver_calls.def.
enum class HostEffect : std::uint8_t { async, observe, neutral };

// What the shim knows of a loaded module or library. Owned by the shim, never freed, immutable once published; reused
// if the same code is loaded again.
struct ImageInfo {
  bool self_contained = false;
  std::string why;
};

// What the shim knows of a kernel. Likewise.
struct FunctionInfo {
  std::string name;
  const ImageInfo* image = nullptr;
  bool is_kernel_handle = false;  // a CUkernel that the program passes as a CUfunction
  std::optional<std::vector<ParamLayout>> params;
  std::uint32_t param_bytes = 0;  // size of the packed parameter buffer
  bool self_contained = false;    // for this kernel alone: its image may have less
  bool constants = false;         // it would be, except for constant variables that it may read
  std::string why;
  std::optional<KernelProof> proof;
  std::string why_not_proven;
  bool follows_memory = false;  // where nothing is proven: its code may follow addresses that it loads from memory
  std::uint64_t code = 0;       // a digest of its image; 0 if unknown
};

// A stream as the program named it. `key` tells streams apart: it is the handle, or for a default stream a number made
// from the context (and the thread, for per-thread default streams). `handle` is what the driver accepts for it from
// the same thread, whichever variant of the entry point is called. A graph's nodes are on a pseudo-stream: it has a
// context, too, and is unordered with all other streams.
struct StreamRef {
  CUstream handle = nullptr;
  std::uint64_t key = 0;

  bool is_legacy() const { return (key & 3) == 1; }
  bool is_per_thread() const { return (key & 3) == 2; }
  bool is_of_graph() const { return (key & 3) == 3; }
  bool operator==(const StreamRef& other) const { return key == other.key; }
};

// What a call ends, besides what its kind says.
enum class Ends : std::uint8_t { nothing, stream, event, code, green_context };

// What a call asks about memory. `memory`, `handle` and `physical` concern the allocation that holds `address`:
// `handle` asks for a handle by which others would reach it, `physical` for what is mapped there. `pool`: how much
// memory a device's own pool has, or has given out. `graph_memory`: which nodes `graph` has, how they are ordered, or
// how much memory all graphs have. `free_memory`: how much the current device has left. `trim`: to release unused graph
// memory.
enum class Question : std::uint8_t { none, memory, handle, physical, pool, graph_memory, free_memory, trim };

// What a call does to the program's executable graph; or to a graph: `end` it, `share` its nodes with another graph, or
// `add_release`: add a node that releases `address`. The last has in `arguments` where the node goes, its predecessors,
// the data of these edges, and their number.
enum class GraphEdit : std::uint8_t {
  none,
  instantiate,
  update,
  set_kernel,
  set_copy,
  set_set,
  set_other,
  destroy,
  end,
  share,
  add_release
};

struct Region {
  std::uint64_t address = 0;
  std::uint64_t pitch = 0;  // bytes between rows, where there is more than one
};

// Whether a launch attribute says anything: many callers pass attributes at their default. Leave to begin before the
// preceding kernel has ended is only a permission: without it the kernel waits, and computes the same.
inline bool meaningful(const CUlaunchAttribute& attribute) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      return false;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      return attribute.value.cooperative != 0;
    default:
      return true;
  }
}

// What a call says, by what it is about: a part is set for calls of its kinds, else as it begins. One call has only
// few of them; they lie side by side, since which ones is not known before its decoder has run.
struct Call {
  // Each launch makes one, so it is cleared by 16 bytes at a time. Left to themselves, compilers store member by
  // member, or clear it by one instruction that takes as long as the rest of an intercepted launch. The constructors of
  // the parts are not constexpr for the same reason.
  [[gnu::always_inline]] Call() noexcept {
    clear();
    // All members that do not begin as zeros: clear() has overwritten their initialisers.
    symbol = "";
    kind = CallKind::opaque;
    host = HostEffect::neutral;
    plain = true;
    transfer.height = 1;
    transfer.element = 1;
  }

  // --- Every call.

  const char* symbol = "";
  CallKind kind = CallKind::opaque;
  HostEffect host = HostEffect::neutral;
  bool traced = false;       // of a kind that traces hold; others (creating a stream, loading a module) only pass
  bool query = false;        // a synchronize kind that asks without waiting
  bool has_stream = false;   // whether the call names a stream
  bool plain = true;         // an op with no flags or attributes beyond what this record holds
  bool brings_code = false;  // a module or library was loaded, or a kernel of one was asked for
  bool texture = false;      // hidden: a texture or a surface
  bool shown = false;        // hidden: something other than the program's kernels may reach or see something by it
  bool unordered = false;    // what a capturing stream gets next may not be ordered after earlier work on it
  bool of_step = false;      // the replayer takes it for an op of the step
  bool takes_turn = false;   // no launch may be checked meanwhile (shim/modes/check_sink.h)
  std::uint32_t unseen = 0;  // Onlookers::passes_unseen(): how it is counted
  std::uint32_t thread = 0;
  StreamRef stream;
  const char* note = nullptr;
  const void* caller = nullptr;  // the call's return address

  // --- Launches of kernels.

  struct Launch {
    [[gnu::always_inline]] Launch() noexcept {}  // NOLINT(modernize-use-equals-default)
    CUfunction function = nullptr;
    std::array<std::uint32_t, 3> grid{}, block{};
    std::uint32_t shared_bytes = 0;
    std::uint32_t attribute_count = 0;
    bool cooperative = false;
    const CUlaunchAttribute* attributes = nullptr;
    void** kernel_params = nullptr;
    void** extra = nullptr;
  } launch;

  // --- Copies and sets.

  struct Transfer {
    [[gnu::always_inline]] Transfer() noexcept {}  // NOLINT(modernize-use-equals-default)
    Region dst, src;
    std::uint64_t width = 0, height = 1;
    std::uint32_t value = 0, element = 1;
    bool host_source = false;    // the entry point says that the source is host memory
    bool device_source = false;  // that it is device memory
  } transfer;

  // Appends all that the op touches, if the transfer's dst and src cannot express it; false if the arguments do not
  // tell. Reads the program's own arguments through `arguments`, as the decoder has put them there. Only the recorder
  // calls it, so it may allocate.
  using AccessLister = bool (*)(const Call& call, std::vector<TraceAccess>& list);
  AccessLister list_accesses = nullptr;
  std::array<const void*, 4> arguments{};

  // --- Allocations, releases, and calls that name memory.

  struct Memory {
    [[gnu::always_inline]] Memory() noexcept {}  // NOLINT(modernize-use-equals-default)
    std::uint64_t address = 0, size = 0;         // of an allocation the address is known in after() only
    // Of a release: what it can end. `device` stands for all that is allocated on the device.
    MemoryKind kind = MemoryKind::device;
    bool own_pool = false;           // alloc_async: from the program's own pool, or one that it has changed
    bool names_pool = false;         // alloc_async: the call says from which
    bool takes_any_address = false;  // an allocation that the sink may answer with memory of its own
  } memory;

  // --- Questions.

  struct Asked {
    [[gnu::always_inline]] Asked() noexcept {}  // NOLINT(modernize-use-equals-default)
    Question question = Question::none;
    bool id = false;                  // memory: CU_POINTER_ATTRIBUTE_BUFFER_ID is among the attributes asked for
    bool sets = false;                // memory: instead sets whether copies are synchronous, by the transfer's value
    bool of_capture = false;          // answered: memory of a capture, not of a step (nimble/internal/answers.def)
    bool synchronous_copies = false;  // answered
    std::uint64_t buffer_id = 0;      // answered
  } asked;

  // --- Events, contexts, and ends.

  CUevent event = nullptr, event2 = nullptr;  // event2: the second one of cuEventElapsedTime
  // context_end, context_synchronize: which; null for the current one. alloc: in which, if it ends with one and that is
  // known.
  CUcontext context = nullptr;
  Ends ends = Ends::nothing;
  const ImageInfo* image = nullptr;  // the code that ends; null if unknown

  // --- Graphs and captures.

  struct Graph {
    [[gnu::always_inline]] Graph() noexcept {}  // NOLINT(modernize-use-equals-default)
    CUgraphExec exec = nullptr;                 // graph_launch, and calls that edit a graph
    CUgraph handle = nullptr;  // capture_begin: the graph captured into, if the program names one; capture_end: the
                               // resulting one; else the one that is instantiated, ends, is shared or gets a node
    GraphEdit edit = GraphEdit::none;
  } graph;

  // Whether the host waits for this op before the call returns.
  bool synchronous() const { return is_op(kind) && host == HostEffect::observe; }

 private:
  [[gnu::always_inline]] inline void clear();
};

inline void Call::clear() {
  static_assert(std::is_trivially_copyable_v<Call>);
  using Pair [[gnu::vector_size(16)]] = std::uint64_t;  // in a register; a Call is aligned to half of it
  const Pair zeros = {};
  auto* const bytes = reinterpret_cast<unsigned char*>(this);
  constexpr std::size_t kPairs = sizeof(Call) / sizeof zeros;
#pragma GCC unroll 64
  for (std::size_t i = 0; i < kPairs; ++i) std::memcpy(bytes + i * sizeof zeros, &zeros, sizeof zeros);
  std::memset(bytes + kPairs * sizeof zeros, 0, sizeof(Call) % sizeof zeros);
}

// Whether a context ends with all that is in it. After the release of one reference it may go on.
inline bool is_end_of_context(const Call& call) {
  return call.kind == CallKind::context_end && call.context && std::strcmp(call.symbol, "cuCtxDetach") != 0;
}

// Whether it releases memory that was allocated on the device. The driver refuses other releases of such memory.
inline bool releases_allocation(const Call& call) {
  return call.kind == CallKind::free_async || (call.kind == CallKind::free && call.memory.kind == MemoryKind::device);
}

// Whether it ends what the host has registered. Of memory that is not there, unlike other releases, it says that this
// was not registered.
inline bool ends_registration(const Call& call) {
  return call.kind == CallKind::free && call.memory.kind == MemoryKind::pinned &&
         std::strcmp(call.symbol, "cuMemHostUnregister") == 0;
}

// What Nimble is doing, for the C API: in the order of nimble_phase.
enum class SinkPhase : std::uint8_t { idle, recording, analyzing, searching, binding, replaying, aside };

struct SinkReport {
  SinkPhase phase = SinkPhase::idle;
  std::string reason;  // why it stands aside, or what it waits for; may be empty
  CounterValues counters;
};

// What the program is told of a call that the driver is not to see; or nothing: the driver is called. It could be an
// optional, but a compiler may take that apart and put it together again in every function that passes it on, and each
// launch would wait for that.
class Answer {
 public:
  Answer() = default;
  Answer(std::nullopt_t) {}                                               // NOLINT(google-explicit-constructor)
  Answer(CUresult result) : value_(static_cast<std::int32_t>(result)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return value_ != kNothing; }
  explicit operator bool() const { return has_value(); }
  // Only where it has a value.
  CUresult operator*() const { return static_cast<CUresult>(value_); }
  bool operator==(const Answer&) const = default;

 private:
  static constexpr std::int32_t kNothing = -1;
  std::int32_t value_ = kNothing;
};

// Who receives the calls: the recorder or the replayer. Called from any thread, also at once; must not throw. The shim
// takes no lock around the driver's own call, so between before() and after() other threads' calls may come in.
class CallSink {
 public:
  virtual ~CallSink() = default;

  // The program has made the call. A value is the answer to the program, and the driver is not called (an allocation's
  // address is then in call.memory); nothing means: call the driver. Of a question: CUDA_SUCCESS says that `call`
  // holds what is known of the allocation, CUDA_ERROR_NOT_FOUND that there is none for the program where it asks; the
  // decoder makes the answer of that, and of the driver's.
  virtual Answer before(Call& call) noexcept = 0;

  // The driver has answered. Outputs in `call` are filled in only if `result` is CUDA_SUCCESS.
  virtual void after(const Call& call, CUresult result) noexcept = 0;

  // The result that the program gets for a call that the driver has answered: `result`, unless an earlier call turned
  // out to have failed, and this one may report that. Called after after().
  virtual CUresult told([[maybe_unused]] const Call& call, CUresult result) noexcept { return result; }

  // The driver was out of memory for the call, which has had no effect: releases memory that Nimble can do without.
  // Returns whether there was any: then the call is retried, before after() hears of it.
  virtual bool give_back([[maybe_unused]] const Call& call) noexcept { return false; }

  // The program marks the begin or end of a step; `name`, which may be null, is valid for this call only.
  virtual void mark([[maybe_unused]] bool begins, [[maybe_unused]] const char* name,
                    [[maybe_unused]] std::uint32_t thread) noexcept {}

  // A report of what was done so far. May throw if memory is short.
  virtual SinkReport report() { return {}; }

  // The program is about to end. Calls may still come: from other threads, and from code that is torn down later. May
  // be called again.
  virtual void finish() noexcept = 0;

  // The same, on a thread that a signal has interrupted in the middle of a call. The sink or the driver may be locked
  // by that very call: saves what can be saved without either.
  virtual void finish_interrupted() noexcept {}

  // In a forked child, whose only thread this is: locks may be held by threads that do not exist here. Releases what
  // belongs to the parent. Returns whether nothing has happened yet, so that the child may start a sink of its own;
  // this one gets no further calls.
  virtual bool forked() noexcept { return false; }
};

// What the replayer and the recorder may ask the shim. Thread-safe.
class CallContext {
 public:
  virtual ~CallContext() = default;
  // Facts about a launched function; asks the driver on first sight. Never null.
  virtual const FunctionInfo& function(CUfunction handle) = 0;
  // How the stream is ordered with others; asks the driver for streams that the program created.
  virtual StreamKind stream_kind(const StreamRef& stream) = 0;
  // A driver function by its exported name, never one of our wrappers; null if the driver lacks it.
  virtual void* driver_symbol(const char* name) = 0;
};

}  // namespace nimble
