#include "analyzer/step/step_variants.h"

#include <gtest/gtest.h>

#include <string>

#include "analyzer/check/checker.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "nimble/internal/step_paths.h"
#include "replayer/schedule/schedule_reader.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;

// Steps by letters. Kernels are told apart by name; all work on memory of the program's unless it says otherwise.
class Steps {
 public:
  Steps() {
    text_.image(true);
    for (const char* name : {"_Z1aPfPKf", "_Z1bPfPKf", "_Z1cPfPKf", "_Z1dPfPKf"}) text_.function(name, "[[0,8],[8,8]]");
    text_.function("mystery", "[[0,8]]");
    text_.stream();
    for (std::uint64_t i = 0; i < 8; ++i) text_.alloc(memory(i), 0x1000);
  }

  Steps& issue(const std::string& letters) {
    for (const char letter : letters) one(letter);
    return *this;
  }
  Analysis analyze(const AnalysisOptions& options = test::believing()) const { return text_.analyze(options); }

 private:
  static std::uint64_t memory(std::uint64_t i) { return 0x100000 + 0x10000 * i; }
  void launch(int function, std::uint64_t to, std::uint64_t from) { text_.launch(function, hex(to) + hex(from)); }
  void forward() {
    launch(0, memory(1), memory(0));
    launch(1, memory(2), memory(0));
    launch(2, memory(3), memory(1));
  }

  void one(char letter) {
    switch (letter) {
      case 't':  // goes on from what `f` is
        forward();
        launch(3, memory(4), memory(3));
        launch(3, memory(5), memory(2));
        break;
      case 'f':
        forward();
        break;
      case 'e':
        forward();
        launch(2, memory(6), memory(3));
        launch(2, memory(7), memory(2));
        break;
      case 'c':
        launch(1, memory(1), memory(2));
        launch(1, memory(3), memory(2));
        break;
      case 'm': {  // with memory of its own, alive where it parts from `n`
        const std::uint64_t tensor = 0x900000 + 0x10000 * (count_++ % 4);
        text_.alloc_async(tensor, 512);
        launch(0, tensor, memory(0));
        launch(1, memory(1), memory(0));
        launch(2, memory(2), tensor);
        launch(2, memory(3), tensor);
        text_.free_async(tensor);
        break;
      }
      case 'n': {
        const std::uint64_t tensor = 0xa00000 + 0x10000 * (count_++ % 4), other = 0xb00000 + 0x10000 * (count_ % 4);
        text_.alloc_async(tensor, 512);
        launch(0, tensor, memory(0));
        launch(1, memory(1), memory(0));
        text_.alloc_async(other, 2048);
        launch(3, other, tensor);
        launch(3, memory(4), tensor);
        text_.free_async(tensor);
        text_.free_async(other);
        break;
      }
      case 'p':  // the host waits after its first op, so that no graph has that
      case 'q':  // and here nothing is known of it
        letter == 'p' ? launch(0, memory(1), memory(0)) : text_.launch(4, hex(memory(0)));
        text_.synchronize();
        launch(letter == 'p' ? 1 : 2, memory(3), memory(2));
        launch(letter == 'p' ? 1 : 2, memory(4), memory(2));
        break;
      default:
        text_.set(memory(7), 16);
        return;
    }
    text_.synchronize();
  }

  test::TraceText text_;
  std::uint64_t count_ = 0;
};

// As the file says it, checked by its reader and against the trace.
Schedule checked(const Analysis& analysis) {
  EXPECT_EQ(analysis.plan.status, kExitOk) << analysis.plan.why_no_schedule;
  const std::string text = schedule_text(build_schedule(analysis));
  EXPECT_FALSE(check_schedule(analysis, text, "schedule").unordered);
  return parse_schedule(text, "schedule");
}

TEST(StepKinds, AreFoundBetweenTheStepsOfTheFirst) {
  const Analysis analysis = Steps().issue("tttttcctttccttttxtttccc").analyze();
  ASSERT_EQ(analysis.others.size(), 1u);
  EXPECT_EQ(analysis.others[0].step.period, 2u);
  EXPECT_EQ(analysis.others[0].step.begins.size(), 7u);
  const Schedule schedule = checked(analysis);
  EXPECT_EQ(schedule.ends.size(), 2u);
  EXPECT_EQ(schedule.branches.size(), 2u);
  EXPECT_EQ(schedule.branches[1].after, kNone);
}

TEST(StepKinds, OneAloneNeedsNoBranches) {
  const Schedule schedule = checked(Steps().issue("tttttxtttx").analyze());
  EXPECT_TRUE(schedule.ends.empty());
  EXPECT_EQ(schedule.branches.size(), 1u);
}

