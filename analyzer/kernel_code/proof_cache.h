// Facts about kernels that were found before: in this process, and by others if there are files
// (shim/state/code/proof_folder.h has them).
//
// They depend on the image, the kernel's name, the devices and the prover alone. A file belongs to one question: its
// name is a digest of it, and the question is in it, so that no other is answered by chance. A damaged file, and one of
// another prover, is as if it were not there. Thread-safe; no lock is held while files are read or written.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "analyzer/kernel_code/bytes.h"
#include "analyzer/kernel_code/kernel_facts.h"
#include "analyzer/kernel_code/prover_digest.h"

namespace nimble::code {

// Tells images apart: a digest of 128 bits and the size. XXH3.
struct ImageIdentity {
  std::uint64_t low = 0, high = 0, size = 0;

  static ImageIdentity of(Bytes image);
};

// Where facts are kept for other processes. Any thread. Neither throws; a write may be lost.
class ProofFiles {
 public:
  virtual ~ProofFiles() = default;
  virtual std::optional<std::string> read(const std::string& name) noexcept = 0;
  virtual void write(const std::string& name, const std::string& bytes) noexcept = 0;
};

class ProofCache {
 public:
  struct Counts {
    std::uint64_t proven = 0;       // found anew
    std::uint64_t from_memory = 0;  // known to this process
    std::uint64_t from_files = 0;
    std::uint64_t refuted = 0;  // what was in a file was not what the code says
  };

  // `prover`: what is kept by another is not read.
  explicit ProofCache(std::uint64_t prover = prover_digest()) : prover_(prover) {}

  // From now on there are files. Once, before questions are asked.
  void use(std::unique_ptr<ProofFiles> files) { files_ = std::move(files); }
  // What files say is compared with what the code says: one answer in so many; 0: none is. `first`: which of them; it
  // should differ from process to process.
  void check_one_in(std::uint32_t count, std::uint64_t first = 0) {
    check_one_in_ = count;
    first_checked_ = first;
  }

  static std::string question(const ImageIdentity& image, std::string_view kernel, std::span<const unsigned> archs);
  // What is known; and what to do before it is believed.
  struct Known {
    KernelFacts facts;
    bool is_to_be_checked = false;
  };
  std::optional<Known> find(const std::string& question);
  // What the code says; replaces what is kept.
  void keep(const std::string& question, const KernelFacts& facts);
  // What was in a file has been compared.
  void checked(const std::string& question, const KernelFacts& kept, const KernelFacts& anew);

  Counts counts() const;

 private:
  std::string name_of(const std::string& question) const;
  std::string file_of(const std::string& question, const KernelFacts& facts) const;
  std::optional<KernelFacts> read(const std::string& question);
  void remember(const std::string& question, const KernelFacts& facts);

  const std::uint64_t prover_;
  std::unique_ptr<ProofFiles> files_;
  std::uint32_t check_one_in_ = 0;
  std::uint64_t first_checked_ = 0;
  std::atomic<std::uint64_t> proven_{0}, from_memory_{0}, from_files_{0}, refuted_{0};
  std::mutex mutex_;  // guards what follows
  std::map<std::string, KernelFacts, std::less<>> known_;
  std::size_t known_bytes_ = 0;
};

}  // namespace nimble::code
