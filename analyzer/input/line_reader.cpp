#include "analyzer/input/line_reader.h"

#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "analyzer/base/errors.h"
#include "analyzer/input/zstd_file.h"

namespace nimble::analyzer {

struct LineReader::Hash {
  XXH3_state_t* state = XXH3_createState();
  Hash() { XXH3_64bits_reset(state); }
  ~Hash() { XXH3_freeState(state); }
};

LineReader::LineReader(const std::string& path, std::uint64_t max_line_bytes)
    : path_(path), hash_(std::make_unique<Hash>()), buffer_(1 << 16), max_line_bytes_(max_line_bytes) {
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) throw InputError(path, 0, "", std::string("cannot be opened: ") + std::strerror(errno));
  file_ = std::make_unique<ZstdFile>(file, path);
}

LineReader::LineReader(const std::string& name, Source source, std::uint64_t max_line_bytes)
    : path_(name),
      source_(std::move(source)),
      hash_(std::make_unique<Hash>()),
      buffer_(1 << 16),
      max_line_bytes_(max_line_bytes) {}

LineReader::~LineReader() = default;

bool LineReader::fill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) {
    if (buffer_.size() > max_line_bytes_)
      throw InputError(path_, number_ + 1, "", "longer than " + std::to_string(max_line_bytes_) + " bytes");
    buffer_.resize(buffer_.size() * 2);
  }
  char* const free = buffer_.data() + end_;
  const std::size_t room = buffer_.size() - end_;
  const std::size_t got = source_ ? source_(free, room) : file_->read(free, room);
  XXH3_64bits_update(hash_->state, buffer_.data() + end_, got);
  end_ += got;
  return got > 0;
}

bool LineReader::next(std::string_view& line) {
  std::size_t searched = 0;
  for (;;) {
    const char* from = buffer_.data() + begin_ + searched;
    const void* found = std::memchr(from, '\n', end_ - begin_ - searched);
    if (found != nullptr) {
      std::size_t length = static_cast<const char*>(found) - (buffer_.data() + begin_);
      line = {buffer_.data() + begin_, length};
      begin_ += length + 1;
      break;
    }
    searched = end_ - begin_;
    if (!fill()) {
      if (begin_ == end_) return false;
      line = {buffer_.data() + begin_, end_ - begin_};
      begin_ = end_;
      terminated_ = false;
      break;
    }
  }
  ++number_;
  return true;
}

std::string LineReader::digest() const {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(XXH3_64bits_digest(hash_->state)));
  return text;
}

}  // namespace nimble::analyzer
