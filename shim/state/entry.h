// Helpers that all decoders share. A decoder is a struct with up to three static functions, each taking the entry
// point's own arguments after the Call:
//   before(entry, call, args...)  what is known when the program calls
//   after(call, args...)          what the driver returned; only run on CUDA_SUCCESS
//   answer(call, args...)         hands the program what the sink answered instead of the driver
//   reply(call, known, driver, args...)   for a query: what the program gets, given what the sink knows
//   (shim/intercept/decode/question.h)
// or with passed(args...) alone, run on CUDA_SUCCESS: no sink hears of such a call, and no session begins with it.
// Overloads stand for entry points with other arguments. Out-parameters may be null.
#pragma once

#include "nimble/internal/call.h"

namespace nimble::shim {

// What stream 0 means to an entry point.
enum class DefaultStream : std::uint8_t { none, legacy, per_thread };

struct Entry {
  DefaultStream default_stream;
};

namespace detail {

extern constinit thread_local std::uint32_t t_thread_number __attribute__((tls_model("initial-exec")));  // 0: none yet
std::uint32_t number_thread();
StreamRef default_stream_ref(bool per_thread);

}  // namespace detail

// A small number for the calling thread, counted from 0 in the order of first calls.
inline std::uint32_t thread_index() {
  const std::uint32_t number = detail::t_thread_number;
  return (number != 0 ? number : detail::number_thread()) - 1;
}

// The stream that `handle` denotes in this entry point, for the calling thread and its current context.
inline StreamRef stream_ref(Entry entry, CUstream handle) {
  if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) [[likely]]
    return {handle, reinterpret_cast<std::uint64_t>(handle)};
  return detail::default_stream_ref(handle == CU_STREAM_PER_THREAD ||
                                    (!handle && entry.default_stream == DefaultStream::per_thread));
}

// Whether allocations of the default pool are like any other: false once the program has replaced the pool, or has let
// others access a pool's memory.
bool default_pool_is_plain();
// How often the program has replaced it, or changed the access to a pool; 0 while it is plain.
std::uint64_t default_pool_changes();
void default_pool_changed();

// The calling thread's context; null if it has none.
CUcontext current_context();

// The primary context of a device, null where it is not active; whether it is; the context that a green context is.
CUcontext primary_context(CUdevice device);
// Whether it is a device's primary context.
bool is_primary(CUcontext context);
bool primary_context_is_active(CUdevice device);
CUcontext context_of_green(CUgreenCtx context);

// A context ends: the handles of its streams may be reused.
void context_ending(CUcontext context);
// It has ended: its modules are gone.
void context_ended(CUcontext context);

namespace decode {

inline void on_stream(Entry entry, Call& call, CUstream handle) {
  call.stream = stream_ref(entry, handle);
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
