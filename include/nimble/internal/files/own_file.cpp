#include "nimble/internal/files/own_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <ctime>
#include <utility>

#include "nimble/internal/files/part_file.h"

namespace nimble {

namespace {

bool rename_with(const std::string& from, const std::string& to, unsigned flags) {
  return ::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0;
}

// Takes a free name. EEXIST if it is taken.
int take_free(const std::string& part, const std::string& to) {
  constexpr unsigned kNoReplace = 1;
  if (rename_with(part, to, kNoReplace)) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (::link(part.c_str(), to.c_str()) == 0) {
    ::unlink(part.c_str());
    return 0;
  }
  if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP) return errno;
  // A file system that supports neither: take the name first.
  const int empty = open_quiet(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  if (empty < 0) return errno;
  ::close(empty);
  if (std::rename(part.c_str(), to.c_str()) == 0) return 0;
  const int error = errno;
  ::unlink(to.c_str());
  return error;
}

}  // namespace

int OwnFile::open(const std::string& wanted, bool through_links, bool patient) {
  const NotCancelled not_cancelled;
  wanted_ = wanted;
  const SplitName split(wanted);
  if (split.name.empty()) return EISDIR;
  const bool is_device = is_no_file(wanted), is_link = !is_device && is_systems_link(wanted);
  if (is_link && !through_links) return EINVAL;
  direct_ = is_device || is_link;
  if (direct_) {
    path_ = wanted;
    return open_direct(O_WRONLY | (is_link ? O_APPEND : 0), patient);
  }
  // The program may change its folder meanwhile.
  if (wanted.front() != '/') {
    char folder[PATH_MAX];
    if (::getcwd(folder, sizeof folder)) base_ = std::string(folder) + "/";
  }
  before_ = what_is_at(wanted);
  if (const int error = make(split.folder, split.name)) return error;
  identity_ = FileIdentity::of(file_.number());
  ::fchmod(file_.number(), 0600);  // whatever the process's umask
  // A process that checks whether the file is in use holds the lock for a moment.
  for (int attempt = 0; attempt < 20 && ::flock(file_.number(), LOCK_EX | LOCK_NB) != 0; ++attempt) {
    if (errno != EWOULDBLOCK) break;
    const timespec moment{0, 1'000'000};
    ::nanosleep(&moment, nullptr);
  }
  if (const auto facts = what_is_at(path_)) begun_ns_ = changed_ns(*facts);
  return 0;
}

// Makes the file under a name that no one else uses.
int OwnFile::make(const std::string& folder, const std::string& name) {
  for (int attempt = 0;; ++attempt) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    time_ = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
    char numbers[48];
    std::snprintf(numbers, sizeof numbers, ".%d.%016llx", static_cast<int>(::getpid()),
                  static_cast<unsigned long long>(time_));
    const std::string ending = numbers + std::string(kPartEnding);
    std::string begin = name;
    if (begin.size() + ending.size() > NAME_MAX) begin.resize(NAME_MAX - ending.size());
    shown_ = folder + begin + ending;
    path_ = base_ + shown_;
    const int error = file_.open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (error != EEXIST || attempt >= 100) return error;
  }
}

int OwnFile::write(const void* data, std::size_t bytes) {
  if (!file_.is_open()) return EBADF;
  if (!direct_ && !file_.is_ours() && !reopen()) return EBADF;
  return file_.write(data, bytes);
}

std::optional<std::uint64_t> OwnFile::size() const {
  struct statx facts {};
  if (number() < 0 || statx(file_.number(), "", AT_EMPTY_PATH, STATX_SIZE, &facts) != 0) return {};
  return facts.stx_size;
}

int OwnFile::cut(std::uint64_t size) {
  if (number() < 0) return EBADF;
  const auto at = static_cast<off_t>(size);
  return ::ftruncate(file_.number(), at) != 0 || ::lseek(file_.number(), at, SEEK_SET) < 0 ? errno : 0;
}

int OwnFile::place(FileKind kind) {
  if (direct_) return 0;
  std::string part = present_path();
  const SplitName now(part);
  const std::string folder = now.folder, name = SplitName(wanted_).name;
  if (waits_for_older(folder + name)) why_other_ = "is being recorded by another process";
  for (std::uint32_t which = why_other_.empty() ? 0 : 1; which < kMostNames; ++which) {
    const std::string to = name_in_place(folder + name, which);
    const auto why = move_to(part, to, kind);
    if (why.error != 0) return why.error;
    if (why.text) {
      if (why_other_.empty()) why_other_ = why.text;
      continue;
    }
    named(to, name_in_place(wanted_, which));
    return 0;
  }
  return EEXIST;
}

