#include "analyzer/code_survey/summary.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "analyzer/base/text.h"

namespace nimble::analyzer {
namespace {

constexpr std::size_t kMostCauses = 30;   // of the text
constexpr std::size_t kMostKinds = 4096;  // that are told apart
constexpr std::size_t kMostCauseChars = 150;

void count(std::map<std::string, std::uint64_t>& causes, const std::string& cause) {
  ++causes[causes.size() < kMostKinds || causes.contains(cause) ? cause : "other causes"];
}

// Most frequent first.
std::vector<std::pair<std::string, std::uint64_t>> by_count(const std::map<std::string, std::uint64_t>& causes) {
  std::vector<std::pair<std::string, std::uint64_t>> list(causes.begin(), causes.end());
  std::ranges::stable_sort(list, std::greater<>(), [](const auto& each) { return each.second; });
  return list;
}

std::string list_text(const std::string& title, const std::map<std::string, std::uint64_t>& causes) {
  if (causes.empty()) return {};
  std::string text = "\n" + title + ":\n";
  const auto list = by_count(causes);
  for (std::size_t i = 0; i < list.size() && i < kMostCauses; ++i) {
    char number[24];
    std::snprintf(number, sizeof number, "%9llu  ", static_cast<unsigned long long>(list[i].second));
    text += number + shortened(list[i].first, kMostCauseChars) + "\n";
  }
  if (list.size() > kMostCauses) text += "           and " + plural(list.size() - kMostCauses, "more cause") + "\n";
  return text;
}

void list_json(JsonText& out, const std::map<std::string, std::uint64_t>& causes) {
  out.open('[');
  for (const auto& [cause, times] : by_count(causes))
    out.open('{').key("cause").text(cause).key("count").number(times).close('}');
  out.close(']');
}

}  // namespace

void SurveySummary::add(const ImageFindings& image) {
  ++images_;
  for (const UnreadPart& part : image.unread) count(unread_, part.what + ": " + part.why);
  for (const KernelFindings& kernel : image.kernels) {
    for (const Finding& finding : kernel.findings) {
      for (const FindingTarget& each : finding.targets) {
        Counts& counts = targets_[each.target];
        ++counts.kernels;
        if (finding.proof.understood && !finding.proof.extents.doubts.empty()) {
          ++counts.by_launch;
          count(excluded_, kind_of_cause(reason_of(finding.proof.extents.doubts.front().why).cause));
        } else if (finding.proof.understood) {
          ++counts.proven;
        } else {
          count(counts.causes, kind_of_cause(finding.cause));
          count(causes_, kind_of_cause(finding.cause));
        }
      }
    }
    for_each_pair(kernel, [&](const CodeTarget&, const CodeTarget&, Agreement agreement) {
      ++pairs_[static_cast<std::size_t>(agreement)];
    });
  }
}

std::uint64_t SurveySummary::kernels() const {
  std::uint64_t all = 0;
  for (const auto& [target, counts] : targets_) all += counts.kernels;
  return all;
}

std::string SurveySummary::text() const {
  std::string text = plural(images_, "image") + "\n\n";
  char line[120];
  std::snprintf(line, sizeof line, "%-14s %9s %9s\n", "", "kernels", "proven");
  text += line;
  for (const auto& [target, counts] : targets_) {
    std::snprintf(line, sizeof line, "%-14s %9llu %9llu  %5.1f %%\n", target.text().c_str(),
                  static_cast<unsigned long long>(counts.kernels), static_cast<unsigned long long>(counts.proven),
                  100.0 * static_cast<double>(counts.proven) / static_cast<double>(counts.kernels));
    text += line;
  }
  text += list_text("Proven for launches that exclude it by their numbers, on all architectures", excluded_);
  text += list_text("Not proven, by cause, on all architectures", causes_);
  std::map<std::string, std::uint64_t> pairs;
  for (std::size_t i = 0; i < pairs_.size(); ++i)
    if (pairs_[i] != 0) pairs.emplace(kAgreementNames[i], pairs_[i]);
  text += list_text("PTX and machine code of the same architecture", pairs);
  return text + list_text("Not read", unread_);
}

void SurveySummary::json(JsonText& out) const {
  out.open('{').key("images").number(images_).key("targets").open('[');
  for (const auto& [target, counts] : targets_) {
    out.newline().open('{').key("name").text(target.text()).key("kernels").number(counts.kernels);
    out.key("proven").number(counts.proven).key("by_launch").number(counts.by_launch).key("causes");
    list_json(out, counts.causes);
    out.close('}');
  }
  out.close(']').newline().key("pairs").open('{');
  for (std::size_t i = 0; i < pairs_.size(); ++i) out.key(kAgreementNames[i]).number(pairs_[i]);
  out.close('}').key("unread");
  list_json(out, unread_);
  out.close('}');
}

}  // namespace nimble::analyzer
