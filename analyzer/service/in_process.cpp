#include "analyzer/service/in_process.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "analyzer/report/beliefs.h"
#include "analyzer/report/describe.h"

namespace nimble::shim {

analyzer::AnalysisOptions analysis_options(analyzer::KeptRules& rules, Evidence trust) {
  analyzer::AnalysisOptions options;
  options.trust = trust;
  options.rules = *rules.get();
  return options;
}

std::string beliefs_for_log(const analyzer::Analysis& analysis) {
  const std::string what = analyzer::beliefs_text(analysis);
  return what.empty() ? what : "the order " + what + ". NIMBLE_TRUST=proven does without.";
}

std::function<std::size_t(char* buffer, std::size_t size)> source_of(TraceStore::Text text) {
  return [text = std::move(text), chunk = std::size_t{0}, at = std::size_t{0}](char* buffer, std::size_t size) mutable {
    std::size_t got = 0;
    while (got < size && chunk < text.size()) {
      const std::size_t bytes = std::min(size - got, text[chunk].text.size() - at);
      std::memcpy(buffer + got, text[chunk].text.data() + at, bytes);
      got += bytes;
      at += bytes;
      if (at == text[chunk].text.size()) ++chunk, at = 0;
    }
    return got;
  };
}

std::string why_not_one_graph(const analyzer::StepAnalysis& analysis) {
  std::uint32_t worst = kNone;
  for (std::uint32_t op = 0; op < analysis.step.period; ++op) {
    if (analysis.cut.segments.submit[op] != Submit::direct) continue;
    const char* const why = analysis.cut.segments.why_direct[op];
    const bool alone = why && std::string_view(why).starts_with("alone");
    if (worst == kNone || !alone) worst = op;
    if (!alone) break;
  }
  if (worst == kNone) return {};
  const char* const why = analysis.cut.segments.why_direct[worst];
  return "op " + std::to_string(worst) + " (" + analyzer::describe_op(analysis, worst, 100) +
         ") cannot be part of a graph" + (why ? std::string(": ") + why : std::string());
}

}  // namespace nimble::shim
