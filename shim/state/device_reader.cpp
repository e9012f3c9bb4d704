#include "shim/state/device_reader.h"

#include <algorithm>
#include <thread>
#include <type_traits>

#include "nimble/internal/process/not_cancelled.h"
#include "nimble/internal/process/patience.h"
#include "shim/state/digest.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kBufferBytes = std::size_t{16} << 20;
static_assert(kBufferBytes % kProbeChunk == 0);

// Polls without pausing at first: most kernels are short.
constexpr int kEagerPolls = 200;
constexpr std::chrono::microseconds kShortestNap{20}, kLongestNap{1000};

}  // namespace

DeviceReader::DeviceReader(CallContext& context, std::chrono::milliseconds patience) : patience_(patience) {
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(context.driver_symbol(name));
    if (!function) why_not_ = name;
  };
  find(create_, "cuEventCreate");
  find(record_, "cuEventRecord");
  find(query_, "cuEventQuery");
  find(destroy_, "cuEventDestroy_v2");
  find(copy_, "cuMemcpyDtoHAsync_v2");
  find(is_capturing_, "cuStreamIsCapturing");
}

DeviceReader::Outcome DeviceReader::fail(CUresult error) {
  error_ = error;
  return Outcome::failed;
}

bool DeviceReader::may_capture(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return is_capturing_(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

DeviceReader::Outcome DeviceReader::settle(CUstream stream) {
  // Created each time: an event belongs to a context, and ends with it. Fails if the stream belongs to another context
  // than the current one; then nothing is read.
  CUevent event = nullptr;
  if (const CUresult result = create_(&event, CU_EVENT_DISABLE_TIMING)) return fail(result);
  CUresult state = record_(event, stream);
  if (state == CUDA_SUCCESS) {
    const NotCancelled not_cancelled;
    Patience patience(patience_);
    std::chrono::microseconds nap = kShortestNap;
    for (int polls = 0; (state = query_(event)) == CUDA_ERROR_NOT_READY; ++polls) {
      if (polls < kEagerPolls) continue;
      if (!patience.sleep(nap)) break;
      nap = std::min(nap * 2, kLongestNap);
    }
  }
  destroy_(event);  // legal while it is pending
  if (state == CUDA_ERROR_NOT_READY) return Outcome::late;
  return state == CUDA_SUCCESS ? Outcome::done : fail(state);
}

DeviceReader::Outcome DeviceReader::read(CUstream stream, std::span<const Piece> pieces, const Take& take) {
  struct Portion {
    std::size_t piece, at, bytes;
  };
  if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::uint8_t[]>(kBufferBytes);
  std::vector<Portion> portions;  // in flight
  std::size_t used = 0;
  const auto arrive = [&] {
    if (portions.empty()) return Outcome::done;
    const Outcome outcome = settle(stream);
    if (outcome != Outcome::done) {
      static_cast<void>(buffer_.release());  // a copy may still be in flight: its destination must stay
      return outcome;
    }
    for (const Portion& portion : portions) take(portion.piece, {buffer_.get() + portion.at, portion.bytes});
    portions.clear();
    used = 0;
    return Outcome::done;
  };
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    for (std::uint64_t done = 0; done < pieces[i].bytes;) {
      const std::size_t room = (kBufferBytes - used) / kProbeChunk * kProbeChunk;
      if (room == 0) {
        if (const Outcome outcome = arrive(); outcome != Outcome::done) return outcome;
        continue;
      }
      const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(room, pieces[i].bytes - done));
      if (const CUresult result = copy_(buffer_.get() + used, pieces[i].address + done, bytes, stream)) {
        // Earlier copies may still be in flight.
        if (!portions.empty() && settle(stream) != Outcome::done) static_cast<void>(buffer_.release());
        return fail(result);
      }
      portions.push_back({i, used, bytes});
      bytes_read_ += bytes;
      done += bytes;
      used += (bytes + kProbeChunk - 1) / kProbeChunk * kProbeChunk;
    }
  }
  return arrive();
}

RelaxedCaptures::RelaxedCaptures(CallContext& context)
    : RelaxedCaptures(
          reinterpret_cast<decltype(exchange_)>(context.driver_symbol("cuThreadExchangeStreamCaptureMode"))) {}

RelaxedCaptures::RelaxedCaptures(decltype(&::cuThreadExchangeStreamCaptureMode) exchange) : exchange_(exchange) {
  if (exchange_ && exchange_(&mode_) != CUDA_SUCCESS) exchange_ = nullptr;
}

RelaxedCaptures::~RelaxedCaptures() {
  if (exchange_) exchange_(&mode_);
}

}  // namespace nimble::shim
