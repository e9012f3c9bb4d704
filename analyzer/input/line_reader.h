// Reads a text file line by line, with a digest of its bytes: of the text's, if the file is compressed.
//
// The text may also come from elsewhere, piece by piece. A LineReader owns the open file and one buffer; a line is
// valid until the next call. Not shared between threads. Errors: InputError if the file cannot be opened or read, or a
// line is longer than the limit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace nimble::analyzer {

class ZstdFile;

class LineReader {
 public:
  // Fills the buffer as far as it can, and returns how many bytes that were: 0 at the end.
  using Source = std::function<std::size_t(char* buffer, std::size_t size)>;

  LineReader(const std::string& path, std::uint64_t max_line_bytes);
  // The same for text from elsewhere; `name` stands for it in errors.
  LineReader(const std::string& name, Source source, std::uint64_t max_line_bytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its end of line. False at the end of the file.
  bool next(std::string_view& line);

  std::uint64_t number() const { return number_; }  // of the line returned last, from 1
  bool terminated() const { return terminated_; }   // that line had an end of line
  std::string digest() const;                       // of all bytes read so far, as 16 hexadecimal digits

 private:
  bool fill();

  struct Hash;
  std::string path_;
  std::unique_ptr<ZstdFile> file_;
  Source source_;
  std::unique_ptr<Hash> hash_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // the part of the buffer that is read but not returned yet
  std::uint64_t max_line_bytes_;
  std::uint64_t number_ = 0;
  bool terminated_ = true;
};

}  // namespace nimble::analyzer
