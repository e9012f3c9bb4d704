// Streams, events, waiting, capture, contexts.
#pragma once

#include "shim/intercept/decode/op.h"
#include "shim/state/contexts.h"
#include "shim/state/stream_ref.h"
#include "shim/state/stream_table.h"

namespace nimble::shim::decode {

// The host waits for a stream.
struct StreamSynchronize {
  static void before(Entry entry, Call& call, CUstream stream) {
    op(entry, call, CallKind::stream_synchronize, stream);
  }
};

// The host asks whether a stream is done.
struct StreamQuery {
  static void before(Entry entry, Call& call, CUstream stream) {
    StreamSynchronize::before(entry, call, stream);
    call.query = true;
  }
};

// The end of a stream: its handle may be reused.
struct StreamDestroy {
  static void before(Entry, Call& call, CUstream stream) {
    call.stream = {stream, reinterpret_cast<std::uint64_t>(stream)};
    call.has_stream = true;
    call.ends = Ends::stream;
    // Before the driver sees it: afterwards another thread may be given the same handle for another kind of stream.
    streams().ended(call.stream);
  }
};

// An event recorded on a stream.
struct EventRecord {
  static void before(Entry entry, Call& call, CUevent handle, CUstream stream, unsigned flags = 0) {
    op(entry, call, CallKind::event_record, stream);
    call.event = handle;
    call.plain = flags == 0;
  }
};

// A stream that waits for an event.
struct EventWait {
  static void before(Entry entry, Call& call, CUstream stream, CUevent handle, unsigned flags) {
    op(entry, call, CallKind::event_wait, stream);
    call.event = handle;
    call.plain = flags == 0;
  }
};

// The host waits for an event.
struct EventSynchronize {
  static void before(Entry, Call& call, CUevent handle) {
    event(call, CallKind::event_synchronize);
    call.event = handle;
  }
};

// The host asks whether an event has happened.
struct EventQuery {
  static void before(Entry entry, Call& call, CUevent handle) {
    EventSynchronize::before(entry, call, handle);
    call.query = true;
  }
};

// The time between two events. Tells whether both have happened, so it observes both.
struct EventElapsed {
  static void before(Entry entry, Call& call, float*, CUevent begin, CUevent end) {
    EventQuery::before(entry, call, end);
    call.event2 = begin;
  }
};

// The end of an event: its handle may be reused.
struct EventDestroy {
  static void before(Entry, Call& call, CUevent handle) {
    call.event = handle;
    call.ends = Ends::event;
  }
};

// The host waits for a context.
struct ContextSynchronize {
  static void before(Entry, Call& call) { event(call, CallKind::context_synchronize); }
  static void before(Entry, Call& call, CUcontext context) {
    event(call, CallKind::context_synchronize);
    call.context = context;
  }
};

// The end of a context, with its streams and its memory. Without a current context none ends, and only its own calls
// end a primary one: the driver refuses others, or what ended shows afterwards.
struct ContextEnd {
  static void before(Entry, Call& call, CUcontext context) {
    if (context && !is_primary(context)) ends(call, context);
  }
  static void after(Call& call, CUcontext context) {
    shows(call, context);
    if (call.kind == CallKind::context_end) context_ended(call.context);
  }
  static void before(Entry, Call& call, CUdevice device) {
    if (primary_context_is_active(device)) ends(call, primary_context(device));
  }
  static void after(Call& call, CUdevice) {
    if (call.kind == CallKind::context_end) context_ended(call.context);
  }

  // Finds out what ended if that was not known beforehand.
  static void shows(Call& call, CUcontext context) {
    if (call.kind != CallKind::context_end && context && !is_primary(context)) ends(call, context);
  }

 private:
  static void ends(Call& call, CUcontext context) {
    event(call, CallKind::context_end);
    call.context = context;
    context_ending(context);
  }
};

// One user of a context less: taken for its end, except that its modules may still be there.
struct ContextDetach {
  static void before(Entry entry, Call& call, CUcontext context) { ContextEnd::before(entry, call, context); }
  static void after(Call& call, CUcontext context) { ContextEnd::shows(call, context); }
};

// One user of a primary context less: only the last one ends it, which the driver tells afterwards.
struct PrimaryContextRelease {
  static void before(Entry, Call& call, CUdevice device) { call.context = primary_context(device); }
  static void after(Call& call, CUdevice device) {
    if (primary_context_is_active(device)) return;
    event(call, CallKind::context_end);
    context_ending(call.context);
    context_ended(call.context);
  }
};

// The end of a green context, with its streams. Its memory is the primary context's.
struct GreenContextEnd {
  static void before(Entry, Call& call, CUgreenCtx context) {
    call.context = context_of_green(context);
    call.ends = Ends::green_context;
    context_ending(call.context);
  }
};

// From here on the stream collects a graph: what is put on it is not executed.
struct CaptureBegin {
  template <class... Rest>
  static void before(Entry entry, Call& call, CUstream stream, Rest...) {
    op(entry, call, CallKind::capture_begin, stream);
  }
  static void before(Entry entry, Call& call, CUstream stream, CUgraph graph, const CUgraphNode*,
                     const CUgraphEdgeData*, std::size_t, CUstreamCaptureMode) {
    op(entry, call, CallKind::capture_begin, stream);
    call.graph.handle = graph;
  }
};

// Sets the dependencies of what the stream captures next, which may then not be ordered after what the stream has
// captured so far.
struct CaptureOrder {
  static void before(Entry entry, Call& call, CUstream stream, CUgraphNode*, std::size_t, unsigned flags) {
    call.stream = stream_ref(entry.default_stream, stream);  // although the call puts nothing on it
    call.unordered = flags & CU_STREAM_SET_CAPTURE_DEPENDENCIES;
  }
  static void before(Entry entry, Call& call, CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData*,
                     std::size_t count, unsigned flags) {
    before(entry, call, stream, nodes, count, flags);
  }
};

// The stream executes again.
struct CaptureEnd {
  static void before(Entry entry, Call& call, CUstream stream, CUgraph*) {
    op(entry, call, CallKind::capture_end, stream);
  }
  static void after(Call& call, CUstream, CUgraph* graph) { call.graph.handle = *graph; }
};

// Lets kernels reach memory that none of their parameters points to, or lets something else reach the program's memory
// or see its progress. From then on we assume that any kernel may reach memory beyond its parameters, and replay stands
// aside.
struct Hidden {
  template <class... Args>
  static void before(Entry, Call& call, Args...) {
    event(call, CallKind::hidden);
    call.note = call.symbol;
    call.shown = true;
  }
};

// A texture or a surface: kernels reach its memory by instructions of their own. What a kernel's code proves still
// holds, since code with such instructions proves nothing; any other kernel may reach memory beyond its parameters.
struct Texture {
  template <class... Args>
  static void before(Entry entry, Call& call, Args... args) {
    Hidden::before(entry, call, args...);
    call.texture = true;
    call.shown = false;
  }
};

// A module's texture or surface reference, the predecessor of texture objects: a launch reads it as it is then, so
// calls that set it would have to wait for launches that are held back.
struct TextureReference {
  template <class... Args>
  static void before(Entry entry, Call& call, Args... args) {
    Hidden::before(entry, call, args...);
    call.shown = false;
  }
};

// Changes how later work runs, or what earlier work may reach. Nothing is recorded; the replayer submits what it holds
// first.
struct Setting {
  template <class... Args>
  static void before(Entry, Call&, Args...) {}
};

}  // namespace nimble::shim::decode
