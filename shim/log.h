// What the shim says: on stderr, one line each, "nimble: " first. Thread-safe. Opened on first use, so a process that
// never touches the GPU says nothing.
#pragma once

#include <cstdint>
#include <string>

namespace nimble::shim {

enum class LogLevel : std::uint8_t { error, warning, info };

// Says `text`, where NIMBLE_LOG lets this level through.
void log(LogLevel level, const std::string& text);

}  // namespace nimble::shim
