// Names of the functions of other libraries that libnimble.so exports (shim/libraries/), for lookups by name.
#pragma once

namespace nimble::shim {

inline constexpr const char *kCublasSetWorkspace = "cublasSetWorkspace_v2", *kCublasLtMatmul = "cublasLtMatmul";
inline constexpr const char* kCublasCalls[] = {kCublasSetWorkspace, kCublasLtMatmul};

inline constexpr const char *kCuptiSubscribe = "cuptiSubscribe", *kCuptiSubscribeV2 = "cuptiSubscribe_v2",
                            *kCuptiRegister = "cuptiActivityRegisterCallbacks";
inline constexpr const char* kCuptiCalls[] = {kCuptiSubscribe, kCuptiSubscribeV2, kCuptiRegister};

}  // namespace nimble::shim
