// Streams, events, waiting, capture, contexts.
#pragma once

#include "shim/decode/entry.h"
#include "shim/stream_table.h"

namespace nimble::shim::decode {

struct StreamSynchronize {
  static void before(Entry entry, Call& call, CUstream stream) {
    op(entry, call, CallKind::stream_synchronize, stream);
  }
};

struct StreamQuery {
  static void before(Entry entry, Call& call, CUstream stream) {
    StreamSynchronize::before(entry, call, stream);
    call.query = true;
  }
};

struct StreamDestroy {
  static void before(Entry, Call& call, CUstream stream) {
    call.stream = {stream, reinterpret_cast<std::uint64_t>(stream)};
    call.has_stream = true;
    call.ends = Ends::stream;
    // Before the driver sees it: afterwards another thread may be given the same handle for another kind of stream.
    streams().ended(call.stream);
  }
};

struct EventRecord {
  static void before(Entry entry, Call& call, CUevent handle, CUstream stream, unsigned flags = 0) {
    op(entry, call, CallKind::event_record, stream);
    call.event = handle;
    call.plain = flags == 0;
  }
};

struct EventWait {
  static void before(Entry entry, Call& call, CUstream stream, CUevent handle, unsigned flags) {
    op(entry, call, CallKind::event_wait, stream);
    call.event = handle;
    call.plain = flags == 0;
  }
};

struct EventSynchronize {
  static void before(Entry, Call& call, CUevent handle) {
    event(call, CallKind::event_synchronize);
    call.event = handle;
  }
};

struct EventQuery {
  static void before(Entry entry, Call& call, CUevent handle) {
    EventSynchronize::before(entry, call, handle);
    call.query = true;
  }
};

// Says whether both events have happened, so it observes both.
struct EventElapsed {
  static void before(Entry entry, Call& call, float*, CUevent begin, CUevent end) {
    EventQuery::before(entry, call, end);
    call.event2 = begin;
  }
};

struct EventDestroy {
  static void before(Entry, Call& call, CUevent handle) {
    call.event = handle;
    call.ends = Ends::event;
  }
};

struct ContextSynchronize {
  template <class... Context>
  static void before(Entry, Call& call, Context...) {
    event(call, CallKind::context_synchronize);
  }
};

struct ContextEnd {
  template <class... Args>
  static void before(Entry, Call& call, Args...) {
    event(call, CallKind::context_end);
  }
};

struct CaptureBegin {
  template <class... Rest>
  static void before(Entry entry, Call& call, CUstream stream, Rest...) {
    op(entry, call, CallKind::capture_begin, stream);
  }
};

struct CaptureEnd {
  static void before(Entry entry, Call& call, CUstream stream, CUgraph*) {
    op(entry, call, CallKind::capture_end, stream);
  }
};

struct Hidden {
  template <class... Args>
  static void before(Entry, Call& call, Args...) {
    event(call, CallKind::hidden);
    call.note = call.symbol;
  }
};

}  // namespace nimble::shim::decode
