// Text as frames of Zstandard (RFC 8878). Each frame can be read by itself, so that a file of them may end after any,
// and be cut between any two.
//
// Owns its memory, which it takes with the first frame. One thread. Errors: where memory is short there is no frame.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace nimble::shim {

class TraceCompressor {
 public:
  TraceCompressor();
  ~TraceCompressor();
  TraceCompressor(const TraceCompressor&) = delete;
  TraceCompressor& operator=(const TraceCompressor&) = delete;

  // The frame of this text, valid until the next call; empty where there is no memory for it.
  std::string_view pack(std::string_view text) noexcept;

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  std::string frame_;
};

}  // namespace nimble::shim
