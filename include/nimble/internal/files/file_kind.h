// Which files Nimble has written, and so may replace: their beginning tells.
//
// Nothing is thrown but std::bad_alloc. No state; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nimble/internal/files/file_facts.h"

namespace nimble {

enum class FileKind : std::uint8_t { trace, schedule, counters, report, replay_report, dot, manifest };

// Whether a file that begins like that is one that Nimble has written. Other writers of JSON put spaces elsewhere.
bool has_mark(std::string_view begin, FileKind kind);

// Why the file of this name must not be replaced, in words for people; null where there is none, or where it may be.
// `found`: what has that name.
const char* why_not_replaced(const std::string& path, FileKind kind, FileFacts& found);

}  // namespace nimble