TEST(StepKinds, ThatAreRareAreExtras) {
  EXPECT_TRUE(Steps().issue("ttttcctttt").analyze().others.empty());
  EXPECT_TRUE(Steps().issue("tttxttttxttttxttttx").analyze().others.empty()) << "one op is no step";
}

TEST(StepKinds, ShareWhatTheyBeginWith) {
  const Analysis analysis = Steps().issue("tttteetteeettttttee").analyze();
  ASSERT_EQ(analysis.others.size(), 1u);
  const Schedule schedule = checked(analysis);
  const StepPaths paths(schedule);
  ASSERT_EQ(paths.kinds(), 2u);
  EXPECT_EQ(paths.shared(0, 1), 3u);
  EXPECT_EQ(schedule.ops.size(), 7u);
  ASSERT_EQ(schedule.segments.size(), 3u);
  EXPECT_EQ(schedule.segments[0].last, 2u);
  EXPECT_EQ(schedule.objects.size(), 8u) << "what both name is one object";
}

TEST(StepKinds, MayBeTheBeginningOfAnother) {
  const Analysis analysis = Steps().issue("ttttffttffftttttff").analyze();
  ASSERT_EQ(analysis.others.size(), 1u);
  const Schedule schedule = checked(analysis);
  const StepPaths paths(schedule);
  ASSERT_EQ(paths.kinds(), 2u);
  EXPECT_EQ(schedule.branches.size(), 1u);
  EXPECT_EQ(paths.shared(0, 1), 3u);
  EXPECT_EQ(paths.ops(1).size(), 3u);
}

// Of an op that no graph has replay compares nothing, so it is one op, whatever the two are.
TEST(StepKinds, ShareAnOpOfWhichOneNamesMemoryAndTheOtherNone) {
  for (const char* letters : {"ppppqqpppqqqppppppqq", "qqqqppqqqpppqqqqqqpp"}) {
    const Analysis analysis = Steps().issue(letters).analyze();
    ASSERT_EQ(analysis.others.size(), 1u) << letters;
    const Schedule schedule = checked(analysis);
    ASSERT_EQ(schedule.ends.size(), 2u) << letters;
    EXPECT_EQ(schedule.ops.front().submit, Submit::direct);
    EXPECT_EQ(StepPaths(schedule).shared(0, 1), 1u) << letters;
  }
}

TEST(StepKinds, HaveWhatTheyShareInThePlaceWhereTheFirstHasIt) {
  const Analysis analysis = Steps().issue("nnnnmmmnnnmmmmnnnnnnmm").analyze();
  ASSERT_EQ(analysis.others.size(), 1u);
  const Schedule schedule = checked(analysis);
  const StepPaths paths(schedule);
  EXPECT_EQ(paths.shared(0, 1), 3u);
  std::uint32_t local = 0;
  for (const ScheduleObject& object : schedule.objects) local += object.step_local;
  EXPECT_EQ(local, 2u);
}

TEST(StepKinds, AllOfThemInOneTree) {
  const Analysis analysis = Steps().issue("tttteettccttteeeccctttttteeccmmmmmnnnnmmmnnntttteecc").analyze();
  const Schedule schedule = checked(analysis);
  EXPECT_EQ(schedule.ends.size(), 5u);
  std::uint32_t roots = 0;
  for (const ScheduleBranch& branch : schedule.branches) roots += branch.after == kNone;
  EXPECT_EQ(roots, 3u);
}

TEST(StepKinds, OneKindIfThatIsWanted) {
  AnalysisOptions options = test::believing();
  options.one_kind = true;
  EXPECT_TRUE(checked(Steps().issue("tttteetteeettttttee").analyze(options)).ends.empty());
}

// The steps of a program in disorder are found for what they are, wherever they stand.
TEST(StepKinds, InAnyOrder) {
  int found = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    std::string letters = "mmmmmm";  // the first kind has to come several times in a row
    for (int i = 0; i < 40; ++i) letters += std::string("mmtenc")[random() % 6];
    const Analysis analysis = Steps().issue(letters + "mmmm").analyze();
    if (analysis.step.period == 0) continue;
    std::uint64_t covered = std::uint64_t{analysis.step.period} * analysis.step.begins.size();
    for (const StepAnalysis& other : analysis.others)
      covered += std::uint64_t{other.step.period} * other.step.begins.size();
    EXPECT_GE(10 * covered, 9 * analysis.step.ops.size()) << "seed " << seed << ": " << letters;
    checked(analysis);
    ++found;
  }
  EXPECT_GT(found, 20);
}

}  // namespace
}  // namespace nimble::analyzer
