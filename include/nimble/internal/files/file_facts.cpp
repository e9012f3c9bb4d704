#include "nimble/internal/files/file_facts.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace nimble {

SplitName::SplitName(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash != std::string::npos) folder = path.substr(0, slash + 1);
  name = path.substr(folder.size());
}

std::string name_in_place(const std::string& wanted, std::uint32_t which) {
  if (which == 0) return wanted;
  const SplitName split(wanted);
  std::size_t ending = split.name.rfind('.');
  if (ending == std::string::npos || ending == 0) ending = split.name.size();
  const std::string more = which == 1 ? ".nimble" : ".nimble." + std::to_string(which);
  return split.folder + split.name.substr(0, ending) + more + split.name.substr(ending);
}

std::string absolute_name(const std::string& path) {
  char folder[PATH_MAX];
  if (path.empty() || path.front() == '/' || !::getcwd(folder, sizeof folder)) return path;
  return folder + ("/" + path);
}

// lstat() is a symbol of glibc 2.33 if this is built on a newer one.
FileFacts what_is_at(const std::string& path, bool follow) {
  struct statx facts {};
  if (statx(AT_FDCWD, path.c_str(), follow ? 0 : AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &facts) != 0) return {};
  return facts;
}

bool same_file(const struct statx& a, const struct statx& b) {
  return a.stx_ino == b.stx_ino && a.stx_dev_major == b.stx_dev_major && a.stx_dev_minor == b.stx_dev_minor;
}

std::int64_t changed_ns(const struct statx& facts) {
  return facts.stx_mtime.tv_sec * 1'000'000'000 + facts.stx_mtime.tv_nsec;
}

std::int64_t touched_ns(const struct statx& facts) {
  return std::max<std::int64_t>(changed_ns(facts), facts.stx_ctime.tv_sec * 1'000'000'000 + facts.stx_ctime.tv_nsec);
}

std::int64_t tick_ns() {
  timespec tick{};
  return clock_getres(CLOCK_REALTIME_COARSE, &tick) == 0 ? tick.tv_sec * 1'000'000'000 + tick.tv_nsec : 0;
}

bool is_unchanged(const std::string& path, const FileFacts& before) {
  const FileFacts now = what_is_at(path);
  return now && before && same_file(*now, *before) && changed_ns(*now) == changed_ns(*before) &&
         now->stx_size == before->stx_size;
}

bool is_systems_link(const std::string& path) {
  const std::string folder = SplitName(path).folder;
  if (folder != "/dev/" && folder != "/dev/fd/" && !folder.starts_with("/proc/")) return false;
  const auto facts = what_is_at(path);
  return facts && S_ISLNK(facts->stx_mode);
}

bool is_no_file(const std::string& path) {
  const auto facts = what_is_at(path, is_systems_link(path));
  return facts && !S_ISREG(facts->stx_mode) && !S_ISDIR(facts->stx_mode) && !S_ISLNK(facts->stx_mode);
}

}  // namespace nimble
