// A loaded image: what its code tells about each of its kernels.
//
// An image is what cuModuleLoadData takes: a cubin, PTX, a fatbin of both, or a wrapper of a fatbin. The cost of
// reading one grows with its size, and most kernels of a library are never launched. So a question is answered when it
// is asked, once for each kernel, and between questions nothing is kept beyond the answers, which a ProofCache keeps
// for all images. Thread-safe. Any input gives answers or reasons.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analyzer/kernel_code/bytes.h"
#include "analyzer/kernel_code/cubin.h"
#include "analyzer/kernel_code/fatbin.h"
#include "analyzer/kernel_code/kernel_facts.h"
#include "analyzer/kernel_code/proof_cache.h"
#include "analyzer/kernel_code/ptx_flow/flow.h"

namespace nimble::code {

class Image {
 public:
  // Fetches the image's bytes again each time; nothing if they are gone.
  using Source = std::function<std::optional<std::string>()>;

  // `proofs`: where answers are kept; by default the image keeps its own.
  explicit Image(std::string bytes, std::shared_ptr<ProofCache> proofs = std::make_shared<ProofCache>())
      : held_(std::move(bytes)), proofs_(std::move(proofs)) {}
  explicit Image(Source source, std::shared_ptr<ProofCache> proofs = std::make_shared<ProofCache>())
      : source_(std::move(source)), proofs_(std::move(proofs)) {}

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
  static void add_machine_code(const std::optional<PtxProof>& proof, KernelFacts& facts);
  static bool matches(Question& question, const Candidates& candidates, std::size_t ptx);
  std::optional<std::string> open(Question& question);
  KernelFacts read(Question& question, std::string_view name, std::span<const unsigned> archs);
  static KernelFacts on(Question& question, std::string_view name, unsigned arch);

  std::mutex mutex_;  // guards everything below
  std::string held_;
  Source source_;
  std::map<std::size_t, Cubin> cubins_;  // that were read, by their index among the image's parts
  const std::shared_ptr<ProofCache> proofs_;
  std::optional<ImageIdentity> identity_;  // once its bytes were read
  std::uint64_t digest_ = 0;
};

// What identifies an image.
std::uint64_t digest_of(Bytes bytes);

// The bytes of an image in memory, as far as its own headers announce them; a wrapper refers to bytes elsewhere.
// Nothing if its kind is not known. Reads what the driver has read.
std::optional<Bytes> image_in_memory(const void* image);

}  // namespace nimble::code
