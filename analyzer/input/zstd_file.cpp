#include "analyzer/input/zstd_file.h"

#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "analyzer/base/errors.h"

namespace nimble::analyzer {
namespace {

constexpr unsigned char kMagic[] = {0x28, 0xb5, 0x2f, 0xfd}, kSkippable[] = {0x50, 0x2a, 0x4d, 0x18};

ZstdFile::Source reader_of(std::FILE* file, const std::string& name) {
  return [owned = std::shared_ptr<std::FILE>(file, std::fclose), name](char* buffer, std::size_t size) {
    const std::size_t got = std::fread(buffer, 1, size, owned.get());
    if (got == 0 && std::ferror(owned.get()))
      throw InputError(name, 0, "", std::string("cannot be read: ") + std::strerror(errno));
    return got;
  };
}

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

ZstdFile::ZstdFile(std::FILE* file, std::string name) : ZstdFile(reader_of(file, name), name) {}

ZstdFile::ZstdFile(Source source, std::string name)
    : name_(std::move(name)), source_(std::move(source)), packed_(1 << 16) {
  refill();
  const auto begins_with = [&](const unsigned char(&magic)[4]) {
    return end_ >= sizeof magic && std::memcmp(packed_.data(), magic, sizeof magic) == 0;
  };
  if (begins_with(kMagic) || begins_with(kSkippable)) stream_ = std::make_unique<Stream>();
}

ZstdFile::~ZstdFile() = default;

bool ZstdFile::refill() {
  begin_ = 0;
  end_ = source_(packed_.data(), packed_.size());
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
