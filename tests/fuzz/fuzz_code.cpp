// Any bytes as an image give answers about its kernels, or reasons why there are none; and what their machine code
// proves.
#include <cstdlib>
#include <string>

#include "analyzer/kernel_code/elf.h"
#include "analyzer/kernel_code/image.h"
#include "analyzer/kernel_code/sass_flow/flow.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace nimble::code;
  Image image(std::string(reinterpret_cast<const char*>(data), size));
  const unsigned archs[] = {90, 80};
  const KernelFacts facts = image.kernel("plain", archs);
  // What was proven must name words that the kernel's parameters have.
  if (facts.accesses) {
    std::uint32_t end = 0;
    for (const auto& [offset, bytes] : facts.params) end = offset + bytes;
    for (const PtxAccess& access : *facts.accesses)
      for (const std::uint32_t word : access.at)
        if (word % 8 != 0 || word >= end) std::abort();
  }
  if (!facts.self_contained && facts.why.empty()) std::abort();
  const KernelFacts whole = image.whole();
  if (!whole.self_contained && whole.why.empty()) std::abort();
  const Elf elf(Bytes(reinterpret_cast<const char*>(data), size));
  if (elf.error()) return 0;
  for (const ElfSymbol& symbol : elf.symbols()) {
    if (!symbol.kernel) continue;
    const PtxProof proof = sass::prove_kernel(elf, symbol.name);
    if (proof.understood != proof.why.empty()) std::abort();
  }
  return 0;
}
