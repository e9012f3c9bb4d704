// Which entry points do their work, and that the others say so.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "fixture.h"

namespace {

struct Entry {
  const char *symbol, *decoder;
};

constexpr Entry kCalls[] = {
#define NIMBLE_CALL(symbol, default_stream, decoder, host) {#symbol, #decoder},
#include "nimble/internal/driver_calls.def"
};

// From before CUDA 3.2, with addresses of 32 bits, which this driver never gives out.
constexpr const char* kOld[] = {
    "cuMemAlloc",           "cuMemAllocHost",    "cuMemAllocPitch",     "cuMemFree",
    "cuMemGetAddressRange", "cuMemHostRegister", "cuModuleGetGlobal",   "cuMemHostGetDevicePointer",
    "cuMemcpy2D",           "cuMemcpy2DAsync",   "cuMemcpy2DUnaligned", "cuMemcpy3D",
    "cuMemGetInfo",         "cuMemcpy3DAsync",   "cuMemcpyDtoD",        "cuMemcpyDtoDAsync",
    "cuMemcpyDtoH",         "cuMemcpyDtoHAsync", "cuMemcpyHtoD",        "cuMemcpyHtoDAsync",
    "cuMemsetD8",           "cuMemsetD16",       "cuMemsetD32",         "cuMemsetD2D8",
    "cuMemsetD2D16",        "cuMemsetD2D32"};

bool is_old(const char* symbol) {
  return std::any_of(std::begin(kOld), std::end(kOld), [&](const char* old) { return !std::strcmp(old, symbol); });
}

// Decoders of calls that reach memory, work or progress in ways that this driver has not, and of settings.
bool may_be_missing(const Entry& call) {
  for (const char* decoder : {"Opaque", "Hidden", "External", "Setting", "TensorMap", "Decompress", "GraphChange",
                              "GreenContextEnd", "DefaultPool", "Texture", "TextureReference", "MemoryHandle"}) {
    if (!std::strcmp(call.decoder, decoder)) return true;
  }
  return is_old(call.symbol) || !std::strcmp(call.symbol, "cuIpcCloseMemHandle") || std::strstr(call.symbol, "Array");
}

// Those of the graphics headers are in few drivers.
bool is_graphics(const char* symbol) {
  for (const char* part : {"cuGL", "cuEGL", "cuGraphicsGL", "cuGraphicsEGL", "cuGraphicsVDPAU", "Egl", "EGL"}) {
    if (std::strstr(symbol, part)) return true;
  }
  return false;
}

TEST(Coverage, EveryInterceptedCallThatIsDecodedIsImplemented) {
  for (const Entry& call : kCalls) {
    EXPECT_TRUE(is_graphics(call.symbol) || dlsym(RTLD_DEFAULT, call.symbol)) << call.symbol;
    EXPECT_TRUE(may_be_missing(call) || simcuda_implements(call.symbol)) << call.symbol;
  }
}

TEST(Coverage, TheRestIsNeverASuccess) {
  using NoArguments = CUresult (*)();
  OK(cuInit(0));
  int stubs = 0;
  for (const Entry& call : kCalls) {
    if (simcuda_implements(call.symbol) || is_graphics(call.symbol)) continue;
    const std::uint64_t before = simcuda_unimplemented_calls();
    EXPECT_EQ(reinterpret_cast<NoArguments>(dlsym(RTLD_DEFAULT, call.symbol))(), CUDA_ERROR_NOT_SUPPORTED)
        << call.symbol;
    EXPECT_EQ(simcuda_unimplemented_calls(), before + 1);
    ++stubs;
  }
  EXPECT_GT(stubs, 0);
  EXPECT_FALSE(simcuda_implements("cuTensorMapEncodeIm2col"));
  EXPECT_FALSE(simcuda_implements("no such call"));
}

}  // namespace
