// Recognises files that Nimble has written, and so may replace, by their beginning.
//
// Throws only std::bad_alloc. No state; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nimble/internal/files/file_facts.h"

namespace nimble {

enum class FileKind : std::uint8_t {
  trace,
  schedule,
  counters,
  report,
  replay_report,
  dot,
  manifest,
  code_report,
  kernels_report,
  ledger,
  page,
  diff,
  live,
};

// Whether a file with this beginning was written by Nimble. Other writers of JSON put spaces elsewhere.
bool has_mark(std::string_view begin, FileKind kind);

// Files of this ending are compressed by Zstandard (RFC 8878). A trace then begins with this mark, which is a skippable
// frame of that format.
inline constexpr std::string_view kPackedEnding = ".zst";
std::string packed_trace_mark();

// Why the file of this name must not be replaced, for messages; null if there is none, or if it may be. `found`: what
// has that name. Does not touch a file that this process has open.
const char* why_not_replaced(const std::string& path, FileKind kind, FileFacts& found);

}  // namespace nimble
