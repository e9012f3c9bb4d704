// What tells one prover from another: a digest of the sources that say what code proves (cmake/ProverDigest.cmake).
// What one has kept no other reads.
#pragma once

#include <cstdint>

namespace nimble::code {

std::uint64_t prover_digest();

}  // namespace nimble::code
