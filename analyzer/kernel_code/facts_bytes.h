// Serializes the facts about a kernel, for the cache, and reads them back.
//
// Any bytes give facts or none: numbers, counts and operands are checked. Not a format: only the
// prover that wrote them reads them (prover_digest.h). Pure functions; any thread.
#pragma once

#include <optional>
#include <string>

#include "analyzer/kernel_code/bytes.h"
#include "analyzer/kernel_code/kernel_facts.h"

namespace nimble::code {

std::string bytes_of(const KernelFacts& facts);
std::optional<KernelFacts> facts_of(Bytes bytes);

}  // namespace nimble::code
