#include "shim/process/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/sink.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>
#include <type_traits>

#include "nimble/internal/process/quiet_file.h"
#include "shim/options/options.h"
#include "shim/process/roomy_stack.h"

namespace nimble::shim {

namespace {

constexpr int kPatienceMs = 20;  // for a reader of stderr that does not read
constexpr int kMostTries = 16;   // if other writers were faster each time
constexpr std::array<std::string_view, spdlog::level::n_levels> kWords = {"trace", "debug",    "info", "warning",
                                                                          "error", "critical", "off"};

// The process's state when the library was loaded. Never destroyed: lines may come while the process ends.
struct Start {
  FileIdentity error = FileIdentity::of(STDERR_FILENO);
  char folder[PATH_MAX] = "";  // for a relative NIMBLE_LOG_FILE, even if the program changes folder

  Start() {
    if (!::getcwd(folder, sizeof folder)) folder[0] = '\0';
  }
};
static_assert(std::is_trivially_destructible_v<Start>);

// Allocates nothing: there may be no memory.
const Start& at_start() {
  static const Start instance;
  return instance;
}

// How much of it a pipe takes at once, perhaps not all; or less than 0, with errno. Between a poll of the pipe and a
// write others may fill it, and then the write would wait for its reader. So we ask the kernel not to wait in this
// write; other writes by the same descriptor wait as before. Not every kernel can do that for a pipe, and none for
// terminals and named pipes: for these the poll must do.
ssize_t write_without_waiting(const char* data, std::size_t bytes) noexcept {
  QuietSignals quiet;
  const iovec part{const_cast<char*>(data), bytes};
  constexpr off_t kWhereItIs = -1;
  const ssize_t written = ::pwritev2(STDERR_FILENO, &part, 1, kWhereItIs, RWF_NOWAIT);
  if (written < 0) quiet.failed(errno);
  if (written >= 0 || errno == EAGAIN || errno == EINTR || errno == EPIPE) return written;
  return write_quiet(STDERR_FILENO, data, bytes) == 0 ? static_cast<ssize_t>(bytes) : -1;
}

bool is_at_end(int file) noexcept {
  struct statx facts {};
  const off_t at = ::lseek(file, 0, SEEK_CUR);
  return at < 0 || statx(file, "", AT_EMPTY_PATH, STATX_SIZE, &facts) != 0 ||
         static_cast<std::uint64_t>(at) >= facts.stx_size;
}

// Where stderr is a file. stdout may be the same, by a descriptor with a position of its own (`> file 2> file`): then
// the program has written beyond our position. So lines go to the end. The program's next line on stderr follows ours,
// unless it would not have gone to the end: then its position stays.
void append_to_stderr(std::string_view line) noexcept {
  constexpr off_t kMovesPosition = -1;
  const off_t position = is_at_end(STDERR_FILENO) ? kMovesPosition : 0;
  QuietSignals quiet;
  while (!line.empty()) {
    const iovec part{const_cast<char*>(line.data()), line.size()};
    const ssize_t written = ::pwritev2(STDERR_FILENO, &part, 1, position, RWF_APPEND);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) {  // before Linux 4.16
      write_quiet(STDERR_FILENO, line.data(), line.size());
      return;
    }
    if (written < 0) quiet.failed(errno);
    if (written <= 0) return;
    line.remove_prefix(static_cast<std::size_t>(written));
  }
}

void to_stderr(std::string_view line) noexcept {
  static std::atomic<bool> full{false};  // the last line found no room, so the next one does not wait
  const FileIdentity& error = at_start().error;
  if (!error.known || FileIdentity::of(STDERR_FILENO) != error) return;
  if (error.type == S_IFREG) return append_to_stderr(line);
  for (int tries = 0; !line.empty() && tries < kMostTries; ++tries) {
    pollfd out{STDERR_FILENO, POLLOUT, 0};
    const int ready = ::poll(&out, 1, full.load(std::memory_order_relaxed) ? 0 : kPatienceMs);
    if (ready < 0 && errno == EINTR) continue;
    full.store(ready == 0, std::memory_order_relaxed);
    if (ready <= 0 || (out.revents & (POLLOUT | POLLERR)) != POLLOUT) return;
    // A pipe that is ready takes this many bytes atomically, not interleaved with others' writes.
    const std::size_t bytes = std::min<std::size_t>(line.size(), PIPE_BUF);
    const ssize_t written = error.type == S_IFSOCK
                                ? ::send(STDERR_FILENO, line.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                                : write_without_waiting(line.data(), bytes);
    if (written < 0 && (errno == EAGAIN || errno == EINTR)) continue;  // other writers were faster
    if (written <= 0) return;
    tries = 0;
    line.remove_prefix(static_cast<std::size_t>(written));
  }
}

// NIMBLE_LOG_FILE, opened. A child has its own if the name has %p.
struct LogFile {
  pid_t owner = 0;
  std::string path;
  QuietFile file;             // not open: lines go to stderr
  LogFile* before = nullptr;  // the file that it replaces, which stays: another thread may be about to write to it
};

constinit std::atomic<LogFile*> g_file{nullptr};

std::unique_ptr<LogFile> open_file(const std::string& path) {
  auto made = std::make_unique<LogFile>();
  made->owner = ::getpid();
  made->path = path;
  // Not blocking: no lines for a pipe that no one reads.
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK;
  if (const int error = has_few_descriptors() ? EMFILE : made->file.open(path.c_str(), flags)) {
    to_stderr("nimble: error: NIMBLE_LOG_FILE: cannot open " + path + ": " +
              (error == ELOOP ? "it is a link, and links are not followed" : std::strerror(error)) +
              ". Messages go to stderr\n");
  }
  return made;
}

std::string path_now() {
  const std::string name = read_options().log_file;
  return name.empty() || name.front() == '/' ? name : std::string(at_start().folder) + "/" + name;
}

bool is_file_wanted() {
  enum class Wanted : std::uint8_t { unknown, no, yes };
  static constinit std::atomic<Wanted> wanted{Wanted::unknown};
  if (wanted.load(std::memory_order_relaxed) == Wanted::unknown)
    wanted.store(read_options().log_file.empty() ? Wanted::no : Wanted::yes, std::memory_order_relaxed);
  return wanted.load(std::memory_order_relaxed) == Wanted::yes;
}

// Replaces `known`, the file so far, unless another thread has.
void open_instead_of(LogFile* known, const std::string& path) {
  std::unique_ptr<LogFile> made = open_file(path);
  made->before = known;
  if (g_file.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) made.release();
}

// False if the line is for stderr.
bool to_file(std::string_view line) {
  if (!is_file_wanted()) return false;
  for (int tries = 0; tries < 3; ++tries) {
    LogFile* const known = g_file.load(std::memory_order_acquire);
    std::string path;
    if (known && known->owner != ::getpid() && (path = path_now()) == known->path) known->owner = ::getpid();
    if (known && known->owner == ::getpid()) {
      if (!known->file.is_open()) return false;
      if (known->file.write(line.data(), line.size()) != EBADF) return true;
      path = known->path;  // the program has closed it, along with every descriptor that it did not know
    }
    open_instead_of(known, path.empty() ? path_now() : path);
  }
  return true;
}

// Where spdlog's lines go. No lock, and no state of its own: it is used from any thread, and in forked children.
class QuietSink final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    fmt::memory_buffer line;
    fmt::format_to(std::back_inserter(line), "nimble: {}: {}\n", kWords[static_cast<std::size_t>(message.level)],
                   std::string_view(message.payload.data(), message.payload.size()));
    const std::string_view text(line.data(), line.size());
    if (!to_file(text)) to_stderr(text);
  }
  void flush() override {}
  void set_pattern(const std::string& /*pattern*/) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter> /*formatter*/) override {}
};

