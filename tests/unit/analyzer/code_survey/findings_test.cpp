// What is found of one kernel on several targets, put together and compared.
#include "analyzer/code_survey/findings.h"

#include <gtest/gtest.h>

namespace nimble::analyzer {
namespace {

constexpr CodeTarget kSm80{80, '\0', false}, kSm90{90, '\0', false}, kSm90a{90, 'a', false}, kPtx90{90, '\0', true};

code::PtxProof proven(std::vector<code::PtxAccess> accesses, std::vector<code::PtxParam> params = {}) {
  code::PtxProof proof;
  proof.understood = true;
  proof.accesses = std::move(accesses);
  proof.params = std::move(params);
  return proof;
}

code::PtxProof not_proven(const std::string& why) {
  code::PtxProof proof;
  proof.why = why;
  return proof;
}

TEST(CodeTargets, AreNamedAsTheCompilerDoes) {
  EXPECT_EQ(kSm80.text(), "sm_80");
  EXPECT_EQ(kSm90a.text(), "sm_90a");
  EXPECT_EQ((CodeTarget{100, 'f', true}).text(), "compute_100f");
}

TEST(CodeTargets, AreChosenByName) {
  const auto takes = [](const char* filter, const CodeTarget& target) {
    return TargetFilter::of(filter)->takes(target);
  };
  EXPECT_TRUE(takes("90", kSm90) && takes("90", kSm90a) && takes("90", kPtx90) && !takes("90", kSm80));
  EXPECT_TRUE(takes("90a", kSm90a) && !takes("90a", kSm90) && !takes("90a", kPtx90));
  EXPECT_TRUE(takes("sm_90", kSm90) && takes("sm_90", kSm90a) && !takes("sm_90", kPtx90));
  EXPECT_TRUE(takes("compute_90", kPtx90) && !takes("compute_90", kSm90));
  for (const char* const wrong : {"", "a", "sm_", "90b", "90aa", "9 0", "-90", "sm_sm_90", "99999999999", "90 "})
    EXPECT_FALSE(TargetFilter::of(wrong)) << wrong;
}

TEST(Reasons, ArePartedFromTheirPlaces) {
  EXPECT_EQ(reason_of("it reads code, at byte 0x30").cause, "it reads code");
  EXPECT_EQ(reason_of("it reads code, at byte 0x30").place, "0x30");
  EXPECT_EQ(reason_of("an instruction that is not known, at byte 0x30: 0x12 0x34").cause,
            "an instruction that is not known: 0x12 0x34");
  EXPECT_EQ(reason_of("an instruction that is not known, at byte 0x30: 0x12 0x34").place, "0x30");
  EXPECT_EQ(reason_of("it is too large").cause, "it is too large");
  EXPECT_EQ(reason_of("it is too large").place, "");
}

TEST(Reasons, AreCountedWithoutNames) {
  EXPECT_EQ(kind_of_cause("it reaches the managed variable x"), "it reaches the managed variable");
  EXPECT_EQ(kind_of_cause("it writes the table t"), "it writes the table");
  EXPECT_EQ(kind_of_cause("an instruction that is not known: 0x12 0x34"), "an instruction that is not known");
  EXPECT_EQ(kind_of_cause("it calls vprintf"), "it calls vprintf");
}

TEST(Findings, OfSeveralTargetsAreOneIfTheyAreTheSame) {
  KernelFindings kernel;
  kernel.add(kPtx90, proven({{{0}, false, true}}));
  kernel.add(kSm90, proven({{{0}, false, true}}));
  kernel.add(kSm80, proven({{{0}, true, true}}));
  kernel.add(kSm90a, proven({{{0}, false, true}}));
  kernel.add(kSm90, proven({{{0}, false, true}}));
  ASSERT_EQ(kernel.findings.size(), 2u);
  ASSERT_EQ(kernel.findings[0].targets.size(), 3u);
  EXPECT_EQ(kernel.findings[0].targets[0].target, kSm90);
  EXPECT_EQ(kernel.findings[0].targets[1].target, kPtx90);
  EXPECT_EQ(kernel.findings[0].targets[2].target, kSm90a);
}

TEST(Findings, ThatFailForOneReasonKeepTheirPlaces) {
  KernelFindings kernel;
  kernel.add(kSm80, not_proven("it reads code, at byte 0x10"));
  kernel.add(kSm90, not_proven("it reads code, at byte 0x20"));
  kernel.add(kPtx90, not_proven("it reads code"));
  kernel.add(kSm90a, not_proven("it reads a texture, at byte 0x20"));
  ASSERT_EQ(kernel.findings.size(), 2u);
  EXPECT_EQ(kernel.findings[0].cause, "it reads code");
  ASSERT_EQ(kernel.findings[0].targets.size(), 3u);
  EXPECT_EQ(kernel.findings[0].targets[0].place, "0x10");
  EXPECT_EQ(kernel.findings[0].targets[1].place, "0x20");
  EXPECT_EQ(kernel.findings[0].targets[2].place, "");
}

TEST(Findings, DifferByLayout) {
  KernelFindings kernel;
  kernel.add(kSm80, proven({{{0}, true, false}}, {{{}, 0, 8}}));
  kernel.add(kSm90, proven({{{0}, true, false}}, {{{}, 0, 16}}));
  EXPECT_EQ(kernel.findings.size(), 2u);
}

TEST(PtxAndMachineCode, AreCompared) {
  const auto reads = proven({{{0}, true, false}}), both = proven({{{0}, true, true}});
  const auto conditional = proven({{{0}, true, false, {{16, 4, 1, true}}}});
  auto variable = reads;
  variable.globals.push_back({"v", true, false});
  EXPECT_EQ(compare(reads, reads), Agreement::same);
  EXPECT_EQ(compare(conditional, reads), Agreement::same);
  EXPECT_EQ(compare(both, reads), Agreement::machine_less);
  EXPECT_EQ(compare(reads, both), Agreement::machine_more);
  EXPECT_EQ(compare(variable, reads), Agreement::machine_less);
  EXPECT_EQ(compare(reads, proven({{{0, 8}, true, false}})), Agreement::machine_vague);
  EXPECT_EQ(compare(reads, proven({{{8, 16}, true, false}})), Agreement::machine_more);
  EXPECT_EQ(compare(reads, proven({{{0, 8}, true, true}})), Agreement::machine_more);
  EXPECT_EQ(compare(reads, variable), Agreement::machine_more);
  EXPECT_EQ(compare(reads, not_proven("x")), Agreement::only_ptx);
  EXPECT_EQ(compare(not_proven("x"), reads), Agreement::only_machine);
  EXPECT_EQ(compare(not_proven("x"), not_proven("y")), Agreement::neither);
}

// A parameter that is aligned to 64 bytes lies elsewhere.
TEST(PtxAndMachineCode, AreComparedByParameter) {
  const auto ptx = proven({{{64}, true, false}}, {{{}, 0, 8}, {{}, 64, 64}});
  const auto machine = proven({{{48}, true, false}}, {{{}, 0, 8}, {{}, 48, 64}});
  EXPECT_EQ(compare(ptx, machine), Agreement::same);
  EXPECT_EQ(compare(ptx, proven({{{56}, true, false}}, {{{}, 0, 8}, {{}, 48, 64}})), Agreement::machine_more);
}

TEST(PtxAndMachineCode, ArePairsOfOneArchitecture) {
  KernelFindings kernel;
  kernel.add(kSm80, proven({}));
  kernel.add(kSm90, proven({{{0}, true, false}}));
  kernel.add(kSm90a, proven({}));
  kernel.add(kPtx90, proven({}));
  std::vector<std::pair<std::string, Agreement>> pairs;
  for_each_pair(kernel, [&](const CodeTarget& ptx, const CodeTarget& machine, Agreement agreement) {
    EXPECT_EQ(ptx, kPtx90);
    pairs.emplace_back(machine.text(), agreement);
  });
  using Pair = std::pair<std::string, Agreement>;
  EXPECT_EQ(pairs, (std::vector<Pair>{{"sm_90a", Agreement::same}, {"sm_90", Agreement::machine_more}}));
}

}  // namespace
}  // namespace nimble::analyzer
