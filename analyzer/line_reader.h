// Hands out a text file line by line, with a digest of its bytes.
//
// A LineReader owns the open file and one buffer; a line that it hands out is valid until the next call. Not shared
// between threads. Errors: InputError where the file cannot be opened or read, or a line is longer than the limit.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace nimble::analyzer {

class LineReader {
 public:
  LineReader(const std::string& path, std::uint64_t max_line_bytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its end of line. False at the end of the file.
  bool next(std::string_view& line);

  std::uint64_t number() const { return number_; }  // of the line handed out last, from 1
  bool terminated() const { return terminated_; }   // that line had an end of line
  std::string digest() const;                       // of all bytes read so far, as 16 hexadecimal digits

 private:
  bool fill();

  struct Hash;
  std::string path_;
  std::FILE* file_ = nullptr;
  std::unique_ptr<Hash> hash_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // what of the buffer is read but not handed out
  std::uint64_t max_line_bytes_;
  std::uint64_t number_ = 0;
  bool terminated_ = true;
};

}  // namespace nimble::analyzer