// Never destroyed: lines may come while the process ends. Concurrent threads each make one, and one of them stays: if
// they waited for the first, a child forked meanwhile would wait for ever, since it has no such thread.
constinit std::atomic<spdlog::logger*> g_logger{nullptr};

spdlog::logger& logger() {
  if (spdlog::logger* const known = g_logger.load(std::memory_order_acquire)) return *known;
  auto made = std::make_unique<spdlog::logger>("nimble", std::make_shared<QuietSink>());  // not registered with spdlog
  made->set_error_handler([](const std::string&) {});  // else spdlog reports on stderr that memory ran out
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::off, spdlog::level::err, spdlog::level::warn,
                                                   spdlog::level::info};
  const Options options = read_options();
  made->set_level(kLevels[static_cast<std::size_t>(options.log)]);
  spdlog::logger* other = nullptr;
  if (!g_logger.compare_exchange_strong(other, made.get(), std::memory_order_acq_rel)) return *other;
  spdlog::logger& mine = *made.release();
  if (!options.log_complaint.empty()) mine.warn("{}", options.log_complaint);
  return mine;
}

}  // namespace

void log(LogLevel level, const std::string& text) noexcept try {
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::err, spdlog::level::warn, spdlog::level::info};
  const QuietSignals quiet;  // no program thread is cancelled in here
  with_room([&] { logger().log(kLevels[static_cast<std::size_t>(level)], text); });
} catch (...) {  // out of memory: no message
}

void open_log() noexcept try {
  const QuietSignals quiet;
  with_room([] {
    LogFile* const known = g_file.load(std::memory_order_acquire);
    if (is_file_wanted() && (!known || known->owner != ::getpid())) open_instead_of(known, path_now());
  });
} catch (...) {  // out of memory
}

void remember_stderr() { at_start(); }

}  // namespace nimble::shim
