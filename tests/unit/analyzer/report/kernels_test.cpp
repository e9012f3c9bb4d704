#include "analyzer/report/kernels.h"

#include <gtest/gtest.h>

#include "analyzer/stages/read_steps.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;

constexpr std::uint64_t kA = 0x7f1200100000, kB = 0x7f1200200000, kNowhere = 0x7f4000000010;

// add: proven, reads its first word and writes its second; twice with both, once with a first word that leads nowhere.
// other: nothing is known of it.
struct Launches {
  Launches() {
    text.image(true);
    text.function("_Z3addPfS_", "[[0,8],[8,8]]", 0, R"(,"proven":[[[0],"r"],[[8],"w"]],"same_code":true)");
    text.function("other", "[[0,8]]");
    text.stream();
    text.alloc(kA, 4096);
    text.alloc(kB, 4096);
    for (int i = 0; i < 2; ++i) text.launch(0, hex(kA) + hex(kB));
    text.launch(0, hex(kNowhere) + hex(kB));
    for (int i = 0; i < 2; ++i) text.launch(1, hex(kA));
  }
  KernelUses uses(Evidence trust = Evidence::proven) {
    AnalysisOptions options;
    options.trust = trust;
    recording = recording_of(text.read());
    return kernel_uses(recording, options);
  }
  test::TraceText text;
  Recording recording;
};

TEST(Kernels, EachLaunchCounts) {
  Launches launches;
  const KernelUses uses = launches.uses();
  ASSERT_EQ(uses.kernels.size(), 2u);
  const KernelUse& add = uses.kernels[0];
  EXPECT_EQ(add.name, "_Z3addPfS_");
  EXPECT_EQ(add.launches, 3u);
  EXPECT_EQ(add.known[static_cast<int>(Evidence::proven)], 2u);
  EXPECT_EQ(add.known[static_cast<int>(Evidence::assumed)], 1u);
  ASSERT_EQ(add.words.size(), 2u);
  EXPECT_EQ(add.words.at(0).reads, 2u);
  EXPECT_EQ(add.words.at(0).writes, 0u);
  EXPECT_EQ(add.words.at(8).writes, 2u);
  ASSERT_EQ(add.why.size(), 1u);
  EXPECT_EQ(add.why.begin()->second, 1u);
  EXPECT_EQ(uses.kernels[1].known[static_cast<int>(Evidence::assumed)], 2u);
}

TEST(Kernels, TheTextTellsOfEachWordAndOfWhatIsNotKnown) {
  Launches launches;
  const KernelUses uses = launches.uses();
  const std::string all = kernels_text(launches.recording, uses, Evidence::proven, false);
  EXPECT_NE(all.find("kernels         2, 5 launches\n"
                     "known           proven 40.0 %, assumed 60.0 % of the launches (--trust proven)\n"),
            std::string::npos)
      << all;
  EXPECT_NE(all.find("add(float*, float*)\n  _Z3addPfS_\n  3 launches, proven 2, assumed 1\n"
                     "  parameter 0, bytes 0-7: read\n"),
            std::string::npos)
      << all;
  EXPECT_NE(all.find("  not known in 1 launch: the word at byte 0 "), std::string::npos) << all;
  EXPECT_NE(all.find("\nother\n  2 launches, assumed\n"), std::string::npos) << all;
  KernelUses known = uses;
  known.kernels.resize(1);
  known.kernels[0].known = {};
  EXPECT_EQ(kernels_text(launches.recording, known, Evidence::proven, true).find("add("), std::string::npos);
}

TEST(Kernels, TheJsonHasTheSameFigures) {
  Launches launches;
  const KernelUses uses = launches.uses();
  const std::string json = kernels_json(launches.recording, uses, Evidence::proven);
  EXPECT_NE(json.find(R"("known": {"exact": 0, "proven": 2, "declared": 0, "observed": 0, "assumed": 1})"),
            std::string::npos)
      << json;
  EXPECT_NE(json.find(R"({"byte": 0, "reads": 2, "writes": 0, "by_chance": 0})"), std::string::npos) << json;
}

TEST(Kernels, LaunchesThatFailedAreNone) {
  Launches launches;
  launches.text.launch(0, hex(kA) + hex(kB), 0, R"(,"result":700)");
  EXPECT_EQ(launches.uses().kernels[0].launches, 3u);
}

}  // namespace
}  // namespace nimble::analyzer
