// What the launcher has to know of a program before it runs it: where it is, and whether a preload reaches it.
//
// Free functions without state; any thread may call them. They only read the file system.
#pragma once

#include <optional>
#include <string>

namespace nimble::launcher {

// Where the shell would find `name`: itself if it holds a slash, else the first executable file of that name on `path`
// (the value of PATH), else the first file of that name there, so that running it fails with the right reason.
std::optional<std::string> find_program(const std::string& name, const std::string& path);

// Why the dynamic loader will not load a preloaded library into the program at `file`, as a sentence for people;
// nothing where it will, or where the file cannot be read. A script is judged by its interpreter.
std::optional<std::string> why_no_preload(const std::string& file);

}  // namespace nimble::launcher
