// A traced program with a kernel that was watched, and what is made of it: for the tests of observations and of
// conflicts.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer::test {

inline constexpr std::uint64_t kSize = 0x1000;
inline constexpr std::uint64_t object(int i) { return static_cast<std::uint64_t>(i + 1) << 16; }
inline constexpr const char* kCode = R"(,"code":"00000000000000ab")";
inline constexpr const char* kTwo = "[[0,8],[8,8]]";

// What a probe reports of a launch: the objects that were compared, those that were written, and that no addresses lay
// in any of them.
inline std::string probed(const std::vector<int>& compared, const std::vector<int>& written, bool plain = true) {
  std::string text;
  for (const auto& [key, list] : {std::pair{"compared", &compared}, std::pair{"written", &written}}) {
    text.append(",\"").append(key).append("\":[");
    for (std::size_t i = 0; i < list->size(); ++i) {
      text.append(i ? ",[" : "[").append(std::to_string(object((*list)[i]))).append(",");
      text.append(std::to_string(kSize)).append("]");
    }
    text.append("]");
  }
  return text.append(plain ? ",\"plain\":true" : "");
}

// A step of two launches of one kernel, four times over. What is told of the first launch is up to the test.
struct Case {
  std::string name = "opaque";
  std::string third = "_Z5thirdPfPKf";  // of a function that the steps do not launch
  std::string params = kTwo;
  std::string more = kCode;
  bool self_contained = true;
  bool filled = true;  // the first object, before the steps
  std::string first_words = hex(object(0)) + hex(object(1));
  std::function<std::string(int step)> first = [](int) { return probed({0, 1}, {1}); };
  std::function<std::string(int step)> words = [this](int) { return first_words; };
  std::function<void(TraceText&)> before = [](TraceText&) {};

  TraceText text() const {
    TraceText text;
    text.image(self_contained);
    text.function(name, params, 0, more);
    text.function("_Z5otherPfPKf", kTwo);
    text.function(third, kTwo);
    text.stream();
    for (int i = 0; i < 6; ++i) text.alloc(object(i), kSize);
    if (filled) text.copy(object(0), object(5), kSize);
    before(text);
    for (int step = 0; step < 4; ++step) {
      text.launch(0, words(step), 0, first(step));
      text.launch(1, hex(object(4)) + hex(object(5)));
      text.synchronize();
    }
    return text;
  }
  Analysis analyze(Evidence trust = Evidence::observed) const {
    AnalysisOptions options = believing();
    options.trust = trust;
    return text().analyze(options);
  }
};

// "0r 1rw": what the first launch of the step does, by the places of the objects in memory.
inline std::string accesses(const Analysis& analysis) {
  std::string result;
  for (const Access& access : analysis.evidence.accesses.of(0)) {
    const std::uint32_t id = analysis.objects.objects[access.object].id;
    result.append(result.empty() ? "" : " ");
    result.append(std::to_string((analysis.input.table->objects()[id].base >> 16) - 1));
    result.append(access.reads ? "r" : "").append(access.writes ? "w" : "");
    EXPECT_TRUE(access.whole);
  }
  return result;
}

inline std::string reason(const Analysis& analysis) {
  const OpAccesses& op = analysis.evidence.accesses.ops[0];
  EXPECT_EQ(op.role, OpRole::barrier);
  return op.role == OpRole::barrier ? analysis.evidence.accesses.reasons[op.why] : "";
}

// The same, by a kernel whose signature says that its first parameter is read.
inline Case declared() {
  Case result;
  result.name = "_Z1fPKfPf";
  return result;
}

}  // namespace nimble::analyzer::test
