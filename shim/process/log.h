// What the shim says: one line each, "nimble: " first. Nothing is opened before the first line, so a process that never
// touches the GPU says nothing.
//
// Lines go to what was stderr when the process started, as long as descriptor 2 still stands for it, else nowhere. A
// program may close 2, as daemons do, or was started with it closed; then its next file gets the number, and what it
// writes there is no place for lines of ours. Which file it was is kept by device, inode and birth. A duplicate of the
// descriptor would reach the first stderr even then, but it would be missed: whoever waits for the end of the pipe or
// the terminal that a daemon has closed would wait for ever, each process would have one descriptor less, and forked
// children would hold it as well. Where a pipe or a terminal is full, the program does not wait for its reader: after a
// moment the line is dropped.
//
// With NIMBLE_LOG_FILE lines go there instead: a file for its owner alone that is appended to and no link is followed
// to. Where it cannot be opened, stderr says so once, and gets the lines.
//
// Any thread, at any time, in signal handlers that end the process and in forked children: no lock is taken, and no
// line raises a signal.
#pragma once

#include <cstdint>
#include <string>

namespace nimble::shim {

enum class LogLevel : std::uint8_t { error, warning, info };

// Says `text`, where NIMBLE_LOG lets this level through.
void log(LogLevel level, const std::string& text) noexcept;

// Keeps what descriptor 2 is now. For when the library is loaded: before the program can have opened anything.
void remember_stderr();

}  // namespace nimble::shim
