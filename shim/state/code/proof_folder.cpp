#include "shim/state/code/proof_folder.h"

#include <dirent.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/process/not_cancelled.h"
#include "nimble/internal/process/quiet_file.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kMostFileBytes = std::size_t{4} << 20, kMostFiles = 16384;
constexpr std::string_view kExtension = ".proof", kPart = ".part";
constexpr std::uint32_t kWritesBetweenLooks = 256;
constexpr std::int64_t kHour = 3600;
constexpr std::chrono::milliseconds kMostTime{1000};  // for all that a process writes

std::string text_of(int error) { return std::system_category().message(error); }

// Why this folder is not the user's own; empty if it is.
std::string why_not_own(const std::string& folder, const FileFacts& facts) {
  if (!facts) return folder + " does not exist";
  if (!S_ISDIR(facts->stx_mode)) return folder + " is not a folder";
  if (facts->stx_uid != geteuid()) return folder + " belongs to another user";
  if ((facts->stx_mode & (S_IWGRP | S_IWOTH)) != 0) return "others may write to " + folder;
  return {};
}

// What is in an open file, if that is the user's own, and when it was used last; nothing if it is not, or too large.
std::optional<std::string> own_bytes(int file, std::int64_t& used) {
  struct statx facts {};
  if (statx(file, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &facts) != 0) return std::nullopt;
  const bool is_own =
      S_ISREG(facts.stx_mode) && facts.stx_uid == geteuid() && (facts.stx_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (!is_own || facts.stx_size > kMostFileBytes) return std::nullopt;
  used = facts.stx_mtime.tv_sec;
  std::string bytes(facts.stx_size, '\0');
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t got = ::pread(file, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    at += static_cast<std::size_t>(got);
  }
  return bytes;
}

std::string above(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

std::string folder_of_proofs(const std::string& option, std::string& why) {
  if (option == "none") return {};
  // Of a program that runs with another user's rights, or with more than the user's, the environment is not its own.
  if (getauxval(AT_SECURE) != 0 || geteuid() != getuid() || getegid() != getgid()) {
    why = "the program runs with rights that are not the user's";
    return {};
  }
  if (!option.empty()) return absolute_name(option);
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const bool has_cache = cache && cache[0] == '/';  // as its specification says, other values do not count
  if (!has_cache && (!home || home[0] != '/')) {
    why = "there is no HOME";
    return {};
  }
  // Under sudo and the like, HOME may be another user's.
  const std::string base = has_cache ? cache : home;
  if (const FileFacts facts = what_is_at(base, true); !facts || facts->stx_uid != geteuid()) {
    why = base + (facts ? " belongs to another user" : " does not exist");
    return {};
  }
  return (has_cache ? base : base + "/.cache") + "/nimble/proofs";
}

void ProofFolder::give_up(const std::string& why) {
  if (!given_up_.exchange(true)) tell_("proofs are not kept in " + folder_ + ": " + why);
}

// Each time: the program, or the user, may change folders while it runs.
bool ProofFolder::is_usable(bool to_write) {
  if (given_up_ || has_few_descriptors()) return false;
  FileFacts facts = what_is_at(folder_);
  if (!facts && !to_write) return false;
  if (!facts) {
    const std::string parent = above(folder_), grandparent = above(parent);
    for (const std::string* each : {&grandparent, &parent, &folder_}) {
      if (::mkdir(each->c_str(), S_IRWXU) == 0 || errno == EEXIST) continue;
      give_up(text_of(errno));
      return false;
    }
    facts = what_is_at(folder_);
  }
  const std::string why = why_not_own(folder_, facts);
  if (!why.empty()) give_up(why);
  return why.empty();
}

std::optional<std::string> ProofFolder::read(const std::string& name) noexcept try {
  const NotCancelled not_cancelled;
  const int before = errno;
  std::optional<std::string> bytes;
  if (is_usable(false)) {
    const std::string path = folder_ + "/" + name + std::string(kExtension);
    QuietFile file;
    std::int64_t used = 0;
    if (file.open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK) == 0) bytes = own_bytes(file.number(), used);
    // When it was used last; not each time, which would be a write for each read.
    if (bytes && used < ::time(nullptr) - kHour) ::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  }
  errno = before;
  return bytes;
} catch (const std::bad_alloc&) {
  return std::nullopt;
}

void ProofFolder::write(const std::string& name, const std::string& bytes) noexcept try {
  const NotCancelled not_cancelled;
  const int before = errno;
  const bool is_slow = std::chrono::steady_clock::duration(written_for_) > kMostTime;
  if (!is_slow && bytes.size() <= kMostFileBytes && is_usable(true)) {
    const auto begin = std::chrono::steady_clock::now();
    if (writes_.fetch_add(1) % kWritesBetweenLooks == 0) keep_within_bounds();
    if (const int error = make(name, bytes); error != 0) give_up(text_of(error));
    // A slow folder, on a network perhaps: reading may still be worth it.
    written_for_ += (std::chrono::steady_clock::now() - begin).count();
  }
  errno = before;
} catch (const std::bad_alloc&) {
}

// 0, or errno.
int ProofFolder::make(const std::string& name, const std::string& bytes) {
  static std::atomic<std::uint32_t> count{0};
  const std::string path = folder_ + "/" + name;
  const std::string part = path + "." + std::to_string(getpid()) + "." + std::to_string(count.fetch_add(1)) + "." +
                           std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()) +
                           std::string(kPart);
  QuietFile file;
  if (const int error = file.open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, S_IRUSR | S_IWUSR))
    return error;
  int error = file.write(bytes.data(), bytes.size());
  if (const int at_close = file.close(); error == 0) error = at_close;
  if (error == 0 && ::rename(part.c_str(), (path + std::string(kExtension)).c_str()) != 0) error = errno;
  if (error != 0) ::unlink(part.c_str());
  return error;
}

// Deletes what was used least recently down to three quarters, and what processes that ended have left half written.
void ProofFolder::keep_within_bounds() {
  struct Kept {
    std::int64_t used = 0;
    std::uint64_t bytes = 0;
    std::string name;
  };
  std::vector<Kept> all;
  std::uint64_t bytes = 0;
  const int opened = open_quiet(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  DIR* const folder = opened < 0 ? nullptr : ::fdopendir(opened);
  if (folder == nullptr && opened >= 0) ::close(opened);
  if (folder == nullptr) return;
  const std::int64_t now = ::time(nullptr);
  while (const dirent* const entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    const bool is_part = name.ends_with(kPart);
    if (!is_part && !name.ends_with(kExtension)) continue;
    const FileFacts facts = what_is_at(folder_ + "/" + entry->d_name);
    if (!facts || !S_ISREG(facts->stx_mode)) continue;
    if (is_part && facts->stx_mtime.tv_sec < now - kHour) ::unlink((folder_ + "/" + entry->d_name).c_str());
    if (is_part) continue;
    all.push_back({facts->stx_mtime.tv_sec, facts->stx_size, std::string(name)});
    bytes += facts->stx_size;
  }
  ::closedir(folder);
  if (bytes <= most_bytes_ && all.size() <= kMostFiles) return;
  std::ranges::sort(all, {}, [](const Kept& each) { return std::pair(each.used, std::string_view(each.name)); });
  std::size_t left = all.size();
  for (const Kept& each : all) {
    if (bytes <= most_bytes_ / 4 * 3 && left <= kMostFiles / 4 * 3) break;
    ::unlink((folder_ + "/" + each.name).c_str());
    bytes -= each.bytes;
    --left;
  }
}

}  // namespace nimble::shim
