// What was proven once is known to all images with the same code, and to processes with the same prover.
#include "analyzer/kernel_code/proof_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "analyzer/kernel_code/image.h"
#include "tests/unit/analyzer/kernel_code/facts_support.h"
#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::code {
namespace {

using Stored = std::map<std::string, std::string>;

class StoredFiles final : public ProofFiles {
 public:
  explicit StoredFiles(Stored& stored) : stored_(stored) {}
  std::optional<std::string> read(const std::string& name) noexcept override {
    const auto found = stored_.find(name);
    return found == stored_.end() ? std::nullopt : std::optional(found->second);
  }
  void write(const std::string& name, const std::string& bytes) noexcept override { stored_[name] = bytes; }

 private:
  Stored& stored_;
};

constexpr std::uint64_t kProver = 17;

// A process's cache over these files.
std::shared_ptr<ProofCache> process(Stored& stored, std::uint64_t prover = kProver, std::uint32_t check_one_in = 0) {
  auto cache = std::make_shared<ProofCache>(prover);
  cache->use(std::make_unique<StoredFiles>(stored));
  cache->check_one_in(check_one_in);
  return cache;
}

// made, from memory, from files, refuted
std::string counts(const ProofCache& cache) {
  const ProofCache::Counts of = cache.counts();
  return std::to_string(of.proven) + " " + std::to_string(of.from_memory) + " " + std::to_string(of.from_files) + " " +
         std::to_string(of.refuted);
}

const std::string& code() {
  static const std::string text = test::kernel("ld.param.u64 %rd1, [p0]; ld.global.u32 %r1, [%rd1];");
  return text;
}

const std::string& other_code() {
  static const std::string text = test::kernel("ld.param.u64 %rd1, [p0]; st.global.u32 [%rd1], 1;");
  return text;
}

constexpr unsigned kArchs[] = {90};

KernelFacts facts(const std::string& bytes, const std::shared_ptr<ProofCache>& cache,
                  std::span<const unsigned> archs = kArchs) {
  return Image(bytes, cache).kernel("k", archs);
}

TEST(ProofCache, AProcessProvesTheSameCodeOnce) {
  Stored stored;
  const auto cache = process(stored);
  const KernelFacts first = facts(code(), cache);
  EXPECT_EQ(facts(code(), cache), first);
  EXPECT_EQ(counts(*cache), "1 1 0 0");
  EXPECT_NE(facts(other_code(), cache), first);
  EXPECT_EQ(counts(*cache), "2 1 0 0");
}

TEST(ProofCache, WithoutFilesTheProcessKnowsIt) {
  const auto cache = std::make_shared<ProofCache>();
  EXPECT_EQ(facts(code(), cache), facts(code(), cache));
  EXPECT_EQ(counts(*cache), "1 1 0 0");
}

TEST(ProofCache, AnotherProcessReadsIt) {
  Stored stored;
  const KernelFacts first = facts(code(), process(stored));
  ASSERT_TRUE(first.accesses);
  const auto cache = process(stored);
  EXPECT_EQ(facts(code(), cache), first);
  EXPECT_EQ(facts(code(), cache), first);
  EXPECT_EQ(counts(*cache), "0 1 1 0");
}

TEST(ProofCache, AnotherQuestionIsAnotherProof) {
  Stored stored;
  facts(code(), process(stored));
  const auto cache = process(stored);
  constexpr unsigned kOthers[] = {100}, kBoth[] = {90, 100};
  facts(code(), cache, kOthers);
  facts(code(), cache, kBoth);
  Image(code(), cache).kernel("other", kArchs);
  facts(code() + "\n", cache);
  EXPECT_EQ(counts(*cache), "4 0 0 0");
}

TEST(ProofCache, AnotherProverReadsNothing) {
  Stored stored;
  const KernelFacts first = facts(code(), process(stored));
  const auto cache = process(stored, kProver + 1);
  EXPECT_EQ(facts(code(), cache), first);
  EXPECT_EQ(counts(*cache), "1 0 0 0");
  EXPECT_EQ(stored.size(), 2u) << "each has its own files";
  // Even where it finds the other's file.
  Stored crossed;
  for (const auto& each : stored) crossed[each.first] = stored.begin()->second;
  const auto one = process(crossed), another = process(crossed, kProver + 1);
  facts(code(), one);
  facts(code(), another);
  EXPECT_EQ(one->counts().from_files + another->counts().from_files, 1u);
}

TEST(ProofCache, ThisProverHasADigest) { EXPECT_NE(prover_digest(), 0u); }

TEST(ProofCache, AFileAnswersNoOtherQuestion) {
  Stored stored;
  facts(code(), process(stored));
  const std::string its = stored.begin()->second, name = stored.begin()->first;
  stored.clear();
  facts(other_code(), process(stored));
  stored.begin()->second = its;  // as if names met
  const auto cache = process(stored);
  ASSERT_TRUE(facts(other_code(), cache).accesses);
  EXPECT_TRUE(facts(other_code(), cache).accesses->front().writes);
  EXPECT_EQ(counts(*cache), "1 1 0 0");
}

TEST(ProofCache, DamageIsAsIfThereWereNone) {
  Stored stored;
  const KernelFacts first = facts(code(), process(stored));
  const std::string bytes = stored.begin()->second;
  std::mt19937 random(7);
  for (std::size_t i = 0; i < bytes.size() + 2000; ++i) {
    std::string damaged = bytes;
    if (i < bytes.size()) {
      damaged.resize(i);
    } else {
      damaged[random() % damaged.size()] ^= static_cast<char>(1 + random() % 255);
    }
    stored.begin()->second = damaged;
    const auto cache = process(stored);
    ASSERT_EQ(facts(code(), cache), first);
    ASSERT_EQ(counts(*cache), "1 0 0 0") << i;
    ASSERT_EQ(stored.begin()->second, bytes) << "and it is made good";
  }
}

// A file that is whole, and says something else.
Stored lie() {
  Stored stored;
  const auto cache = process(stored);
  const std::string question = ProofCache::question(ImageIdentity::of(code()), "k", kArchs);
  cache->keep(question, test::many_facts());
  return stored;
}

TEST(ProofCache, WhatIsCheckedIsWhatTheCodeSays) {
  Stored stored = lie();
  const KernelFacts truth = facts(code(), std::make_shared<ProofCache>());
  EXPECT_EQ(facts(code(), process(stored)), test::many_facts()) << "else a file is believed";
  const auto cache = process(stored, kProver, 1);
  EXPECT_EQ(facts(code(), cache), truth);
  EXPECT_EQ(facts(code(), cache), truth);
  EXPECT_EQ(counts(*cache), "0 1 1 1");
  const auto later = process(stored, kProver, 1);
  EXPECT_EQ(facts(code(), later), truth);
  EXPECT_EQ(counts(*later), "0 0 1 0") << "the file was made good";
}

TEST(ProofCache, BytesThatAreKnownAreNotFetchedAgain) {
  Stored stored;
  const std::string two = test::kernel("ld.param.u64 %rd1, [p0]; ld.global.u32 %r1, [%rd1];");
  Image(two, process(stored)).kernel("k", kArchs);
  Image(two, process(stored)).kernel("other", kArchs);
  int fetched = 0;
  Image image(
      [&] {
        ++fetched;
        return std::optional(two);
      },
      process(stored));
  image.kernel("k", kArchs);
  image.kernel("other", kArchs);
  EXPECT_EQ(fetched, 1);
}

}  // namespace
}  // namespace nimble::code
