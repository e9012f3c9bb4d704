// Files that Nimble writes. None that somebody else has written is overwritten, and no link at a file's name is
// followed.
//
// While a file is written it has a name that nobody else uses, NAME.PID.TIME.part in the same folder. At its end it
// gets the name that was wanted, where that is free or is a file that Nimble has written (its beginning tells);
// otherwise NAME with `.nimble` before its ending, then with numbers. Each step is one that others cannot come between:
// a free name is taken by a rename that replaces nothing, one that is ours by an exchange, after which what came out is
// looked at. What is no file (/dev/null, a pipe, a device) is written as it is.
//
// Of processes that write to one name at once each gets its own: the first to have begun has the wanted one, and what
// was finished behind the beginning of a file is not replaced by that. Processes know each other by locks (flock) on
// what they write.
//
// Nothing is thrown but std::bad_alloc. An OwnFile is used by one thread at a time, and any may have their own.
#pragma once

#include <dirent.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nimble/internal/process/quiet_file.h"

namespace nimble {

enum class FileKind : std::uint8_t { trace, schedule, counters, report, replay_report, dot, manifest };

// Whether a file that begins like that is one that Nimble has written. Other writers of JSON put spaces elsewhere.
inline bool has_mark(std::string_view begin, FileKind kind) {
  std::string packed;
  for (const char c : begin)
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') packed.push_back(c);
  const auto starts = [&](std::string_view mark) { return packed.starts_with(mark); };
  switch (kind) {
    case FileKind::trace:
      return starts(R"([{"ph":"M",)") && packed.find(R"("name":"nimble.trace")") < packed.find('}');
    case FileKind::schedule:
      return starts(R"({"nimble_schedule":)");
    case FileKind::counters:
      return starts(R"({"nimble_stats":)");
    case FileKind::report:
      return starts(R"({"nimble_report":)");
    case FileKind::replay_report:
      return starts(R"({"nimble_replay":)");
    case FileKind::dot:
      return starts("digraphstep{node[shape=box,fontsize=10];");
    case FileKind::manifest:
      return starts(R"({"nimble_bundle":)");
  }
  return false;
}

// The folder with its slash, or nothing; what stands in it.
struct SplitName {
  std::string folder, name;

  explicit SplitName(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash != std::string::npos) folder = path.substr(0, slash + 1);
    name = path.substr(folder.size());
  }
};

// The wanted name, and those that are taken in its place: t.json, t.nimble.json, t.nimble.2.json.
inline std::string name_in_place(const std::string& wanted, std::uint32_t which) {
  if (which == 0) return wanted;
  const SplitName split(wanted);
  std::size_t ending = split.name.rfind('.');
  if (ending == std::string::npos || ending == 0) ending = split.name.size();
  const std::string more = which == 1 ? ".nimble" : ".nimble." + std::to_string(which);
  return split.folder + split.name.substr(0, ending) + more + split.name.substr(ending);
}
inline constexpr std::uint32_t kMostNames = 1000;

// What stands at a name, which is not followed where it is a link. (lstat() is a symbol of glibc 2.33 where this is
// built on one that is newer.)
inline std::optional<struct statx> what_is_at(const std::string& path, bool follow = false) {
  struct statx facts {};
  if (statx(AT_FDCWD, path.c_str(), follow ? 0 : AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &facts) != 0) return {};
  return facts;
}
inline bool same_file(const struct statx& a, const struct statx& b) {
  return a.stx_ino == b.stx_ino && a.stx_dev_major == b.stx_dev_major && a.stx_dev_minor == b.stx_dev_minor;
}
inline std::int64_t changed_ns(const struct statx& facts) {
  return facts.stx_mtime.tv_sec * 1'000'000'000 + facts.stx_mtime.tv_nsec;
}

