#include "analyzer/step/repetition.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::Random;

std::vector<std::uint64_t> sequence(const std::string& text) { return {text.begin(), text.end()}; }

std::string repeated(const std::string& word, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += word;
  return text;
}

// The word that was found, and where.
struct Found {
  std::string word;
  std::vector<std::uint32_t> begins;
};

Found find(const std::string& text, const SequenceHints& hints = {}) {
  auto result = find_repetition(sequence(text), hints);
  if (!result) return {};
  EXPECT_FALSE(result->begins.empty());
  return {text.substr(result->begins[0], result->period), result->begins};
}

TEST(Repetition, NeedsThreeRepeatsInARow) {
  EXPECT_EQ(find("abcdabcd").word, "");
  EXPECT_EQ(find("abcdabcdabcd").word, "abcd");
  EXPECT_EQ(find("abcdabcdXabcd").word, "");
  EXPECT_EQ(find("").word, "");
  EXPECT_EQ(find("aa").word, "");
  EXPECT_EQ(find("aaa").word, "a");
}

TEST(Repetition, LeavesThePrologueOut) {
  Found found = find("xyzwv" + repeated("abcde", 6));
  EXPECT_EQ(found.word, "abcde");
  EXPECT_EQ(found.begins.size(), 6u);
  EXPECT_EQ(found.begins[0], 5u);
}

TEST(Repetition, PutsExtrasBetweenSteps) {
  // A loss copy in every fourth step; the step must not begin in its middle, whatever the prologue ends with.
  std::string text = "xyde" + repeated(repeated("abcde", 4) + "L", 5);
  Found found = find(text);
  EXPECT_EQ(found.word, "abcde");
  EXPECT_EQ(found.begins.size(), 20u);
}

TEST(Repetition, SeesInterruptionsFromBothSides) {
  // Most extras end as a step does, so that the run after them seems to begin early; where runs end shows better.
  std::string text = "cde" + repeated(repeated("abcde", 4) + "L" + repeated(repeated("abcde", 4) + "Mde", 2), 4);
  Found found = find(text);
  EXPECT_EQ(found.word, "abcde");
  EXPECT_EQ(found.begins.size(), 48u);
}

TEST(Repetition, RotatesToWhereAnotherPhaseInterrupts) {
  // The program starts with half a step of its own, so the earliest repetition is "cdeab".
  std::string text = "cde" + repeated(repeated("abcde", 7) + repeated("EVAL", 1), 3);
  EXPECT_EQ(find(text).word, "abcde");
}

TEST(Repetition, RotatesAfterACallThatObserves) {
  SequenceHints hints;
  std::string text = repeated("abcd", 5);
  hints.observed_before.assign(text.size(), 0);
  for (std::size_t i = 2; i < text.size(); i += 4) hints.observed_before[i] = 1;
  EXPECT_EQ(find(text, hints).word, "cdab");
}

TEST(Repetition, TakesTheOuterOfNestedPeriods) {
  EXPECT_EQ(find(repeated("ababcde", 5)).word, "ababcde");
  EXPECT_EQ(find(repeated(repeated("ab", 10) + "cdefg", 5)).word, repeated("ab", 10) + "cdefg");
}

TEST(Repetition, TakesTheShortestOfMultiples) {
  Found found = find(repeated("abc", 24));
  EXPECT_EQ(found.word, "abc");
  EXPECT_EQ(found.begins.size(), 24u);
}

TEST(Repetition, DoesNotTakeAnyRepetitionForAStep) {
  EXPECT_EQ(find("abcaaadefghijklmnopqrstuvw").word, "") << "little of the whole";
  EXPECT_EQ(find("aaabcdefghijkaaalmnopqrstuvaaa").word, "") << "scattered";
  SequenceHints hints;
  std::string text = "xyzmmmmmmmmmmmmxyz";
  for (char c : text) hints.work.push_back(c != 'm');
  EXPECT_EQ(find(text, hints).word, "") << "no work";
}

TEST(Repetition, TellsLayersFromStepsByTheirPointers) {
  // Forty equal layers and a head: by signatures alone the layer is the step.
  std::string step = repeated("abcdefgh", 40) + "HI";
  SequenceHints hints;
  EXPECT_EQ(find(repeated(step, 4), hints).word, "abcdefgh");
  hints.same_pointers = [&](std::uint32_t, std::uint32_t, std::uint32_t period) {
    return period % step.size() == 0 ? 1.0 : 0.3;
  };
  EXPECT_EQ(find(repeated(step, 4), hints).word, step);
}

TEST(Repetition, FindsRandomStepsInRandomSurroundings) {
  Random random(15);
  for (int round = 0; round < 800; ++round) {
    // The step is a random word in which nothing repeats by chance: its first letter is unique.
    std::string word = "A";
    for (std::uint32_t i = 4 + test::below(random, 40); i > 0; --i)
      word += static_cast<char>('b' + static_cast<char>(random() % 8));
    std::string prologue, text;
    for (std::uint32_t i = test::below(random, 20); i > 0; --i)
      prologue += static_cast<char>('N' + static_cast<char>(random() % 12));
    int runs = 1 + static_cast<int>(random() % 3);
    std::size_t steps = 0;
    text = prologue;
    for (int run = 0; run < runs; ++run) {
      int times = 4 + static_cast<int>(random() % 5);
      steps += static_cast<std::size_t>(times);
      text += repeated(word, times);
      if (run + 1 < runs) text += "Z" + std::to_string(run);
    }
    Found found = find(text);
    ASSERT_EQ(found.word.size(), word.size()) << text;
    ASSERT_EQ(found.begins.size(), steps) << text;
    ASSERT_EQ(found.word, word) << text;
  }
}

TEST(Repetition, IsFastOnLongSequencesOfAnyShape) {
  Random random(16);
  std::vector<std::uint64_t> same(200'000, 7), noise, long_step;
  for (int i = 0; i < 200'000; ++i) noise.push_back(random());
  for (int i = 0; i < 50'000; ++i) long_step.push_back(random() % 5);
  for (int i = 0; i < 150'000; ++i) long_step.push_back(long_step[static_cast<std::size_t>(i)]);
  EXPECT_EQ(find_repetition(same, {})->period, 1u);
  EXPECT_FALSE(find_repetition(noise, {}));
  EXPECT_EQ(find_repetition(long_step, {})->period, 50'000u);
}

}  // namespace
}  // namespace nimble::analyzer
