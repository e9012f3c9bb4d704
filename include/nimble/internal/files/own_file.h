// Files that Nimble writes. Never overwrites others' files, and follows no link at a file's name.
//
// While a file is written it has a unique name, NAME.PID.TIME.part in the same folder. At the end it gets the wanted
// name, if that is free or is a file that Nimble has written (its beginning tells); otherwise NAME with `.nimble`
// before its extension, then with numbers. Each step is atomic: a free name is taken by a rename that replaces nothing,
// one of Nimble's by an exchange, after which we check what came out. What is not a regular file (/dev/null, a pipe, a
// device) is written in place.
//
// Processes that write to one name concurrently each get their own: the first to begin gets the wanted one, and a file
// never replaces another that was finished after it began. Processes detect each other by locks (flock) on what they
// write.
//
// Throws only std::bad_alloc. Each OwnFile is used by one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/files/file_kind.h"
#include "nimble/internal/files/growing_file.h"
#include "nimble/internal/process/quiet_file.h"

namespace nimble {

class OwnFile {
 public:
  static constexpr int kPatienceMs = 1000;  // how long a pipe's reader is waited for

  // Makes the file. 0, or errno. `through_links`: appends to the target of a system link, even if it is a file with a
  // name of its own; otherwise that is EINVAL. `patient`: waits for a while for the reader of a pipe; else it is ENXIO.
  int open(const std::string& wanted, bool through_links = false, bool patient = true);

  bool is_open() const { return file_.is_open(); }
  bool is_direct() const { return direct_; }
  // Whether the program has closed its descriptor, so that the next write opens it again; and that.
  bool is_lost() const { return file_.is_open() && !direct_ && !file_.is_ours(); }
  bool reopen();
  // The descriptor; -1 if it is no longer ours.
  int number() const { return file_.is_ours() ? file_.number() : -1; }
  // For reading it, until it gets its name; not open if it is not a file.
  GrowingFile reading() const { return direct_ || !file_.is_open() ? GrowingFile() : GrowingFile(path_, identity_); }
  // Its present path, relative to the process's first folder.
  const std::string& path() const { return shown_.empty() ? path_ : shown_; }
  // The same as an absolute path.
  const std::string& location() const { return path_; }
  const std::string& wanted() const { return wanted_; }
  // Why it does not have the wanted name; empty if it does.
  const std::string& why_other() const { return why_other_; }

  int write(const void* data, std::size_t bytes);
  // How many bytes it holds.
  std::optional<std::uint64_t> size() const;
  // Truncates it, and continues from there. 0, or errno.
  int cut(std::uint64_t size);

  // Gives it the wanted name, or a substitute. 0, or errno: then it keeps its name.
  int place(FileKind kind);
  // Replaces whatever file has that name: the user said so. 0, or errno.
  int place_by_force();
  // Only if its name is free or may be replaced. 0, or errno; else EEXIST, with the reason in why_other().
  int place_at_wanted(FileKind kind);

  // Deletes it, unless it has its final name.
  void discard();
  int close() { return file_.close(); }

 private:
  struct Moved {
    int error = 0;
    const char* text = nullptr;
  };

  int make(const std::string& folder, const std::string& name);
  int open_direct(int flags, bool patient);
  void named(const std::string& path, const std::string& shown);
  std::string present_path() const;
  bool waits_for_older(const std::string& wanted) const;
  bool stood_before(const struct statx& found) const;
  Moved move_to(const std::string& part, const std::string& to, FileKind kind) const;

  QuietFile file_;
  std::string wanted_, base_, path_, shown_, why_other_;
  FileIdentity identity_;
  FileFacts before_;  // what was at the wanted name
  std::uint64_t time_ = 0;
  std::int64_t begun_ns_ = 0;
  bool direct_ = false, placed_ = false;
};

// The message for a file or folder that did not get the wanted name.
std::string left_alone(const std::string& wanted, const std::string& why);

}  // namespace nimble
