// How far the user believes evidence: weaker sources are not asked (--trust).
//
// One thread; no errors.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "analyzer/access/access.h"

namespace nimble::analyzer {

inline constexpr std::string_view kTrustNames[] = {"exact", "proven", "declared", "observed"};
inline constexpr Evidence kDefaultTrust = Evidence::observed;

// The level of this name, if there is one.
std::optional<Evidence> trust_of(std::string_view name);

// The source itself, if it is believed; else a substitute that never answers, and says so where the source would have
// answered.
std::unique_ptr<AccessSource> within_trust(std::unique_ptr<AccessSource> source, Evidence trust);

}  // namespace nimble::analyzer
