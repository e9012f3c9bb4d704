// The images of code for a GPU that a file holds: the file itself, or those that a library or an executable embeds.
//
// An embedded image is found by how fatbins and cubins begin, wherever it lies; sections are not looked at, so archives
// and object files are files like others. One image is in memory at a time. Nothing in the file is trusted, and none is
// so large that it would take more than a bounded amount of memory. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/kernel_code/bytes.h"

namespace nimble::code {

struct FileImage {
  enum class Kind : std::uint8_t { fatbin, cubin, ptx };
  Kind kind = Kind::fatbin;
  std::uint64_t at = 0;  // in the file
  std::string bytes;
  std::string error;  // why there are no bytes; else empty
};

class FileImages {
 public:
  FileImages() = default;
  ~FileImages();
  FileImages(const FileImages&) = delete;
  FileImages& operator=(const FileImages&) = delete;

  // 0, or errno.
  int open(const std::string& path);
  // The next image, in the order of the file. False at its end, and where it cannot be read: error() tells.
  bool next(FileImage& image);

  int error() const { return error_; }
  std::uint64_t size() const { return size_; }
  std::uint64_t position() const { return position_; }  // how far it was looked through

 private:
  bool read(std::uint64_t at, std::uint64_t bytes, std::string& out);
  bool read_image(std::uint64_t at, std::uint64_t bytes, FileImage& image);
  bool whole_file(FileImage& image);
  bool take(std::uint64_t at, FileImage& image);
  bool read_window();

  int file_ = -1, error_ = 0;
  std::uint64_t size_ = 0, position_ = 0;
  // What is searched: the file's bytes from `window_at_` on, and where in it images may begin, descending. Before
  // `window_end_` none is left out.
  std::string window_;
  std::uint64_t window_at_ = 0, window_end_ = 0;
  std::vector<std::uint64_t> begins_;
};

}  // namespace nimble::code
