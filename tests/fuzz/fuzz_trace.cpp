// Whatever bytes come as a trace: an analysis, or an InputError.
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "analyzer/base/errors.h"
#include "analyzer/pipeline.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static const std::string path = "/tmp/nimble_fuzz_trace." + std::to_string(getpid());
  FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) std::abort();
  std::fwrite(data, 1, size, file);
  std::fclose(file);
  try {
    nimble::analyzer::analyze(nimble::analyzer::read_trace(path), {});
  } catch (const nimble::analyzer::InputError&) {
  }
  std::remove(path.c_str());
  return 0;
}
