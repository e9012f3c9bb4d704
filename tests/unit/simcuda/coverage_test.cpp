// Which entry points do their work, and that the others say so.
#include <dlfcn.h>

#include <cstring>

#include "fixture.h"

namespace {

struct Entry {
  const char *symbol, *decoder;
};

constexpr Entry kCalls[] = {
#define NIMBLE_CALL(symbol, default_stream, decoder, host) {#symbol, #decoder},
#include "nimble/driver_calls.def"
};

TEST(Coverage, EveryInterceptedCallThatIsDecodedIsImplemented) {
  for (const Entry& call : kCalls) {
    EXPECT_NE(dlsym(RTLD_DEFAULT, call.symbol), nullptr) << call.symbol;
    const bool decoded = std::strcmp(call.decoder, "Opaque") != 0;
    EXPECT_TRUE(!decoded || simcuda_implements(call.symbol)) << call.symbol;
  }
}

TEST(Coverage, TheRestIsNeverASuccess) {
  using NoArguments = CUresult (*)();
  OK(cuInit(0));
  int stubs = 0;
  for (const Entry& call : kCalls) {
    if (simcuda_implements(call.symbol)) continue;
    const std::uint64_t before = simcuda_unimplemented_calls();
    EXPECT_EQ(reinterpret_cast<NoArguments>(dlsym(RTLD_DEFAULT, call.symbol))(), CUDA_ERROR_NOT_SUPPORTED)
        << call.symbol;
    EXPECT_EQ(simcuda_unimplemented_calls(), before + 1);
    ++stubs;
  }
  EXPECT_GT(stubs, 0);
  EXPECT_FALSE(simcuda_implements("cuTensorMapEncodeTiled"));
  EXPECT_FALSE(simcuda_implements("no such call"));
}

}  // namespace
