// A loaded image: what its code tells about each of its kernels.
//
// An image is what cuModuleLoadData takes: a cubin, PTX, a fatbin of both, or a wrapper of a fatbin. The cost of
// reading one grows with its size, and most kernels of a library are never launched. So a question is answered when it
// is asked, once for each kernel, and between questions nothing is kept beyond the answers. Thread-safe. Any input
// gives answers or reasons.
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

// How certain it is that the code that was read is what runs.
enum class Origin : std::uint8_t {
  none,
  same,   // machine code for this device; or PTX that the driver compiles, or that this device's machine code was
          // compiled from, as its virtual architecture tells
  other,  // the machine code was made for another architecture: from the same source, which may tell them apart
};

struct KernelFacts {
  bool self_contained = false;  // it reaches memory through its parameters alone
  bool constants = false;       // it would, except for constant variables of its image, which no kernel can write
  std::string why;              // if it does not, or that is not known

  // What the code that runs, or else its PTX, proves about its accesses; nothing, and the reason, if that is nothing.
  std::optional<std::vector<PtxAccess>> accesses;
  std::string why_not_proven;
  bool follows_memory = false;  // in launches that nothing is proven of the code may follow addresses from memory
  Origin origin = Origin::none;
  std::vector<PtxGlobal> globals;                               // variables of its image that it may touch
  std::vector<std::uint32_t> stored;                            // words that it may store to memory as they are
  AddressExtents extents;                                       // how far the accesses get, by the code that runs
  std::vector<std::pair<std::uint32_t, std::uint32_t>> params;  // as the PTX has them: offset, size
  std::uint64_t image_digest = 0;                               // XXH3-64 of the whole image; 0 if it could not be read
};

class Image {
 public:
  // Fetches the image's bytes again each time; nothing if they are gone.
  using Source = std::function<std::optional<std::string>()>;

  explicit Image(std::string bytes) : held_(std::move(bytes)) {}
  explicit Image(Source source) : source_(std::move(source)) {}

  // The facts about a kernel on devices of these architectures (90 for compute capability 9.0): what holds on all of
  // them.
  KernelFacts kernel(std::string_view name, std::span<const unsigned> archs);

  // Whether every kernel in every part of it is self-contained. Reads all of it.
  KernelFacts whole();

 private:
  struct Question;  // the image's bytes while they are being read
  struct Candidates;

  static Candidates candidates(Question& question, std::string_view name, unsigned arch);
  static KernelFacts facts_of_ptx(Question& question, std::string_view name, const Candidates& candidates,
                                  PtxProof& proof);
  static std::optional<PtxProof> machine_proof(Question& question, std::string_view name, const Candidates& candidates);
  static void add_machine_code(Question& question, std::string_view name, const Candidates& candidates,
                               KernelFacts& facts);
  static KernelFacts on(Question& question, std::string_view name, unsigned arch);

  std::mutex mutex_;  // guards everything below
  std::string held_;
  Source source_;
  std::map<std::size_t, Cubin> cubins_;  // that were read, by their index among the image's parts
  std::map<std::string, KernelFacts, std::less<>> known_;
  std::uint64_t digest_ = 0;
};

// What identifies an image.
std::uint64_t digest_of(Bytes bytes);

// The bytes of an image in memory, as far as its own headers announce them; a wrapper refers to bytes elsewhere.
// Nothing if its kind is not known. Reads what the driver has read.
std::optional<Bytes> image_in_memory(const void* image);

}  // namespace nimble::code
