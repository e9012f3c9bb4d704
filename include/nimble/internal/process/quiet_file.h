// Our files in the program's process: opening, writing and closing here changes nothing that the program can see.
// Descriptors are close-on-exec and have high numbers, so that the program's own next descriptor is the expected one;
// no write raises SIGPIPE or SIGXFSZ; no thread is cancelled within; and we never write to or close a number that the
// program has closed, and that may be its own file by now.
//
// The functions may be called by any thread, allocate nothing (read_quiet excepted), throw nothing and take no lock:
// they may run while the process ends, and in forked children. A QuietFile is used by one thread at a time.
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "nimble/internal/process/blocked_signals.h"
#include "nimble/internal/process/not_cancelled.h"

namespace nimble {

// While it lives, this thread is not cancelled, and SIGPIPE and SIGXFSZ wait. Those of our own writes are consumed
// before the program can see them: whoever writes says which writes failed. Signals that were pending before, or that
// others send, stay.
class QuietSignals {
 public:
  QuietSignals() noexcept {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGPIPE);
    sigaddset(&blocked, SIGXFSZ);
    sigaddset(&blocked,
              SIGTTOU);  // not even sent to a thread that blocks it: for a terminal of which we are in the background
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
    sigpending(&pending_);
  }
  ~QuietSignals() {
    const int error = errno;
    if (pipe_) consume(SIGPIPE);
    if (size_) consume(SIGXFSZ);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  QuietSignals(const QuietSignals&) = delete;
  QuietSignals& operator=(const QuietSignals&) = delete;

  // A write of this thread has failed with `error`, an errno.
  void failed(int error) noexcept {
    pipe_ = pipe_ || error == EPIPE;
    size_ = size_ || error == EFBIG;
  }

 private:
  // The kernel sends a failed write's signal to the thread, and a thread's signals are taken before its process's. If
  // it found one there already, the two have become one, which is the earlier one's: that one goes back.
  void consume(int signal) const noexcept {
    sigset_t one, pending;
    sigemptyset(&one);
    sigaddset(&one, signal);
    siginfo_t info;
    const timespec now{};
    // Not sigtimedwait(), which shows a thread's signal to itself as the kernel's.
    if (syscall(SYS_rt_sigtimedwait, &one, &info, &now, _NSIG / 8) != signal) return;
    const bool from_kernel = info.si_code == SI_USER && info.si_pid == getpid();
    sigpending(&pending);
    if (!from_kernel || (sigismember(&pending_, signal) && !sigismember(&pending, signal)))
      syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), signal, &info);
  }

  const NotCancelled not_cancelled_;
  sigset_t before_, pending_;
  bool pipe_ = false, size_ = false;
};

// Whether the limit on open files is so low that a descriptor of Nimble's could leave the program without one.
inline bool has_few_descriptors() noexcept {
  constexpr rlim_t kFew = 256;
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kFew;
}

// Moves a descriptor that was just opened to a high number, close-on-exec; -1 with errno if only 0, 1 and 2 are free,
// which are the program's even while it has them closed. Not so high that the kernel's descriptor table grows much.
inline int move_high(int file) noexcept {
  if (file < 0) return -1;
  constexpr rlim_t kHigh = 1024;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = kHigh;
  const auto lowest = static_cast<int>(std::min(limit.rlim_cur, kHigh) / 16 * 15);
  int high = ::fcntl(file, F_DUPFD_CLOEXEC, std::max(lowest, 3));
  if (high < 0 && file <= 2) high = ::fcntl(file, F_DUPFD_CLOEXEC, 3);
  if (high < 0 && file > 2) {
    ::fcntl(file, F_SETFD, FD_CLOEXEC);
    return file;
  }
  const int error = errno;
  ::close(file);
  errno = error;
  return high;
}

// open(), high and close-on-exec; -1 with errno. Files are made for their owner alone.
inline int open_quiet(const char* path, int flags, mode_t mode = 0600) noexcept {
  const BlockedSignals blocked;  // no handler may run, and open something, while the number is low
  const QuietSignals quiet;
  int file = -1;
  do file = ::open(path, flags | O_CLOEXEC | O_NOCTTY, mode);
  while (file < 0 && errno == EINTR);
  return move_high(file);
}

