// How far the user believes evidence: weaker sources are not asked (--trust, NIMBLE_TRUST).
//
// One thread; no errors.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "analyzer/access/access.h"
#include "nimble/internal/evidence.h"

namespace nimble::analyzer {

inline constexpr std::string_view kTrustNames[] = {"exact", "proven", "declared", "observed"};

// The level of this name, if there is one.
constexpr std::optional<Evidence> trust_of(std::string_view text) {
  for (int i = 0; i < kEvidences; ++i) {
    const auto level = static_cast<Evidence>(i);
    if (level != Evidence::assumed && name(level) == text) return level;
  }
  return std::nullopt;
}

// The weakest evidence that is believed unless the user says otherwise, in every tool and mode.
extern const Evidence kDefaultTrust;

// The source itself, if it is believed; else a substitute that never answers, and says so where the source would have
// answered.
std::unique_ptr<AccessSource> within_trust(std::unique_ptr<AccessSource> source, Evidence trust);

}  // namespace nimble::analyzer
