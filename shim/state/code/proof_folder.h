// Proofs of kernels' code in the user's cache folder, a file each.
//
// The folder is the user's own: it belongs to the user who runs the program, and no one else can write to it; it is
// made so that no one else can read it. No link is followed in it. Nothing is used in programs that run with another
// user's rights, nor where HOME is another user's. A file gets its name when it is complete, so that processes that
// write at the same time do not meet. Files that were not used for the longest time are deleted when all of them take
// too much.
//
// Without a folder, without room or without rights there is nothing, which is no error. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "analyzer/kernel_code/proof_cache.h"

namespace nimble::shim {

class ProofFolder final : public code::ProofFiles {
 public:
  static constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;

  // `folder`: absolute; made when it is first written to, up to two folders deep. `tell`: gets one line if it cannot be
  // used.
  ProofFolder(std::string folder, std::function<void(const std::string&)> tell, std::uint64_t most_bytes = kMostBytes)
      : folder_(std::move(folder)), tell_(std::move(tell)), most_bytes_(most_bytes) {}

  std::optional<std::string> read(const std::string& name) noexcept override;
  void write(const std::string& name, const std::string& bytes) noexcept override;

 private:
  bool is_usable(bool to_write);
  void give_up(const std::string& why);
  int make(const std::string& name, const std::string& bytes);
  void keep_within_bounds();

  const std::string folder_;
  const std::function<void(const std::string&)> tell_;
  const std::uint64_t most_bytes_;
  std::atomic<bool> given_up_{false};
  std::atomic<std::chrono::steady_clock::rep> written_for_{0};
  std::atomic<std::uint32_t> writes_{0};
};

// The folder that `option` (NIMBLE_CACHE) asks for: nothing if it is "none", or if there is none that is the user's
// own, with the reason in `why`. Asks the environment.
std::string folder_of_proofs(const std::string& option, std::string& why);

}  // namespace nimble::shim
