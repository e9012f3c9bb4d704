// What stands at a file's name, and names beside it. No link is followed that is not the system's own.
//
// Nothing is thrown but std::bad_alloc. No state; any thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>

namespace nimble {

// The folder with its slash, or nothing; what stands in it.
struct SplitName {
  std::string folder, name;

  explicit SplitName(const std::string& path);
};

// The wanted name, and those that are taken in its place: t.json, t.nimble.json, t.nimble.2.json.
std::string name_in_place(const std::string& wanted, std::uint32_t which);
inline constexpr std::uint32_t kMostNames = 1000;

// The same name, wherever the process goes.
std::string absolute_name(const std::string& path);

// What stands at a name, which is not followed where it is a link.
using FileFacts = std::optional<struct statx>;
FileFacts what_is_at(const std::string& path, bool follow = false);
bool same_file(const struct statx& a, const struct statx& b);
std::int64_t changed_ns(const struct statx& facts);
// When it was written last, or anything else about it was changed, such as its name: the later of the two. The first
// alone does not tell, since programs can set it to any time, as those do that copy files.
std::int64_t touched_ns(const struct statx& facts);
// How precise file times are: to the kernel's tick.
std::int64_t tick_ns();
// Whether the file there is the one that was looked at before, with nothing written to it since.
bool is_unchanged(const std::string& path, const FileFacts& before);

// Links of the system's own, to what processes have open: /dev/stdout, /dev/fd/3.
bool is_systems_link(const std::string& path);
// Whether it is to be written as it is: a device, a pipe.
bool is_no_file(const std::string& path);

}  // namespace nimble