int OwnFile::place_by_force() {
  if (direct_) return 0;
  const std::string part = present_path();
  const std::string to = SplitName(part).folder + SplitName(wanted_).name;
  if (std::rename(part.c_str(), to.c_str()) != 0) return errno;
  named(to, wanted_);
  return 0;
}

int OwnFile::place_at_wanted(FileKind kind) {
  if (direct_) return 0;
  const std::string part = present_path();
  const std::string to = SplitName(part).folder + SplitName(wanted_).name;
  const auto why = move_to(part, to, kind);
  if (why.error != 0) return why.error;
  if (why.text) {
    why_other_ = why.text;
    return EEXIST;
  }
  named(to, wanted_);
  return 0;
}

void OwnFile::discard() {
  if (!direct_ && !placed_ && file_.is_open()) ::unlink(present_path().c_str());
  file_.close();
}

// Opening a pipe waits for a reader, and here the program's signals are blocked meanwhile. So a reader gets this long
// to come; then the result is ENXIO.
int OwnFile::open_direct(int flags, bool patient) {
  const int most = patient ? kPatienceMs : 1;
  int error = ENXIO;
  for (int i = 0; i < most && error == ENXIO; ++i) {
    if (i > 0) ::usleep(1000);
    error = file_.open(path_.c_str(), flags | O_NONBLOCK);
  }
  if (error == 0) ::fcntl(file_.number(), F_SETFL, flags & O_APPEND);
  return error;
}

// The program has closed descriptors that it did not know: reopens the file, if it is still there.
bool OwnFile::reopen() {
  file_.close();  // the number is no longer ours, and may be reused
  QuietFile again;
  if (again.open(path_.c_str(), O_RDWR | O_NOFOLLOW) != 0) return false;
  if (!(FileIdentity::of(again.number()) == identity_)) return false;
  ::flock(again.number(), LOCK_EX | LOCK_NB);
  ::lseek(again.number(), 0, SEEK_END);
  file_ = std::move(again);
  return true;
}

void OwnFile::named(const std::string& path, const std::string& shown) {
  path_ = path;
  shown_ = shown;
  placed_ = true;
}

// Its folder may have been moved, and the process may have changed its own.
std::string OwnFile::present_path() const {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file_.number());
  const ssize_t bytes = file_.is_ours() ? ::readlink(link, path, sizeof path) : -1;
  if (bytes <= 0 || bytes == static_cast<ssize_t>(sizeof path) || path[0] != '/') return path_;
  const std::string found(path, static_cast<std::size_t>(bytes));
  const auto facts = what_is_at(found), own = what_is_at(link, /*follow=*/true);
  return facts && own && same_file(*facts, *own) ? found : path_;
}

bool OwnFile::waits_for_older(const std::string& wanted) const {
  for (const PartFile& part : parts_of(wanted))
    if (part.time < time_ && part.is_written()) return true;
  return false;
}

// Whether the same file, unchanged, was there when this one was begun.
bool OwnFile::stood_before(const struct statx& found) const {
  const bool stood_at_wanted = before_ && same_file(*before_, found) && changed_ns(*before_) == changed_ns(found) &&
                               before_->stx_size == found.stx_size;
  return stood_at_wanted || touched_ns(found) + tick_ns() <= begun_ns_;
}

OwnFile::Moved OwnFile::move_to(const std::string& part, const std::string& to, FileKind kind) const {
  const int taken = take_free(part, to);
  if (taken != EEXIST) return {taken};
  FileFacts found, out;
  if (const char* const why = why_not_replaced(to, kind, found)) return {0, why};
  if (!found) return {take_free(part, to)};  // it is gone meanwhile
  if (!stood_before(*found)) return {0, "was written meanwhile by another process"};
  constexpr unsigned kExchange = 2;
  if (!rename_with(part, to, kExchange)) {
    if (errno == EPERM || errno == EACCES) return {0, "may not be replaced"};
    if (errno != EINVAL && errno != ENOSYS) return {errno};
    return {std::rename(part.c_str(), to.c_str()) == 0 ? 0 : errno};
  }
  const char* const changed = why_not_replaced(part, kind, out);
  if (!changed && out && same_file(*out, *found) && changed_ns(*out) == changed_ns(*found)) {
    ::unlink(part.c_str());
    return {};
  }
  rename_with(part, to, kExchange);
  return {0, "is being written by another process"};
}

std::string left_alone(const std::string& wanted, const std::string& why) {
  return wanted + " " + why + " and is left alone";
}

}  // namespace nimble
