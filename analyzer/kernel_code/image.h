// A loaded image: what its code says of each of its kernels.
//
// An image is what cuModuleLoadData takes: a cubin, PTX, a fatbin of both, or a wrapper of a fatbin. Reading one costs
// as much as it is large, and most kernels of a library are never launched. So a question is answered when it is asked,
// once for each kernel, and between questions no more is held than was given. Thread-safe. Any input gives answers or
// reasons.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analyzer/kernel_code/bytes.h"
#include "analyzer/kernel_code/cubin.h"
#include "analyzer/kernel_code/fatbin.h"
#include "analyzer/kernel_code/ptx_flow/flow.h"

namespace nimble::code {

// How sure it is that the PTX beside a kernel is what runs.
enum class Origin : std::uint8_t {
  none,
  same,   // the driver compiles this PTX, or the machine code beside it was made through the same virtual architecture
  other,  // the machine code was made for another architecture: from the same source, which may tell them apart
};

struct KernelFacts {
  bool self_contained = false;  // its parameters are the only way by which it reaches memory
  bool constants = false;       // they would be, but for constant variables of its image, which no kernel can write
  std::string why;              // where it is not, or where that is not known

  // What its PTX proves of its accesses; nothing, and why, where it proves nothing.
  std::optional<std::vector<PtxAccess>> accesses;
  std::string why_not_proven;
  Origin origin = Origin::none;
  std::vector<PtxGlobal> globals;                               // variables of its image that it may touch
  std::vector<std::uint32_t> stored;                            // words that it may store to memory as they are
  std::vector<std::pair<std::uint32_t, std::uint32_t>> params;  // as the PTX has them: offset, size
  std::uint64_t image_digest = 0;  // XXH3-64 of the whole image; 0 where it could not be read
};

class Image {
 public:
  // Fetches the image's bytes, anew each time; nothing where they are gone.
  using Source = std::function<std::optional<std::string>()>;

  explicit Image(std::string bytes) : held_(std::move(bytes)) {}
  explicit Image(Source source) : source_(std::move(source)) {}

  // The facts of a kernel on devices of these architectures (90 for compute capability 9.0): what holds on all of them.
  KernelFacts kernel(std::string_view name, std::span<const unsigned> archs);

  // Whether every kernel in every part of it is self-contained. Reads all of it.
  KernelFacts whole();

 private:
  struct Question;  // the image's bytes while they are being read

  KernelFacts on(Question& question, std::string_view name, unsigned arch);

  std::mutex mutex_;  // guards everything below
  std::string held_;
  Source source_;
  std::map<std::size_t, Cubin> cubins_;  // that were read, by their place among the image's parts
  std::map<std::string, KernelFacts, std::less<>> known_;
  std::uint64_t digest_ = 0;
};

// By which an image is known again.
std::uint64_t digest_of(Bytes bytes);

// The bytes of an image in memory, as far as its own headers announce; a wrapper's are elsewhere. Nothing where it is
// of no known kind. Reads what the driver has read.
std::optional<Bytes> image_in_memory(const void* image);

}  // namespace nimble::code