// When it was written last, or anything else about it was changed, such as its name: the later of the two. The first
// alone does not tell, since programs can set it to any time, as those do that copy files.
inline std::int64_t touched_ns(const struct statx& facts) {
  return std::max<std::int64_t>(changed_ns(facts), facts.stx_ctime.tv_sec * 1'000'000'000 + facts.stx_ctime.tv_nsec);
}

// How precise file times are: to the kernel's tick.
inline std::int64_t tick_ns() {
  timespec tick{};
  return clock_getres(CLOCK_REALTIME_COARSE, &tick) == 0 ? tick.tv_sec * 1'000'000'000 + tick.tv_nsec : 0;
}

// Links of the system's own, to what processes have open: /dev/stdout, /dev/fd/3.
inline bool is_systems_link(const std::string& path) {
  const std::string folder = SplitName(path).folder;
  if (folder != "/dev/" && folder != "/dev/fd/" && !folder.starts_with("/proc/")) return false;
  const auto facts = what_is_at(path);
  return facts && S_ISLNK(facts->stx_mode);
}

// Whether it is to be written as it is: a device, a pipe.
inline bool is_no_file(const std::string& path) {
  const auto facts = what_is_at(path, is_systems_link(path));
  return facts && !S_ISREG(facts->stx_mode) && !S_ISDIR(facts->stx_mode) && !S_ISLNK(facts->stx_mode);
}

// Why the file of this name must not be replaced, in words for people; null where there is none, or where it may be.
// `found`: what has that name.
using FileFacts = std::optional<struct statx>;
inline const char* why_not_replaced(const std::string& path, FileKind kind, FileFacts& found) {
  const NotCancelled not_cancelled;
  found = what_is_at(path);
  if (!found) return nullptr;
  if (S_ISLNK(found->stx_mode)) return "is a link";
  if (S_ISDIR(found->stx_mode)) return "is a folder";
  if (!S_ISREG(found->stx_mode)) return "is no file";
  if ((found->stx_mode & S_IWUSR) == 0) return "is write-protected";
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) return "may not be written";
  QuietFile file;  // for reading only: to close one that is open for writing counts as a change for who watches it
  if (file.open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK) != 0) return "cannot be read";
  char begin[1024];
  const ssize_t got = ::pread(file.number(), begin, sizeof begin, 0);
  if (got < 0 || !has_mark({begin, static_cast<std::size_t>(got)}, kind)) return "was not written by Nimble";
  if (::flock(file.number(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return "is being written by another process";
  return nullptr;
}

// Whether the file there is the one that was looked at before, with nothing written to it since.
inline bool is_unchanged(const std::string& path, const FileFacts& before) {
  const FileFacts now = what_is_at(path);
  return now && before && same_file(*now, *before) && changed_ns(*now) == changed_ns(*before) &&
         now->stx_size == before->stx_size;
}

// The same name, wherever the process goes.
inline std::string absolute_name(const std::string& path) {
  char folder[PATH_MAX];
  if (path.empty() || path.front() == '/' || !::getcwd(folder, sizeof folder)) return path;
  return folder + ("/" + path);
}

// Files NAME.PID.TIME.part beside the file of that name, by time.
struct PartFile {
  std::string path;
  std::uint64_t time = 0;

  // Whether a process is at it still.
  bool is_written() const {
    QuietFile file;
    if (file.open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK) != 0) return false;
    return ::flock(file.number(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  }
};
inline constexpr std::string_view kPartEnding = ".part";

inline std::vector<PartFile> parts_of(const std::string& wanted) {
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

// A file that is read by one thread while another writes it as an OwnFile. Between the two nothing is shared but the
// file itself: a lock (flock) is of what was opened together, and what a forked child has of this keeps nothing locked.
// Used by one thread at a time.
class GrowingFile {
 public:
  GrowingFile() = default;
  // The file that has that name, as long as it is that one.
  GrowingFile(std::string path, const FileIdentity& identity) : path_(std::move(path)), identity_(identity) {}

  // Whether there is a file to read, or was.
  bool is_file() const { return !path_.empty(); }
  // Opens it, or once more where the program has closed it. False where it is not there any more.
  bool open() {
    if (path_.empty()) return false;
    if (file_.is_ours()) return true;
    if (file_.open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK) == 0 &&
        FileIdentity::of(file_.number()) == identity_)
      return true;
    file_.close();
    return false;
  }
  // How many bytes were read; 0 where there are no more, or none to be had.
  std::size_t read(void* data, std::size_t bytes, std::uint64_t at) const {
    const ssize_t got = file_.is_ours() ? ::pread(file_.number(), data, bytes, static_cast<off_t>(at)) : 0;
    return got > 0 ? static_cast<std::size_t>(got) : 0;
  }
  void close() noexcept { file_.close(); }

 private:
  std::string path_;
  FileIdentity identity_;
  QuietFile file_;
};

class OwnFile {
 public:
  // Makes the file. 0, or errno. `through_links`: what a link of the system's own leads to is written as it is, behind
  // what it holds, though it be a file that has a name of its own; otherwise that is EINVAL.
  int open(const std::string& wanted, bool through_links = false) {
    const NotCancelled not_cancelled;
    wanted_ = wanted;
    const SplitName split(wanted);
    if (split.name.empty()) return EISDIR;
    const bool is_device = is_no_file(wanted), is_link = !is_device && is_systems_link(wanted);
    if (is_link && !through_links) return EINVAL;
    direct_ = is_device || is_link;
    if (direct_) {
      path_ = wanted;
      return open_direct(O_WRONLY | (is_link ? O_APPEND : 0));
    }
    // The program may go to another folder meanwhile.
    if (wanted.front() != '/') {
      char folder[PATH_MAX];
      if (::getcwd(folder, sizeof folder)) base_ = std::string(folder) + "/";
    }
    before_ = what_is_at(wanted);
    for (std::uint64_t attempt = 0;; ++attempt) {
      timespec now{};
      clock_gettime(CLOCK_REALTIME, &now);
      time_ = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
      char numbers[48];
      std::snprintf(numbers, sizeof numbers, ".%d.%016llx", static_cast<int>(::getpid()),
                    static_cast<unsigned long long>(time_));
      const std::string ending = numbers + std::string(kPartEnding);
      std::string name = split.name;
      if (name.size() + ending.size() > NAME_MAX) name.resize(NAME_MAX - ending.size());
      path_ = base_ + split.folder + name + ending;
      shown_ = split.folder + name + ending;
      const int error = file_.open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
      if (error == EEXIST && attempt < 100) continue;
      if (error) return error;
      break;
    }
    identity_ = FileIdentity::of(file_.number());
    ::fchmod(file_.number(), 0600);  // whatever the mask of the process is
    // Who looks whether a process is at it has the lock for a moment.
    for (int attempt = 0; attempt < 20 && ::flock(file_.number(), LOCK_EX | LOCK_NB) != 0; ++attempt) {
      if (errno != EWOULDBLOCK) break;
      const timespec moment{0, 1'000'000};
      ::nanosleep(&moment, nullptr);
    }
    if (const auto facts = what_is_at(path_)) begun_ns_ = changed_ns(*facts);
    return 0;
  }

  bool is_open() const { return file_.is_open(); }
  bool is_direct() const { return direct_; }
  // For what only a descriptor does; -1 where it is not ours any more.
  int number() const { return file_.is_ours() ? file_.number() : -1; }
  // To read it by, until it gets its name; nothing where it is no file.
  GrowingFile reading() const { return direct_ || !file_.is_open() ? GrowingFile() : GrowingFile(path_, identity_); }
  // Where it is now, as a user of the process's first folder would say it.
  const std::string& path() const { return shown_.empty() ? path_ : shown_; }
  // The same, wherever the process is now.
  const std::string& location() const { return path_; }
  const std::string& wanted() const { return wanted_; }
  // Why it has another name than the wanted one; empty where it has that.
  const std::string& why_other() const { return why_other_; }

  int write(const void* data, std::size_t bytes) {
    if (!file_.is_open()) return EBADF;
    if (!direct_ && !file_.is_ours() && !reopen()) return EBADF;
    return file_.write(data, bytes);
  }

  // How many bytes it holds.
  std::optional<std::uint64_t> size() const {
    struct statx facts {};
    if (number() < 0 || statx(file_.number(), "", AT_EMPTY_PATH, STATX_SIZE, &facts) != 0) return {};
    return facts.stx_size;
  }
  // Makes it so long, and goes on from there. 0, or errno.
  int cut(std::uint64_t size) {
    if (number() < 0) return EBADF;
    const auto at = static_cast<off_t>(size);
    return ::ftruncate(file_.number(), at) != 0 || ::lseek(file_.number(), at, SEEK_SET) < 0 ? errno : 0;
  }

  // Gives it the wanted name, or one in its place. 0, or errno: then it keeps the name that it has.
  int place(FileKind kind) {
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

  // Over whatever file has that name: the user has said so. 0, or errno.
  int place_by_force() {
    if (direct_) return 0;
    const std::string part = present_path();
    const std::string to = SplitName(part).folder + SplitName(wanted_).name;
    if (std::rename(part.c_str(), to.c_str()) != 0) return errno;
    named(to, wanted_);
    return 0;
  }

  // Only where its name is free or may be replaced. 0, or errno; EEXIST, with the reason in why_other(), where neither.
  int place_at_wanted(FileKind kind) {
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

  // It has no worth: it goes, as long as it has no name but its own.
  void discard() {
    if (!direct_ && !placed_ && file_.is_open()) ::unlink(present_path().c_str());
    file_.close();
  }
  int close() { return file_.close(); }

 private:
  struct Moved {
    int error = 0;
    const char* text = nullptr;
  };

  // Opening a pipe waits until somebody reads it, and here the program's signals are held back meanwhile. So a reader
  // is given this long to come; then the answer is ENXIO.
  int open_direct(int flags) {
    constexpr int kPatienceMs = 1000;
    int error = ENXIO;
    for (int i = 0; i < kPatienceMs && error == ENXIO; ++i) {
      if (i > 0) ::usleep(1000);
      error = file_.open(path_.c_str(), flags | O_NONBLOCK);
    }
    if (error == 0) ::fcntl(file_.number(), F_SETFL, flags & O_APPEND);
    return error;
  }

  // The program has closed what it did not know: it is opened once more, if it is there still.
  bool reopen() {
    file_.close();  // the number, which is not ours any more, may be given out again
    QuietFile again;
    if (again.open(path_.c_str(), O_RDWR | O_NOFOLLOW) != 0) return false;
    if (!(FileIdentity::of(again.number()) == identity_)) return false;
    ::flock(again.number(), LOCK_EX | LOCK_NB);
    ::lseek(again.number(), 0, SEEK_END);
    file_ = std::move(again);
    return true;
  }

  void named(const std::string& path, const std::string& shown) {
    path_ = path;
    shown_ = shown;
    placed_ = true;
  }

  // Its folder may have been moved, and the process to another.
  std::string present_path() const {
    char link[64], path[PATH_MAX];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", file_.number());
    const ssize_t bytes = file_.is_ours() ? ::readlink(link, path, sizeof path) : -1;
    if (bytes <= 0 || bytes == static_cast<ssize_t>(sizeof path) || path[0] != '/') return path_;
    const std::string found(path, static_cast<std::size_t>(bytes));
    const auto facts = what_is_at(found), own = what_is_at(link, /*follow=*/true);
    return facts && own && same_file(*facts, *own) ? found : path_;
  }

  bool waits_for_older(const std::string& wanted) const {
    for (const PartFile& part : parts_of(wanted))
      if (part.time < time_ && part.is_written()) return true;
    return false;
  }

  // Whether the file stood there, as it is, when this one was begun.
  bool stood_before(const struct statx& found) const {
    const bool stood_at_wanted = before_ && same_file(*before_, found) && changed_ns(*before_) == changed_ns(found) &&
                                 before_->stx_size == found.stx_size;
    return stood_at_wanted || touched_ns(found) + tick_ns() <= begun_ns_;
  }

  static bool rename_with(const std::string& from, const std::string& to, unsigned flags) {
    return ::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0;
  }

  // Takes a name that nothing has. EEXIST where something has.
  static int take_free(const std::string& part, const std::string& to) {
    constexpr unsigned kNoReplace = 1;
    if (rename_with(part, to, kNoReplace)) return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;
    if (::link(part.c_str(), to.c_str()) == 0) {
      ::unlink(part.c_str());
      return 0;
    }
    if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP) return errno;
    // A file system that knows neither: the name is taken first.
    const int empty = open_quiet(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
    if (empty < 0) return errno;
    ::close(empty);
    if (std::rename(part.c_str(), to.c_str()) == 0) return 0;
    const int error = errno;
    ::unlink(to.c_str());
    return error;
  }

  Moved move_to(const std::string& part, const std::string& to, FileKind kind) const {
    const int taken = take_free(part, to);
    if (taken != EEXIST) return {taken};
    FileFacts found, out;
    if (const char* const why = why_not_replaced(to, kind, found)) return {0, why};
    if (!found) return {take_free(part, to)};  // it has gone meanwhile
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

  QuietFile file_;
  std::string wanted_, base_, path_, shown_, why_other_;
  FileIdentity identity_;
  FileFacts before_;  // what stood at the wanted name
  std::uint64_t time_ = 0;
  std::int64_t begun_ns_ = 0;
  bool direct_ = false, placed_ = false;
};

// What is said where a file, or a folder, has got another name than the wanted one.
inline std::string left_alone(const std::string& wanted, const std::string& why) {
  return wanted + " " + why + " and is left alone";
}

// ---- files that are written at once ----

// What becomes of a file that was not written by Nimble: it is left alone and another name is taken, it is left alone
// and nothing is written, or it is replaced.
enum class Taken : std::uint8_t { another_name, refuse, replace };

struct WrittenFile {
  int error = 0;          // errno; EEXIST where it was refused
  std::string path;       // what was written
  std::string why_other;  // why it has another name, or was refused
};

inline WrittenFile write_own_file(const std::string& wanted, std::string_view text, FileKind kind,
                                  Taken taken = Taken::another_name) {
  OwnFile file;
  const bool is_named = taken != Taken::another_name;  // by a user, who says /dev/stdout
  if (const int error = file.open(wanted, is_named)) return {error, wanted, {}};
  int error = file.write(text.data(), text.size());
  if (error == 0)
    error = taken == Taken::replace  ? file.place_by_force()
            : taken == Taken::refuse ? file.place_at_wanted(kind)
                                     : file.place(kind);
  const std::string path = file.path();
  if (error != 0) file.discard();
  const int closed = file.close();
  return {error != 0 ? error : closed, error != 0 ? wanted : path, file.why_other()};
}

// For names that a user gives on a command line: what is not ours is replaced where the user says so, and where nothing
// is in it.
inline Taken taken_of_named(const std::string& path, bool force) {
  const auto there = what_is_at(path);
  const bool is_empty = there && S_ISREG(there->stx_mode) && there->stx_size == 0;
  return force || is_empty ? Taken::replace : Taken::refuse;
}
// Why nothing will be written there, as a sentence for people; empty where nothing is in the way.
inline std::string refusal_of_named(const std::string& path, const std::string& why) {
  return path + " " + why + ": nothing is written there. Name another file, or say --force to replace it";
}
inline std::string why_refused(const std::string& path, FileKind kind, bool force) {
  if (path.empty() || taken_of_named(path, force) == Taken::replace) return {};
  if (is_no_file(path) || is_systems_link(path)) return {};
  FileFacts found;
  const char* const why = why_not_replaced(path, kind, found);
  return why ? refusal_of_named(path, why) : std::string();
}

// Puts another text into a file of ours that is there, if it is the one that was `read`, as that was before it was
// read. It keeps its owner and its mode. Empty, or why it is as it was.
inline std::string replace_own_file(const std::string& path, std::string_view text, FileKind kind,
                                    const FileFacts& read) {
  const NotCancelled not_cancelled;
  FileFacts found;
  if (const char* const why = why_not_replaced(path, kind, found)) return why;
  if (!found) return "is not there any more";
  OwnFile file;
  int error = file.open(path);
  // Looked at once it is begun: what is changed behind that, the move notices.
  if (error == 0 && !is_unchanged(path, read)) {
    file.discard();
    return "was changed meanwhile";
  }
  if (error == 0) error = file.write(text.data(), text.size());
  const bool others = found->stx_uid != ::geteuid() || found->stx_gid != ::getegid();
  if (error == 0 && others && ::fchown(file.number(), found->stx_uid, found->stx_gid) != 0) error = errno;
  if (error == 0 && ::fchmod(file.number(), found->stx_mode & 07777) != 0) error = errno;
  if (error == 0 && ::fsync(file.number()) != 0) error = errno;
  if (error == 0) error = file.place_at_wanted(kind);
  if (error == 0) return {};
  file.discard();
  return file.why_other().empty() ? std::string("cannot be written: ") + std::strerror(error) : file.why_other();
}

}  // namespace nimble
