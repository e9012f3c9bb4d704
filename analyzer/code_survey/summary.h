// How much of a file's code is understood: counts by architecture, and what is left, by cause.
//
// Takes bounded memory for each image: counts only. One thread. No errors.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "analyzer/base/json_text.h"
#include "analyzer/code_survey/survey.h"

namespace nimble::analyzer {

class SurveySummary {
 public:
  void add(const ImageFindings& image);

  std::uint64_t kernels() const;  // each on each of its targets
  std::string text() const;
  // The value of the key `summary`; docs/reference/nimble-analyze.md lists its keys.
  void json(JsonText& out) const;

 private:
  struct Counts {
    std::uint64_t kernels = 0, proven = 0, by_launch = 0;
    std::map<std::string, std::uint64_t> causes;
  };

  std::uint64_t images_ = 0;
  std::map<CodeTarget, Counts> targets_;
  std::map<std::string, std::uint64_t> causes_, excluded_, unread_;
  std::array<std::uint64_t, std::size(kAgreementNames)> pairs_{};
};

}  // namespace nimble::analyzer
