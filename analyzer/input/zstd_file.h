// A file that is read as text, whether or not it is compressed by Zstandard (RFC 8878): a trace may be.
//
// Owns the open file, or what reads it. Not shared between threads. Errors: InputError for one that is damaged or
// cannot be read; one that was cut off ends where it was.
#pragma once

#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace nimble::analyzer {

class ZstdFile {
 public:
  // Fills the buffer, and returns how many bytes that were: 0 at the end.
  using Source = std::function<std::size_t(char* buffer, std::size_t size)>;

  // Takes over an open file, at its begin; `name` stands for it in errors.
  ZstdFile(std::FILE* file, std::string name);
  ZstdFile(Source source, std::string name);
  ~ZstdFile();
  ZstdFile(const ZstdFile&) = delete;
  ZstdFile& operator=(const ZstdFile&) = delete;

  // Fills the buffer as far as it can, and returns how many bytes that were: 0 at the end.
  std::size_t read(char* buffer, std::size_t size);

 private:
  struct Stream;
  bool refill();

  const std::string name_;
  const Source source_;
  std::vector<char> packed_;
  std::size_t begin_ = 0, end_ = 0;  // what is read of the file and not returned yet
  std::unique_ptr<Stream> stream_;   // null: it is not compressed
};

}  // namespace nimble::analyzer
