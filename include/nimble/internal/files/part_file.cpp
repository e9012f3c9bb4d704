#include "nimble/internal/files/part_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/process/quiet_file.h"

namespace nimble {

bool PartFile::is_written() const {
  QuietFile file;
  if (file.open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK) != 0) return false;
  return ::flock(file.number(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

std::vector<PartFile> parts_of(const std::string& wanted) {
  const NotCancelled not_cancelled;
  const SplitName split(wanted);
  std::vector<PartFile> parts;
  const std::string prefix = split.name + ".";
  const int number = open_quiet(split.folder.empty() ? "." : split.folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (number < 0) return parts;
  DIR* const folder = ::fdopendir(number);
  if (!folder) {
    ::close(number);
    return parts;
  }
  while (const dirent* const entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(prefix) || !name.ends_with(kPartEnding)) continue;
    if (name.size() < prefix.size() + kPartEnding.size()) continue;
    const std::string_view numbers =
        name.substr(prefix.size(), name.size() - prefix.size() - kPartEnding.size());  // PID.TIME
    const std::size_t dot = numbers.find('.');
    if (dot == std::string_view::npos || dot == 0 || numbers.size() != dot + 17) continue;
    std::uint64_t process = 0, time = 0;
    const char* const end = numbers.data() + numbers.size();
    if (std::from_chars(numbers.data(), numbers.data() + dot, process).ptr != numbers.data() + dot) continue;
    if (std::from_chars(numbers.data() + dot + 1, end, time, 16).ptr != end) continue;
    parts.push_back({split.folder + std::string(name), time});
  }
  ::closedir(folder);
  std::sort(parts.begin(), parts.end(),
            [](const PartFile& a, const PartFile& b) { return a.time != b.time ? a.time < b.time : a.path < b.path; });
  return parts;
}

}  // namespace nimble
