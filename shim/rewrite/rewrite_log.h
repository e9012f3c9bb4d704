// Log messages about the program's graphs. Silent if memory runs out. Any thread; holds no lock.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "nimble/internal/call.h"
#include "replayer/replayer.h"

namespace nimble::shim {

class RewriteLog {
 public:
  using Write = std::function<void(ReplayLog, const std::string&)>;

  // `write` may be called from any thread.
  explicit RewriteLog(Write write) : write_(std::move(write)) {}

  void say(const std::string& text) const noexcept { tell(ReplayLog::info, text); }
  void warn(const std::string& text) const noexcept { tell(ReplayLog::warning, text); }
  // Nimble's part in the call has failed; the call itself goes on.
  void failed(const Call& call, const std::exception& error) const noexcept try {
    write_(ReplayLog::warning, std::string(call.symbol) + ": " + error.what());
  } catch (...) {  // no memory even for that
  }

 private:
  void tell(ReplayLog level, const std::string& text) const noexcept try { write_(level, text); } catch (...) {
  }

  const Write write_;
};

}  // namespace nimble::shim
