// Reads a file in one thread while another writes it as an OwnFile. The two share only the file itself: a lock (flock)
// belongs to an open file description, so a forked child's copy of this keeps nothing locked. Used by one thread at a
// time.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "nimble/internal/process/quiet_file.h"

namespace nimble {

class GrowingFile {
 public:
  GrowingFile() = default;
  // The file of that name, as long as its identity matches.
  GrowingFile(std::string path, const FileIdentity& identity) : path_(std::move(path)), identity_(identity) {}

  // Whether there is a file to read, or was.
  bool is_file() const { return !path_.empty(); }
  // Opens it, or reopens it if the program has closed it. False if it is gone.
  bool open() {
    if (path_.empty()) return false;
    if (file_.is_ours()) return true;
    if (file_.open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK) == 0 &&
        FileIdentity::of(file_.number()) == identity_)
      return true;
    file_.close();
    return false;
  }
  // How many bytes were read; 0 at the end, or on an error.
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

}  // namespace nimble
