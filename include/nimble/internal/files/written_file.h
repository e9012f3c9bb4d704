// Files that are written at once: a whole text, under a wanted name.
//
// Nothing is thrown but std::bad_alloc. No state; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/files/file_kind.h"

namespace nimble {

// What becomes of a file that was not written by Nimble: it is left alone and another name is taken, it is left alone
// and nothing is written, or it is replaced.
enum class Taken : std::uint8_t { another_name, refuse, replace };

struct WrittenFile {
  int error = 0;          // errno; EEXIST where it was refused
  std::string path;       // what was written
  std::string why_other;  // why it has another name, or was refused
};

WrittenFile write_own_file(const std::string& wanted, std::string_view text, FileKind kind,
                           Taken taken = Taken::another_name);

// Puts another text into a file of ours that is there, if it is the one that was `read`, as that was before it was
// read. It keeps its owner and its mode. Empty, or why it is as it was.
std::string replace_own_file(const std::string& path, std::string_view text, FileKind kind, const FileFacts& read);

// For names that a user gives on a command line: what is not ours is replaced where the user says so, and where nothing
// is in it.
Taken taken_of_named(const std::string& path, bool force);
// Why nothing will be written there, as a sentence for people; empty where nothing is in the way.
std::string refusal_of_named(const std::string& path, const std::string& why);
std::string why_refused(const std::string& path, FileKind kind, bool force);

}  // namespace nimble
