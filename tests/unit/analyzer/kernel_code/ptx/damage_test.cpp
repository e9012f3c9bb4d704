// The analysis must be able to see each thing that it proves: where an instruction is taken out or changed, what is
// proven changes with it.
#include <algorithm>
#include <random>
#include <set>

#include "tests/unit/analyzer/kernel_code/ptx/support.h"

namespace nimble::code {
namespace {

using Claims = std::set<std::pair<std::vector<std::uint32_t>, char>>;

Claims claims(const PtxProof& proof) {
  Claims result;
  for (const PtxAccess& access : proof.accesses) {
    if (access.reads) result.emplace(access.at, 'r');
    if (access.writes) result.emplace(access.at, 'w');
  }
  return result;
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  if (at != std::string::npos) text.replace(at, what.size(), with);
  return text;
}

TEST(PtxDamage, AStoreThatIsGoneIsNoWrite) {
  const std::string text = test::ptx_file("kernels");
  const std::size_t kernel = text.find(".entry scale("), store = text.find("st.global", kernel);
  ASSERT_NE(store, std::string::npos);
  std::string without = text;
  without.erase(store, text.find('\n', store) - store);
  EXPECT_EQ(test::spoken(test::prove(text, "scale")), "0:w 8:r");
  EXPECT_EQ(test::spoken(test::prove(without, "scale")), "8:r");
}

TEST(PtxDamage, AChangedInstructionChangesWhatIsProven) {
  const std::string body =
      "ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u32 %r1, [p6]; cvta.to.global.u64 %rd3, %rd1;"
      "cvta.to.global.u64 %rd4, %rd2; mul.wide.s32 %rd5, %r1, 4; add.s64 %rd6, %rd3, %rd5; add.s64 %rd7, %rd4, %rd5;"
      "ld.global.u32 %r2, [%rd6]; st.global.u32 [%rd7], %r2;";
  const auto proven = [&](const std::string& what, const std::string& with) {
    return test::proven(replaced(body, what, with));
  };
  EXPECT_EQ(test::proven(body), "0:r 8:w");
  EXPECT_EQ(proven("st.global", "atom.global.add.u32 %r3, [%rd7], 1; st.shared"), "0:r 8:rw");
  EXPECT_EQ(proven("[%rd7], %r2", "[%rd6], %r2"), "0:rw");
  EXPECT_EQ(proven("[p1]", "[p4]"), "0:r 32:w");
  EXPECT_EQ(proven("add.s64 %rd7, %rd4, %rd5", "add.s64 %rd7, %rd4, %rd6"), "0:r 0,8:w");
  EXPECT_EQ(proven("add.s64 %rd7, %rd4, %rd5", "selp.b64 %rd7, %rd4, %rd3, %p1"), "0:r 0,8:w");
  EXPECT_EQ(proven("mul.wide.s32 %rd5, %r1, 4", "ld.global.u64 %rd5, [%rd4]").substr(0, 1), "?");
  EXPECT_EQ(proven("ld.global.u32 %r2, [%rd6]", "ld.global.u64 %rd7, [%rd6]").substr(0, 1), "?");
  EXPECT_EQ(proven("ld.global.u32 %r2, [%rd6]", "brkpt").substr(0, 1), "?");
}

// For each instruction that touches memory, in every kernel: without it, never more is proven, and each thing that is
// proven is lost when all instructions are gone that do it.
TEST(PtxDamage, EveryTouchOfMemoryIsSeen) {
  int cut = 0, changed = 0;
  for (const char* file : {"kernels", "gpu_kernels", "digits", "programs", "triton"}) {
    const std::string text = test::ptx_file(file);
    const PtxModule module = read_ptx(text);
    for (const PtxFunction& function : module.functions) {
      if (!function.entry) continue;
      const PtxProof whole = prove_kernel(module, function);
      if (!whole.understood) continue;
      std::string body(function.body), bare = body;
      for (std::size_t at = 0; (at = body.find('\n', at)) != std::string::npos; ++at) {
        const std::size_t begin = body.find_first_not_of(" \t", at + 1), end = body.find(';', at + 1);
        if (begin == std::string::npos || end == std::string::npos) break;
        std::size_t opcode = begin;
        if (body[opcode] == '@') opcode = body.find_first_not_of(" \t", body.find_first_of(" \t", opcode));
        const bool touches = body.compare(opcode, 9, "ld.global") == 0 || body.compare(opcode, 9, "st.global") == 0 ||
                             body.compare(opcode, 4, "atom") == 0 || body.compare(opcode, 3, "red") == 0;
        if (!touches) continue;
        std::string without = body;
        std::fill(without.begin() + static_cast<std::ptrdiff_t>(begin),
                  without.begin() + static_cast<std::ptrdiff_t>(end) + 1, ' ');
        std::fill(bare.begin() + static_cast<std::ptrdiff_t>(begin),
                  bare.begin() + static_cast<std::ptrdiff_t>(end) + 1, ' ');
        PtxFunction damaged = function;
        damaged.body = without;
        const PtxProof proof = prove_kernel(module, damaged);
        ASSERT_TRUE(proof.understood) << function.name << ": " << proof.why;
        ++cut;
        const Claims before = claims(whole), after = claims(proof);
        changed += before != after ? 1 : 0;
        EXPECT_TRUE(std::includes(before.begin(), before.end(), after.begin(), after.end())) << function.name;
      }
      PtxFunction damaged = function;
      damaged.body = bare;
      const Claims left = claims(prove_kernel(module, damaged));
      EXPECT_LT(left.size(), claims(whole).size() + (bare == body ? 1 : 0)) << function.name;
    }
  }
  EXPECT_GT(cut, 300);
  EXPECT_GT(changed, 100);
}

// Text that is no longer PTX: an answer, whatever it is, and in time.
TEST(PtxDamage, BrokenTextIsNoTrouble) {
  const std::string text = test::ptx_file("gpu_kernels");
  std::mt19937 random(2020);
  for (int round = 0; round < 200; ++round) {
    std::string broken = text.substr(random() % (text.size() / 2), 4000 + random() % 8000);
    for (int times = 0; times < 5; ++times) {
      const std::size_t place = random() % broken.size();
      switch (random() % 4) {
        case 0:
          broken[place] = "{}[]();,@\"/%.0\n"[random() % 15];
          break;
        case 1:
          broken.erase(place, random() % 60);
          break;
        case 2:
          broken.insert(place, broken.substr(random() % broken.size(), random() % 200));
          break;
        default:
          broken.insert(place, "%r99999999999999999999<4294967295>");
          break;
      }
      if (broken.empty()) broken = "{";
    }
    const PtxModule module = read_ptx(".version 9.0\n.target sm_90\n" + broken);
    if (!module.error.empty()) continue;
    for (const PtxFunction& function : module.functions)
      if (function.entry && function.defined) prove_kernel(module, function);
  }
}

}  // namespace
}  // namespace nimble::code
