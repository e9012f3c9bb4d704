// Feeds arbitrary bytes to the reader of kept proofs: it returns facts that serialize to the same bytes, or none.
#include <cstdlib>
#include <string>

#include "analyzer/kernel_code/facts_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace nimble::code;
  const Bytes bytes(reinterpret_cast<const char*>(data), size);
  const auto facts = facts_of(bytes);
  if (facts && bytes_of(*facts) != bytes) std::abort();
  return 0;
}
