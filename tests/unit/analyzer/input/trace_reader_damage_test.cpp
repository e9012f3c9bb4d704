// Traces that are cut off, damaged, or read while they grow.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "analyzer/base/errors.h"
#include "analyzer/input/trace_reader.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/report/report.h"
#include "tests/unit/analyzer/input/trace_reader_support.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::error_of;
using test::small;
using test::TempFile;

// Whatever the bytes: a trace, or one clear line. The whole pipeline follows where it is a trace.
void read_and_use(const std::string& text) {
  TempFile file(text);
  try {
    Analysis analysis = analyze(read_trace(file.path()), test::believing());
    text_report(analysis);
    json_report(analysis);
    if (analysis.step.period != 0) schedule_text(build_schedule(analysis));
  } catch (const InputError& error) {
    std::string what = error.what();
    ASSERT_EQ(what.find(file.path()), 0u) << what;
    ASSERT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

TEST(TraceReader, TakesATraceThatWasCutOffAnywhere) {
  std::string text = small().str();
  std::size_t header_end = text.find('\n', 2) - 1;
  for (std::size_t length = 0; length <= text.size(); ++length) {
    read_and_use(text.substr(0, length));
    if (length >= header_end) {
      ASSERT_EQ(error_of(text.substr(0, length)), "") << "cut off after " << length;
    }
  }
}

TEST(TraceReader, SurvivesBytesThatFlipped) {
  test::Random random(17);
  std::string text = small().str();
  for (int round = 0; round < 6000; ++round) {
    std::string broken = text;
    for (unsigned flips = 1 + random() % 3; flips > 0; --flips) {
      char& c = broken[random() % broken.size()];
      c = random() % 3 == 0 ? static_cast<char>(random()) : static_cast<char>('0' + random() % 75);
    }
    read_and_use(broken);
  }
}

TEST(TraceReader, SurvivesLinesThatMovedOrDoubled) {
  test::Random random(18);
  std::vector<std::string> lines;
  std::string text = small().str();
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = text.find('\n', at) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  for (int round = 0; round < 1500; ++round) {
    auto mixed = lines;
    for (unsigned swaps = 1 + random() % 3; swaps > 0; --swaps) {
      std::size_t a = random() % mixed.size(), b = random() % mixed.size();
      if (random() % 2)
        std::swap(mixed[a], mixed[b]);
      else
        mixed[a] = mixed[b];
    }
    std::string whole;
    for (const std::string& line : mixed) whole += line;
    read_and_use(whole);
  }
}

// What the reports and a schedule say of a trace.
std::string all_of(TraceFile file) {
  std::string text =
      fmt::format("{} lines, {} calls, complete {}\n", file.lines, file.trace.calls.size(), file.trace.complete);
  for (const TraceCall& call : file.trace.calls)
    text += fmt::format("{} {} {}\n", call.seq, static_cast<int>(call.kind), call.size);
  file.digest = "0";
  const Analysis analysis = analyze(std::move(file), test::believing());
  return text + (analysis.step.period > 0 ? schedule_text(build_schedule(analysis)) : analysis.step.why_none);
}

TEST(GrowingTrace, SaysAtAnyTimeWhatTheTextSoFarSays) {
  std::string text = small().str(), so_far;
  text.erase(text.rfind(']'));
  // Two threads' calls may be written in another order than they came.
  const std::size_t set = text.rfind("\"cat\":\"set\""), first = text.rfind('\n', set) + 1,
                    second = text.find('\n', first) + 1, third = text.find('\n', second) + 1;
  text = text.substr(0, first) + text.substr(second, third - second) + text.substr(first, second - first) +
         text.substr(third);
  GrowingTrace growing("trace");
  EXPECT_THROW(growing.file(), InputError);
  std::size_t pieces = 0;
  for (std::size_t at = 0; at < text.size(); ++pieces) {
    std::size_t end = at;
    for (std::size_t lines = 0; lines < 1 + pieces % 3 && end < text.size(); ++lines) end = text.find('\n', end) + 1;
    const std::string piece = text.substr(at, end - at);
    growing.read_on(piece);
    so_far += piece;
    at = end;
    if (pieces == 0) continue;
    const TempFile file(so_far);
    TraceFile whole = read_trace(file.path());
    whole.path = "trace";
    EXPECT_EQ(all_of(growing.file()), all_of(std::move(whole))) << so_far;
  }
  EXPECT_GT(pieces, 10u);
  EXPECT_THROW(growing.read_on("nothing\n"), InputError);
}

}  // namespace
}  // namespace nimble::analyzer
