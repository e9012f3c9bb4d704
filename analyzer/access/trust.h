// How far the user believes: sources of evidence that are weaker are not listened to (--trust).
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

// The source as it is, where it is believed; else one in its place that never speaks, and says so where the other would
// have spoken.
std::unique_ptr<AccessSource> within_trust(std::unique_ptr<AccessSource> source, Evidence trust);

}  // namespace nimble::analyzer
