#include "analyzer/base/hash.h"

#include <xxhash.h>

namespace nimble::analyzer {

std::uint64_t hash_text(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

}  // namespace nimble::analyzer
