// What is at a file's path, and paths beside it. Follows no links but the system's own.
//
// Throws only std::bad_alloc. No state; any thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>

namespace nimble {

// The folder with its slash, or nothing; the name in it.
struct SplitName {
  std::string folder, name;

  explicit SplitName(const std::string& path);
};

// The wanted name, and its substitutes: t.json, t.nimble.json, t.nimble.2.json.
std::string name_in_place(const std::string& wanted, std::uint32_t which);
inline constexpr std::uint32_t kMostNames = 1000;

// The absolute path, valid in any working folder.
std::string absolute_name(const std::string& path);

// What is at a path; does not follow a link there.
using FileFacts = std::optional<struct statx>;
FileFacts what_is_at(const std::string& path, bool follow = false);
bool same_file(const struct statx& a, const struct statx& b);
std::int64_t changed_ns(const struct statx& facts);
// When it was last written or otherwise changed, for instance renamed: the later of the two. The first alone does not
// tell, since programs can set it to any time, as those that copy files do.
std::int64_t touched_ns(const struct statx& facts);
// How precise file times are: to the kernel's tick.
std::int64_t tick_ns();
// Whether the file there is the one seen before, unchanged since.
bool is_unchanged(const std::string& path, const FileFacts& before);

// The system's own links, to files that processes have open: /dev/stdout, /dev/fd/3.
bool is_systems_link(const std::string& path);
// Whether it is written in place: a device, a pipe.
bool is_no_file(const std::string& path);

}  // namespace nimble
