#include "nimble/internal/files/file_kind.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "nimble/internal/process/quiet_file.h"

namespace nimble {

namespace {

// Whether the program has the file open. To open and close it once more would release all locks that the process holds
// on it by fcntl(), whatever descriptor it took them with. Unknown without /proc: then it is taken to be closed.
bool is_open_here(const struct statx& wanted) {
  QuietFile folder;
  if (folder.open("/proc/self/fd", O_RDONLY | O_DIRECTORY) != 0) return false;
  alignas(dirent64) char entries[1 << 12];
  for (;;) {
    const long got = ::syscall(SYS_getdents64, folder.number(), entries, sizeof entries);
    if (got <= 0) return false;
    for (long at = 0; at < got;) {
      const auto& entry = *reinterpret_cast<const dirent64*>(entries + at);
      struct statx facts {};
      // Follows the entry to the file, without opening it.
      if (::statx(folder.number(), entry.d_name, AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, &facts) == 0 &&
          same_file(facts, wanted))
        return true;
      at += entry.d_reclen;
    }
  }
}

// A skippable frame (RFC 8878, 3.1.2): a magic number, the size of the content, and content that decoders skip.
constexpr std::string_view kSkippable = "\x50\x2a\x4d\x18";
constexpr std::string_view kTraceMark = R"([{"ph":"M","name":"nimble.trace"}])";

}  // namespace

std::string packed_trace_mark() {
  std::string mark(kSkippable);
  for (int byte = 0; byte < 4; ++byte) mark.push_back(static_cast<char>(kTraceMark.size() >> (8 * byte) & 0xff));
  return mark.append(kTraceMark);
}

bool has_mark(std::string_view begin, FileKind kind) {
  if (begin.starts_with(kSkippable)) begin = begin.substr(std::min(begin.size(), kSkippable.size() + 4));
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
    case FileKind::code_report:
      return starts(R"({"nimble_code":)");
    case FileKind::kernels_report:
      return starts(R"({"nimble_kernels":)");
    case FileKind::ledger:
      return starts(R"({"nimble_ledger":)");
    case FileKind::diff:
      return starts(R"({"nimble_diff":)");
    case FileKind::live:
      return starts(R"({"nimble_live":)");
    case FileKind::page:
      return packed.find("<title>Nimblereport</title>") != std::string::npos;
  }
  return false;
}

const char* why_not_replaced(const std::string& path, FileKind kind, FileFacts& found) {
  const NotCancelled not_cancelled;
  found = what_is_at(path);
  if (!found) return nullptr;
  if (S_ISLNK(found->stx_mode)) return "is a link";
  if (S_ISDIR(found->stx_mode)) return "is a folder";
  if (!S_ISREG(found->stx_mode)) return "is not a file";
  if ((found->stx_mode & S_IWUSR) == 0) return "is write-protected";
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) return "may not be written";
  if (is_open_here(*found)) return "is open in this process";
  QuietFile file;  // for reading only: closing one that is open for writing notifies its watchers of a change
  if (file.open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK) != 0) return "cannot be read";
  char begin[1024];
  const ssize_t got = ::pread(file.number(), begin, sizeof begin, 0);
  if (got < 0 || !has_mark({begin, static_cast<std::size_t>(got)}, kind)) return "was not written by Nimble";
  if (::flock(file.number(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return "is being written by another process";
  return nullptr;
}

}  // namespace nimble
