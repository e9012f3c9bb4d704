// Files written in one go: a whole text, under a wanted name.
//
// Throws only std::bad_alloc. No state; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/files/file_kind.h"

namespace nimble {

// What to do about an existing file that Nimble has not written: leave it and take another name, leave it and write
// nothing, or replace it.
enum class Taken : std::uint8_t { another_name, refuse, replace };

struct WrittenFile {
  int error = 0;          // errno; EEXIST if refused
  std::string path;       // the file written
  std::string why_other;  // why it has another name, or was refused
};

WrittenFile write_own_file(const std::string& wanted, std::string_view text, FileKind kind,
                           Taken taken = Taken::another_name);

// Replaces the text of an existing file of Nimble's, if it is unchanged since `read`, its facts from before it was
// read. Keeps its owner and mode. Empty, or why it was left as it was.
std::string replace_own_file(const std::string& path, std::string_view text, FileKind kind, const FileFacts& read);

// For names given on a command line: replaces others' files if the user says so, or if they are empty.
Taken taken_of_named(const std::string& path, bool force);
// Why nothing will be written there, as a sentence for the user; empty if nothing is in the way.
std::string refusal_of_named(const std::string& path, const std::string& why);
std::string why_refused(const std::string& path, FileKind kind, bool force);

}  // namespace nimble
