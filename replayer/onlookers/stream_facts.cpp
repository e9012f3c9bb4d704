#include "replayer/onlookers/stream_facts.h"

namespace nimble {

std::uint64_t StreamFacts::context_of(const StreamRef& stream) const {
  const auto get = reinterpret_cast<decltype(&::cuStreamGetCtx)>(context_.driver_symbol("cuStreamGetCtx"));
  CUcontext context = nullptr;
  if (!get) return 0;
  return get(stream.handle, &context) == CUDA_SUCCESS ? number_of(context) : stream.key | 1;  // of none that is known
}

std::uint64_t StreamFacts::context_of(const Call& call) const {
  CUcontext context = call.context;
  const auto get = reinterpret_cast<decltype(&::cuCtxGetCurrent)>(context_.driver_symbol("cuCtxGetCurrent"));
  if (!get) return 0;
  if (!context && get(&context) != CUDA_SUCCESS) context = nullptr;
  return number_of(context);
}

bool StreamFacts::is_capturing(const StreamRef& stream) const {
  const auto ask = reinterpret_cast<decltype(&::cuStreamIsCapturing)>(context_.driver_symbol("cuStreamIsCapturing"));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return ask && (ask(stream.handle, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE);
}

}  // namespace nimble
