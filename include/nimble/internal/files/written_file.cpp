#include "nimble/internal/files/written_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "nimble/internal/files/own_file.h"
#include "nimble/internal/process/quiet_file.h"

namespace nimble {

WrittenFile write_own_file(const std::string& wanted, std::string_view text, FileKind kind, Taken taken) {
  OwnFile file;
  const bool is_named = taken != Taken::another_name;  // named by a user, for instance /dev/stdout
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

std::string replace_own_file(const std::string& path, std::string_view text, FileKind kind, const FileFacts& read) {
  const NotCancelled not_cancelled;
  FileFacts found;
  if (const char* const why = why_not_replaced(path, kind, found)) return why;
  if (!found) return "no longer exists";
  OwnFile file;
  int error = file.open(path);
  // Checked once the new file is begun: the move notices later changes.
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

Taken taken_of_named(const std::string& path, bool force) {
  const auto there = what_is_at(path);
  const bool is_empty = there && S_ISREG(there->stx_mode) && there->stx_size == 0;
  return force || is_empty ? Taken::replace : Taken::refuse;
}

std::string refusal_of_named(const std::string& path, const std::string& why) {
  return path + " " + why + ": not writing there. Name another file, or replace it with --force";
}

std::string why_refused(const std::string& path, FileKind kind, bool force) {
  if (path.empty() || taken_of_named(path, force) == Taken::replace) return {};
  if (is_no_file(path) || is_systems_link(path)) return {};
  FileFacts found;
  const char* const why = why_not_replaced(path, kind, found);
  return why ? refusal_of_named(path, why) : std::string();
}

}  // namespace nimble
