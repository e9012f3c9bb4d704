// What all decoders share. A decoder is a struct with up to four static functions, each taking the entry point's own
// arguments after the Call:
//   before(entry, call, args...)  what is known when the program calls
//   after(call, args...)          what the driver returned; only run on CUDA_SUCCESS
//   answer(call, args...)         hands the program what the sink answered instead of the driver
//   reply(call, known, driver, args...)   for a query: what the program gets, given what the sink knows
//   (shim/intercept/decode/question.h)
// or with passed(args...) alone, run on CUDA_SUCCESS: no sink hears of such a call, and no session begins with it.
// Overloads stand for entry points with other arguments. Out-parameters may be null.
//
// No state; any thread.
#pragma once

#include "nimble/internal/call.h"
#include "shim/state/stream_ref.h"

namespace nimble::shim {

// What a decoder is told of its entry point.
struct Entry {
  DefaultStream default_stream;
};

namespace decode {

inline void on_stream(Entry entry, Call& call, CUstream handle) {
  call.stream = stream_ref(entry.default_stream, handle);
  call.has_stream = true;
}

inline void op(Entry entry, Call& call, CallKind kind, CUstream handle) {
  call.kind = kind;
  call.traced = true;
  call.thread = thread_index();
  on_stream(entry, call, handle);
}

// A call of a traced kind that puts no work on a stream.
inline void event(Call& call, CallKind kind) {
  call.kind = kind;
  call.traced = true;
  call.thread = thread_index();
}

inline std::uint64_t address_of(CUdeviceptr pointer) { return pointer; }
inline std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace decode
}  // namespace nimble::shim
