// Names the calling thread, and the stream that it means by a handle.
//
// Any thread; numbers stay.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "nimble/internal/call.h"

namespace nimble::shim {

// What stream 0 means to an entry point.
enum class DefaultStream : std::uint8_t { none, legacy, per_thread };

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

// The stream that `handle` denotes in an entry point, for the calling thread and its current context.
inline StreamRef stream_ref(DefaultStream zero, CUstream handle) {
  if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) [[likely]]
    return {handle, reinterpret_cast<std::uint64_t>(handle)};
  return detail::default_stream_ref(handle == CU_STREAM_PER_THREAD || (!handle && zero == DefaultStream::per_thread));
}

}  // namespace nimble::shim
