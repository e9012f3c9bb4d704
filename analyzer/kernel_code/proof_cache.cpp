#include "analyzer/kernel_code/proof_cache.h"

#include <xxhash.h>

#include <array>
#include <cstdio>
#include <new>

#include "analyzer/kernel_code/facts_bytes.h"

namespace nimble::code {
namespace {

constexpr std::size_t kMostKnownBytes = std::size_t{64} << 20;
constexpr std::string_view kMagic = "nimble proof\n";

std::string hex(XXH128_hash_t hash) {
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text.data();
}

XXH128_hash_t digest(std::string_view bytes) { return XXH3_128bits(bytes.data(), bytes.size()); }

void append(std::string& out, std::uint64_t value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); }

}  // namespace

ImageIdentity ImageIdentity::of(Bytes image) {
  const XXH128_hash_t hash = digest(image);
  return {hash.low64, hash.high64, image.size()};
}

std::string ProofCache::question(const ImageIdentity& image, std::string_view kernel, std::span<const unsigned> archs) {
  std::string text;
  for (const std::uint64_t each : {image.low, image.high, image.size, std::uint64_t{archs.size()}}) append(text, each);
  for (const unsigned arch : archs) append(text, arch);
  text += kernel;
  return text;
}

std::string ProofCache::name_of(const std::string& question) const {
  std::string text;
  append(text, prover_);
  return hex(digest(text + question));
}

// Magic, prover, digest of the rest; the question and its length; the facts.
std::string ProofCache::file_of(const std::string& question, const KernelFacts& facts) const {
  std::string rest;
  append(rest, question.size());
  rest += question;
  rest += bytes_of(facts);
  std::string file(kMagic);
  append(file, prover_);
  return file + hex(digest(rest)) + rest;
}

std::optional<KernelFacts> ProofCache::read(const std::string& question) {
  if (!files_) return std::nullopt;
  const std::optional<std::string> file = files_->read(name_of(question));
  if (!file) return std::nullopt;
  constexpr std::size_t kDigest = 32;
  Bytes rest(*file);
  const auto take = [&](std::size_t count) {
    const Bytes taken = rest.substr(0, count);
    rest.remove_prefix(taken.size());
    return taken;
  };
  std::string prover, size;
  append(prover, prover_);
  append(size, question.size());
  if (take(kMagic.size()) != kMagic || take(prover.size()) != prover) return std::nullopt;
  if (const Bytes told = take(kDigest); told != hex(digest(rest))) return std::nullopt;
  if (take(size.size()) != size || take(question.size()) != question) return std::nullopt;
  return facts_of(rest);
}

std::optional<ProofCache::Known> ProofCache::find(const std::string& question) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = known_.find(question); found != known_.end()) {
      from_memory_.fetch_add(1, std::memory_order_relaxed);
      return Known{found->second};
    }
  }
  std::optional<KernelFacts> facts = read(question);
  if (!facts) return std::nullopt;
  const std::uint64_t before = from_files_.fetch_add(1, std::memory_order_relaxed);
  const bool is_to_be_checked = check_one_in_ != 0 && (before + first_checked_) % check_one_in_ == 0;
  if (!is_to_be_checked) remember(question, *facts);
  return Known{std::move(*facts), is_to_be_checked};
}

void ProofCache::remember(const std::string& question, const KernelFacts& facts) {
  const std::size_t bytes = 2 * question.size() + sizeof(KernelFacts) +
                            facts.extents.expressions.size() * sizeof(Expression) +
                            facts.extents.groups.size() * sizeof(AddressGroup);
  const std::lock_guard lock(mutex_);
  if (known_bytes_ + bytes > kMostKnownBytes) {
    known_.clear();
    known_bytes_ = 0;
  }
  if (known_.insert_or_assign(question, facts).second) known_bytes_ += bytes;
}

void ProofCache::keep(const std::string& question, const KernelFacts& facts) {
  proven_.fetch_add(1, std::memory_order_relaxed);
  remember(question, facts);
  if (files_) files_->write(name_of(question), file_of(question, facts));
}

void ProofCache::checked(const std::string& question, const KernelFacts& kept, const KernelFacts& anew) {
  remember(question, anew);
  if (kept == anew) return;
  refuted_.fetch_add(1, std::memory_order_relaxed);
  if (files_) files_->write(name_of(question), file_of(question, anew));
}

ProofCache::Counts ProofCache::counts() const { return {proven_, from_memory_, from_files_, refuted_}; }

}  // namespace nimble::code
