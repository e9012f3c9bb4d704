#include "analyzer/input/zstd_file.h"

#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "analyzer/base/errors.h"

namespace nimble::analyzer {
namespace {

constexpr unsigned char kMagic[] = {0x28, 0xb5, 0x2f, 0xfd};

}  // namespace

struct ZstdFile::Stream {
  ZSTD_DStream* const state = ZSTD_createDStream();
  Stream() {
    if (state == nullptr) throw std::bad_alloc();
  }
  ~Stream() { ZSTD_freeDStream(state); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

ZstdFile::ZstdFile(std::FILE* file, std::string name) : file_(file), name_(std::move(name)), packed_(1 << 16) {
  refill();
  if (end_ >= sizeof kMagic && std::memcmp(packed_.data(), kMagic, sizeof kMagic) == 0)
    stream_ = std::make_unique<Stream>();
}

ZstdFile::~ZstdFile() { std::fclose(file_); }

bool ZstdFile::refill() {
  begin_ = 0;
  end_ = std::fread(packed_.data(), 1, packed_.size(), file_);
  if (end_ == 0 && std::ferror(file_))
    throw InputError(name_, 0, "", std::string("cannot be read: ") + std::strerror(errno));
  return end_ > 0;
}

std::size_t ZstdFile::read(char* buffer, std::size_t size) {
  if (!stream_) {
    if (begin_ == end_ && !refill()) return 0;
    const std::size_t got = std::min(size, end_ - begin_);
    std::memcpy(buffer, packed_.data() + begin_, got);
    begin_ += got;
    return got;
  }
  ZSTD_outBuffer out{buffer, size, 0};
  for (;;) {
    ZSTD_inBuffer in{packed_.data(), end_, begin_};
    const std::size_t result = ZSTD_decompressStream(stream_->state, &out, &in);
    begin_ = in.pos;
    if (ZSTD_isError(result))
      throw InputError(name_, 0, "", std::string("is damaged, as Zstandard says: ") + ZSTD_getErrorName(result));
    if (out.pos > 0) return out.pos;
    if (begin_ == end_ && !refill()) return 0;
  }
}

}  // namespace nimble::analyzer