// Writes all of it. 0, or errno.
inline int write_quiet(int file, const void* data, std::size_t bytes) noexcept {
  QuietSignals quiet;
  for (const auto* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t written = ::write(file, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      quiet.failed(error);
      return error;
    }
    if (written == 0) return EIO;
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
  return 0;
}

// Identifies the file of a descriptor. A deleted file's inode may be reused: the new file has another birth, to a tick
// of the kernel's clock. (fstat() itself is a symbol of glibc 2.33 if this is built on a newer one.)
struct FileIdentity {
  bool known = false;
  std::uint32_t device_major = 0, device_minor = 0;
  std::uint64_t inode = 0;
  std::uint16_t type = 0;
  std::int64_t born_s = 0;
  std::uint32_t born_ns = 0;

  // That of an open file; unknown if the number is closed.
  static FileIdentity of(int file) noexcept {
    struct statx facts {};
    if (file < 0 ||
        statx(file, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO | STATX_BTIME, &facts) != 0)
      return {};
    const bool born = facts.stx_mask & STATX_BTIME;
    return {.known = true,
            .device_major = facts.stx_dev_major,
            .device_minor = facts.stx_dev_minor,
            .inode = facts.stx_ino,
            .type = static_cast<std::uint16_t>(facts.stx_mode & S_IFMT),
            .born_s = born ? facts.stx_btime.tv_sec : 0,
            .born_ns = born ? facts.stx_btime.tv_nsec : 0};
  }
  bool operator==(const FileIdentity&) const = default;
};

// Our file that stays open while the program runs.
class QuietFile {
 public:
  QuietFile() noexcept = default;
  ~QuietFile() { close(); }
  QuietFile(QuietFile&& other) noexcept { *this = std::move(other); }
  QuietFile& operator=(QuietFile&& other) noexcept {
    if (this == &other) return *this;
    close();
    file_ = std::exchange(other.file_, -1);
    identity_ = other.identity_;
    return *this;
  }

  // 0, or errno.
  int open(const char* path, int flags, mode_t mode = 0600) noexcept {
    close();
    file_ = open_quiet(path, flags, mode);
    if (file_ < 0) return errno;
    identity_ = FileIdentity::of(file_);
    return 0;
  }
  bool is_open() const noexcept { return file_ >= 0; }
  // The descriptor: valid if is_ours().
  int number() const noexcept { return file_; }
  // Whether the number still is the file that we opened: the program may have closed all descriptors that it did not
  // know.
  bool is_ours() const noexcept { return file_ >= 0 && identity_.known && FileIdentity::of(file_) == identity_; }
  // 0, or errno: EBADF if the program has closed it.
  int write(const void* data, std::size_t bytes) const noexcept {
    return is_ours() ? write_quiet(file_, data, bytes) : EBADF;
  }
  // 0, or errno: a full disk may show only now.
  int close() noexcept {
    const NotCancelled not_cancelled;
    const bool ours = is_ours();
    const int file = std::exchange(file_, -1);
    return ours && ::close(file) != 0 && errno != EINTR ? errno : 0;
  }

 private:
  int file_ = -1;
  FileIdentity identity_;
};

// Reads a whole file, also of /proc, or everything from a pipe until its writers are gone; does not wait for a writer
// to come. 0, or errno, and nothing read: EFBIG if it is more than `most` bytes, ENOMEM.
inline int read_quiet(const char* path, std::size_t most, std::string& text) noexcept {
  constexpr std::size_t kLeast = std::size_t{1} << 14;  // files of /proc do not report their size
  text.clear();
  const QuietSignals quiet;
  QuietFile file;
  if (const int error = file.open(path, O_RDONLY | O_NONBLOCK)) return error;  // opened with all signals blocked
  if (::fcntl(file.number(), F_SETFL, 0) != 0) return errno;                   // but reading blocks none
  struct statx facts {};
  if (statx(file.number(), "", AT_EMPTY_PATH, STATX_SIZE, &facts) == 0 && facts.stx_size > most) return EFBIG;
  int error = 0;
  std::size_t size = 0;
  try {
    text.resize(std::max<std::size_t>(kLeast, facts.stx_size + 1));
    while (error == 0) {
      if (size == text.size()) text.resize(size + size / 2);
      const ssize_t got = ::read(file.number(), text.data() + size, text.size() - size);
      if (got == 0) break;
      if (got > 0) size += static_cast<std::size_t>(got);
      if (got < 0 && errno != EINTR) error = errno;
      if (size > most) error = EFBIG;
    }
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  text.resize(error == 0 ? size : 0);
  return error;
}

}  // namespace nimble
