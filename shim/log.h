// What the shim says: on stderr, one line each, "nimble: " first. Thread-safe. Opened on first use, so a process that
// never touches the GPU says nothing.
#pragma once

#include <spdlog/logger.h>

namespace nimble::shim {

// The logger. Sets its level from NIMBLE_LOG on first use.
spdlog::logger& log();

}  // namespace nimble::shim
