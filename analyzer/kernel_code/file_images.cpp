#include "analyzer/kernel_code/file_images.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string_view>

#include "analyzer/kernel_code/cubin.h"
#include "analyzer/kernel_code/fatbin.h"

namespace nimble::code {
namespace {

constexpr std::uint64_t kMostImageBytes = std::uint64_t{1} << 30;  // the largest of NVIDIA's libraries has 60 MB
constexpr std::uint64_t kWindow = std::uint64_t{1} << 20;          // searched at once
constexpr std::uint64_t kHead = sizeof(Elf64_Ehdr);                // what has to be seen of an image to tell its size
constexpr unsigned kCudaMachine = 190;
constexpr std::string_view kFatbinBegin("\x50\xed\x55\xba\x01\x00\x10\x00", 8);  // magic, version, size of the header
constexpr std::string_view kElfBegin(ELFMAG, SELFMAG);

// Where the next of these begins; the end if there is none.
std::size_t find(std::string_view in, std::size_t from, std::string_view what) {
  if (from >= in.size()) return in.size();
  const void* const found = ::memmem(in.data() + from, in.size() - from, what.data(), what.size());
  return found ? static_cast<std::size_t>(static_cast<const char*>(found) - in.data()) : in.size();
}

}  // namespace

FileImages::~FileImages() {
  if (file_ >= 0) ::close(file_);
}

int FileImages::open(const std::string& path) {
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat facts;
  if (file_ < 0 || ::fstat(file_, &facts) != 0) return errno;
  if (S_ISDIR(facts.st_mode)) return EISDIR;
  if (!S_ISREG(facts.st_mode)) return ESPIPE;  // it is read here and there
  size_ = static_cast<std::uint64_t>(facts.st_size);
  return 0;
}

// All of it, or nothing: a file that became shorter cannot be read.
bool FileImages::read(std::uint64_t at, std::uint64_t bytes, std::string& out) {
  out.resize(bytes);
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t got = ::pread(file_, out.data() + done, bytes - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      error_ = got < 0 ? errno : EIO;
      return false;
    }
    done += static_cast<std::uint64_t>(got);
  }
  return true;
}

bool FileImages::read_image(std::uint64_t at, std::uint64_t bytes, FileImage& image) {
  image.at = at;
  if (bytes > size_ - at || bytes > kMostImageBytes) {
    image.error = bytes > size_ - at ? "it goes on past the end of the file" : "it is too large";
    position_ = at + 1;
    return true;
  }
  position_ = at + bytes;
  return read(at, bytes, image.bytes);
}

// What only a whole file can be: PTX, and an image of the simulated driver, whose header tells where its PTX is
// (tests/simcuda/image/image_abi.h).
bool FileImages::whole_file(FileImage& image) {
  constexpr std::uint64_t kLooked = 4096, kSimulatedHeader = 56, kPtxAt = 40, kPtxBytes = 48;
  std::string begin;
  if (!read(0, std::min(size_, kLooked), begin)) return false;
  image.kind = FileImage::Kind::ptx;
  if (begin.starts_with("SIMCUDA1") && begin.size() >= kSimulatedHeader) {
    const std::uint64_t at = *read_at<std::uint64_t>(begin, kPtxAt), bytes = *read_at<std::uint64_t>(begin, kPtxBytes);
    if (bytes == 0 || at > size_) return false;
    const bool is_read = read_image(at, bytes, image);
    position_ = size_;
    return is_read;
  }
  const bool is_text = begin.find('\0') == begin.npos;
  return is_text && begin.find(".version") != begin.npos && read_image(0, size_, image);
}

// Whether an image begins there.
bool FileImages::take(std::uint64_t at, FileImage& image) {
  const Bytes head = Bytes(window_).substr(at - window_at_);
  if (head.starts_with(kFatbinBegin)) {
    image.kind = FileImage::Kind::fatbin;
    const std::uint64_t bytes = fatbin_bytes(head);
    return bytes != 0 && read_image(at, bytes, image);
  }
  const auto header = read_at<Elf64_Ehdr>(head, 0);
  if (!header || header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != kCudaMachine) return false;
  image.kind = FileImage::Kind::cubin;
  const std::uint64_t bytes = elf_bytes(head);
  return bytes != 0 && read_image(at, bytes, image);
}

// Reads on from where the search is, and notes where images may begin. What begins near the window's end, where its
// head cannot be seen, is left to the next one.
bool FileImages::read_window() {
  window_at_ = position_;
  if (!read(window_at_, std::min(size_ - window_at_, kWindow), window_)) return false;
  const bool is_last = window_at_ + window_.size() == size_;
  window_end_ = is_last ? size_ : window_at_ + window_.size() - kHead + 1;
  begins_.clear();
  for (const std::string_view what : {kFatbinBegin, kElfBegin})
    for (std::size_t at = 0; (at = find(window_, at, what)) < window_end_ - window_at_; ++at)
      begins_.push_back(window_at_ + at);
  std::sort(begins_.begin(), begins_.end(), std::greater<>());
  return true;
}

bool FileImages::next(FileImage& image) {
  image = FileImage();
  if (position_ == 0 && size_ != 0 && whole_file(image)) return true;
  while (position_ < size_ && error_ == 0) {
    if (position_ >= window_end_ && !read_window()) return false;
    while (!begins_.empty() && begins_.back() < position_) begins_.pop_back();
    if (begins_.empty()) {
      position_ = window_end_;
      continue;
    }
    image = FileImage();
    position_ = begins_.back() + 1;
    if (take(begins_.back(), image)) return true;
  }
  return false;
}

}  // namespace nimble::code
