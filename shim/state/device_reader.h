// Reads the program's memory on one of its streams, without ever waiting for long.
//
// All that is put on the stream is a copy to the host and an event: the copy sees what the stream's work has done so
// far, and everything that this work waits for. Waiting is polling, with a bound, since what the stream does may depend
// on calls that the program has yet to make. Errors are answers, and nothing else: an error of the program's own kernel
// that comes up here sticks to the context, so the program's next call meets it as it would have without us; the driver
// API keeps no record of errors that a call of ours could use up.
//
// Not synchronised: its owner's lock guards it. Must be used with the guard entered, and where nothing captures.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "nimble/internal/call.h"

namespace nimble::shim {

class DeviceReader {
 public:
  enum class Outcome : std::uint8_t {
    done,
    late,    // not within the bound: nothing of ours waits on the stream but an event
    failed,  // error() says what the driver said
  };
  // Where reading puts what it reads: the piece's number in the list, and the next bytes of it. Every portion of a
  // piece but its last is a multiple of 4 KiB long.
  using Take = std::function<void(std::size_t, std::span<const std::uint8_t>)>;
  struct Piece {
    std::uint64_t address = 0, bytes = 0;
  };

  DeviceReader(CallContext& context, std::chrono::milliseconds patience);

  // The driver function that is missing; empty if all are there.
  const std::string& why_not() const { return why_not_; }
  CUresult error() const { return error_; }

  // Whether the stream captures, or cannot be asked.
  bool may_capture(CUstream stream);
  // Until all that the stream was given is done.
  Outcome settle(CUstream stream);
  // Reads all pieces. The stream has settled before.
  Outcome read(CUstream stream, std::span<const Piece> pieces, const Take& take);

  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  Outcome fail(CUresult error);

  decltype(&::cuEventCreate) create_ = nullptr;
  decltype(&::cuEventRecord) record_ = nullptr;
  decltype(&::cuEventQuery) query_ = nullptr;
  decltype(&::cuEventDestroy_v2) destroy_ = nullptr;
  decltype(&::cuMemcpyDtoHAsync_v2) copy_ = nullptr;
  decltype(&::cuStreamIsCapturing) is_capturing_ = nullptr;
  const std::chrono::milliseconds patience_;
  std::string why_not_;
  CUresult error_ = CUDA_SUCCESS;
  std::uint64_t bytes_read_ = 0;
  std::unique_ptr<std::uint8_t[]> buffer_;
};

// For its life: calls that would spoil a capture that another thread has begun do not, on this thread.
class RelaxedCaptures {
 public:
  explicit RelaxedCaptures(CallContext& context);
  explicit RelaxedCaptures(decltype(&::cuThreadExchangeStreamCaptureMode) exchange);  // may be null
  ~RelaxedCaptures();
  RelaxedCaptures(const RelaxedCaptures&) = delete;
  RelaxedCaptures& operator=(const RelaxedCaptures&) = delete;

 private:
  decltype(&::cuThreadExchangeStreamCaptureMode) exchange_ = nullptr;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace nimble::shim
