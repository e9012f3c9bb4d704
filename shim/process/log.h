// The shim's log: one line per message, beginning with "nimble: ". Nothing is opened before the first line, so a
// process that never uses the GPU writes none.
//
// Lines go to what was stderr when the process started, as long as descriptor 2 still stands for it, else nowhere. A
// program may close 2, as daemons do, or may start with it closed; then its next file gets that number, and our lines
// must not go there. We remember the file by device, inode and birth. A duplicate of the descriptor would reach the
// first stderr even then, but at a price: a reader that waits for the end of the pipe or terminal that a daemon has
// closed would wait for ever, each process would have one descriptor less, and forked children would hold it too. If a
// pipe or a terminal is full, the program does not wait for its reader: after a moment the line is dropped.
//
// With NIMBLE_LOG_FILE lines go there instead: appended to a file that only its owner may read; links are not followed.
// If it cannot be opened, stderr says so once, and gets the lines. What users call the levels: the row `log` of
// nimble/internal/options.def.
//
// Any thread, at any time, in signal handlers that end the process and in forked children: no lock is taken, and no
// line raises a signal.
#pragma once

#include <cstdint>
#include <string>

namespace nimble::shim {

enum class LogLevel : std::uint8_t { error, warning, info };

// Logs `text` if NIMBLE_LOG lets this level through.
void log(LogLevel level, const std::string& text) noexcept;

// Remembers what descriptor 2 is now. Called when the library is loaded, before the program can have opened anything.
void remember_stderr();

// Opens NIMBLE_LOG_FILE, if there is one: on one of the program's threads, before any of Nimble's that may log
// something.
void open_log() noexcept;

}  // namespace nimble::shim
