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
  // Makes the file. 0, or errno. `through_links`: what a link of the system's own leads to is written as it is, behind
  // what it holds, though it be a file that has a name of its own; otherwise that is EINVAL.
  int open(const std::string& wanted, bool through_links = false);

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

  int write(const void* data, std::size_t bytes);
  // How many bytes it holds.
  std::optional<std::uint64_t> size() const;
  // Makes it so long, and goes on from there. 0, or errno.
  int cut(std::uint64_t size);

  // Gives it the wanted name, or one in its place. 0, or errno: then it keeps the name that it has.
  int place(FileKind kind);
  // Over whatever file has that name: the user has said so. 0, or errno.
  int place_by_force();
  // Only where its name is free or may be replaced. 0, or errno; EEXIST, with the reason in why_other(), where neither.
  int place_at_wanted(FileKind kind);

  // It has no worth: it goes, as long as it has no name but its own.
  void discard();
  int close() { return file_.close(); }

 private:
  struct Moved {
    int error = 0;
    const char* text = nullptr;
  };

  int make(const std::string& folder, const std::string& name);
  int open_direct(int flags);
  bool reopen();
  void named(const std::string& path, const std::string& shown);
  std::string present_path() const;
  bool waits_for_older(const std::string& wanted) const;
  bool stood_before(const struct statx& found) const;
  Moved move_to(const std::string& part, const std::string& to, FileKind kind) const;

  QuietFile file_;
  std::string wanted_, base_, path_, shown_, why_other_;
  FileIdentity identity_;
  FileFacts before_;  // what stood at the wanted name
  std::uint64_t time_ = 0;
  std::int64_t begun_ns_ = 0;
  bool direct_ = false, placed_ = false;
};

// What is said where a file, or a folder, has got another name than the wanted one.
std::string left_alone(const std::string& wanted, const std::string& why);

}  // namespace nimble
