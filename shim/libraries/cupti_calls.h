// CUPTI's functions by which a client begins, as libnimble.so exports them: before one of the program's begins,
// Nimble's own lets CUPTI go, since a process has room for one. Then the call goes on to the CUPTI that its caller
// would reach without us. So torch.profiler finds CUPTI free in a program that is being recorded.
//
// Any thread. No lock is held while the dynamic loader is called.
#pragma once

namespace nimble::shim {

inline constexpr const char *kCuptiSubscribe = "cuptiSubscribe", *kCuptiSubscribeV2 = "cuptiSubscribe_v2",
                            *kCuptiRegister = "cuptiActivityRegisterCallbacks";
inline constexpr const char* kCuptiCalls[] = {kCuptiSubscribe, kCuptiSubscribeV2, kCuptiRegister};

}  // namespace nimble::shim
