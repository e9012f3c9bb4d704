#include "shim/record/trace/trace_compressor.h"

#include <zstd.h>

#include <new>

namespace nimble::shim {

namespace {

constexpr int kLevel = 1;  // traces are repetitive: higher ones gain a tenth and take several times as long

}  // namespace

struct TraceCompressor::Context {
  ~Context() { ZSTD_freeCCtx(zstd); }
  ZSTD_CCtx* zstd = ZSTD_createCCtx();
};

TraceCompressor::TraceCompressor() = default;
TraceCompressor::~TraceCompressor() = default;

std::string_view TraceCompressor::pack(std::string_view text) noexcept try {
  if (!context_) context_ = std::make_unique<Context>();
  ZSTD_CCtx* const zstd = context_->zstd;
  if (zstd == nullptr) return {};
  ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
  frame_.resize(ZSTD_compressBound(text.size()));
  const std::size_t size = ZSTD_compress2(zstd, frame_.data(), frame_.size(), text.data(), text.size());
  if (ZSTD_isError(size) != 0) return {};
  return std::string_view(frame_).substr(0, size);
} catch (const std::bad_alloc&) {
  return {};
}

}  // namespace nimble::shim
