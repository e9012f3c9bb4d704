// The kernels of kernels.cu and of digits, run: every access that is seen must have been proven. The host's compiler
// built them with instrumentation, from the sources of which nvcc made the PTX.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "tests/simcuda/image/image_abi.h"
#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::code {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20, kMargin = std::size_t{1} << 16;

// Where a parameter of 8 bytes or more is something else than one pointer: the words that are pointers.
const std::map<std::string, std::vector<std::uint32_t>>& shapes() {
  static const std::map<std::string, std::vector<std::uint32_t>> table = {
      {"struct_by_value", {16, 32, 40}},
      {"behind_flags", {0, 8, 16, 24}},
      {"array_of_pointers", {0, 8, 16}},
      {"pointer_arithmetic", {0, 8}},
      {"indexed_array_of_pointers", {0, 8, 16, 24, 32}},
      {"calls_with_struct", {0, 16}},
      {"_Z21conv_backward_weightsILi1EEvPKfS1_Pf9ConvSizesi", {0, 8, 16}},
      {"_Z21conv_backward_weightsILi3EEvPKfS1_Pf9ConvSizesi", {0, 8, 16}},
      {"_Z21conv_backward_weightsILi5EEvPKfS1_Pf9ConvSizesi", {0, 8, 16}},
  };
  return table;
}

// What a run touched, by the word whose buffer it was.
struct Seen {
  std::map<std::uint32_t, std::vector<char>> buffers;
  std::set<std::pair<std::uint32_t, bool>> touched;  // word, write
  std::vector<char> params;

  bool holds(const PtxCondition& condition) const {
    std::uint64_t value = 0;
    std::memcpy(&value, params.data() + condition.at, condition.bytes);
    return (value == condition.value) == condition.equal;
  }
};
Seen* g_seen = nullptr;

void note(const void* address, std::uint64_t, bool write) {
  for (const auto& [word, buffer] : g_seen->buffers) {
    const auto* at = static_cast<const char*>(address);
    if (at >= buffer.data() && at < buffer.data() + buffer.size()) g_seen->touched.emplace(word, write);
  }
}

void run(const SimKernel& kernel, const std::string& name, int number, Seen& seen) {
  std::vector<char> params(kernel.param_bytes);
  std::vector<std::uint32_t> pointers;
  const auto shape = shapes().find(name);
  for (std::uint32_t at = 0; at + 4 <= params.size(); at += 4) std::memcpy(params.data() + at, &number, 4);
  if (shape != shapes().end()) {
    pointers = shape->second;
  } else {
    for (std::uint32_t i = 0; i < kernel.param_count; ++i)
      if (kernel.params[i].size == 8) pointers.push_back(kernel.params[i].offset);
  }
  if (name == "pointer_arithmetic") std::memset(params.data() + 16, 0, 8);
  for (const std::uint32_t word : pointers) {
    std::vector<char>& buffer = seen.buffers[word];
    buffer.resize(kBufferBytes);
    for (std::size_t i = 0; i + 8 <= buffer.size(); i += 8) {  // small numbers, as indices of 8, 32 and 64 bits
      const std::uint64_t value = i / 8 % 16;
      std::memcpy(buffer.data() + i, &value, 8);
    }
    char* const middle = buffer.data() + kMargin;
    std::memcpy(params.data() + word, &middle, 8);
  }
  g_seen = &seen;
  seen.params = params;
  kernel.run(params.data(), {2, 1, 1}, {8, 1, 1}, 0, 2);
  g_seen = nullptr;
}

TEST(PtxOracle, WhatKernelsTouchWasProven) {
  const std::string ptx = test::ptx_file("kernels"), digits = test::ptx_file("digits");
  const PtxModule modules[] = {read_ptx(ptx), read_ptx(digits)};
  int kernels = 0, claimed = 0, seen_claims = 0, excluded = 0;
  for (const char* path : {NIMBLE_TEST_IMAGE, NIMBLE_DIGITS_IMAGE}) {
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto image = reinterpret_cast<const SimImage* (*)()>(dlsym(library, "simcuda_image"))();
    const SimHooks hooks{&note};
    image->set_hooks(&hooks);
    for (std::uint32_t i = 0; i < image->kernel_count; ++i) {
      Dl_info info{};
      ASSERT_NE(dladdr(image->kernels[i].symbol, &info), 0);
      const std::string name = info.dli_sname;
      const PtxModule& module = modules[0].find(name) != nullptr ? modules[0] : modules[1];
      const PtxFunction* const function = module.find(name);
      ASSERT_NE(function, nullptr) << name;
      const PtxProof proof = prove_kernel(module, *function);
      if (!proof.understood) continue;
      // The packed parameters are the same in both worlds.
      ASSERT_EQ(proof.params.size(), image->kernels[i].param_count) << name;
      for (std::size_t p = 0; p < proof.params.size(); ++p) {
        EXPECT_EQ(proof.params[p].offset, image->kernels[i].params[p].offset) << name;
        EXPECT_EQ(proof.params[p].size, image->kernels[i].params[p].size) << name;
      }
      ++kernels;
      std::set<std::pair<std::uint32_t, bool>> proven, seen_all;
      for (const PtxAccess& access : proof.accesses)
        for (const std::uint32_t word : access.at) {
          if (access.reads) proven.emplace(word, false);
          if (access.writes) proven.emplace(word, true);
        }
      for (const int number : {8, 1, 7}) {
        Seen seen;
        run(image->kernels[i], name, number, seen);
        seen_all.insert(seen.touched.begin(), seen.touched.end());
        for (const PtxAccess& access : proof.accesses) {
          if (std::ranges::all_of(access.when, [&](const PtxCondition& each) { return seen.holds(each); })) continue;
          ++excluded;
          for (const std::uint32_t word : access.at)
            EXPECT_FALSE(seen.touched.contains({word, access.writes})) << name << " " << word << " with " << number;
        }
      }
      for (const auto& [word, write] : seen_all)
        EXPECT_TRUE(proven.contains({word, write}))
            << name << (write ? " writes" : " reads") << " through word " << word;
      EXPECT_FALSE(seen_all.empty()) << name;
      claimed += static_cast<int>(proven.size());
      for (const auto& claim : proven) seen_claims += seen_all.contains(claim) ? 1 : 0;
    }
    image->set_hooks(nullptr);
    dlclose(library);
  }
  EXPECT_GE(kernels, 45);
  EXPECT_GE(excluded, 6);
  // Precision: what was proven and never happened. 64-bit numbers that are added to pointers are most of it.
  RecordProperty("kernels", kernels);
  RecordProperty("proven", claimed);
  RecordProperty("seen", seen_claims);
  EXPECT_GE(seen_claims, claimed * 9 / 10) << seen_claims << " of " << claimed;
}

}  // namespace
}  // namespace nimble::code
