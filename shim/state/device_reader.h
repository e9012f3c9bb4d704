// Reads the program's memory on one of its streams, without ever waiting for long.
//
// We put only a copy to the host and an event on the stream: the copy is ordered after the stream's work so far, and
// after everything that this work waits for. Waiting is bounded polling, since the stream's work may depend on calls
// that the program has yet to make. Errors are only returned: an error of the program's own kernel that surfaces here
// sticks to the context, so the program's next call meets it as it would have without us; the driver API keeps no error
// record that one of Nimble's calls could consume.
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
    late,    // not within the bound: only Nimble's event waits on the stream
    failed,  // error() has the driver's error
  };
  // Receives what is read: the piece's number in the list, and its next bytes. Every portion of a piece but the last is
  // a multiple of 4 KiB long.
  using Take = std::function<void(std::size_t, std::span<const std::uint8_t>)>;
  struct Piece {
    std::uint64_t address = 0, bytes = 0;
  };

  DeviceReader(CallContext& context, std::chrono::milliseconds patience);

  // The driver function that is missing; empty if all are there.
  const std::string& why_not() const { return why_not_; }
  CUresult error() const { return error_; }

  // Whether the stream captures, or the query fails.
  bool may_capture(CUstream stream);
  // Waits until all work on the stream is done.
  Outcome settle(CUstream stream);
  // Reads all pieces. The stream must have settled before.
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

// While it lives, this thread's calls do not invalidate captures that other threads have begun.
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
