// How an entry point of the driver API is written. One macro makes the exported symbol, its per-thread variant where
// there is one, and the common beginning and end: lock, count, inject errors, check that there is a context, log.
//
//   SIM_CALL(cuMemFree_v2, kContext, (CUdeviceptr pointer), (pointer)) {
//     ... `call` is the Call ...
//     return CUDA_SUCCESS;
//   }
//
// Each stands in the file of its subject; a new name also has a row in tests/simcuda/driver/entry_versions.def if it is
// versioned. Bodies run under the driver's mutex.
#pragma once

#include <cstdint>
#include <string>

#include "tests/simcuda/driver/driver.h"

namespace simcuda {

// What must be there before a call makes sense.
enum Need { kNothing, kInit, kContext };

// An entry point that does its work. Those that do not have no symbol here.
struct Symbol {
  const char* name;
  Symbol* next;
  std::uint64_t calls = 0;
  std::uint64_t fail_at = 0;  // the number of the call that fails; 0: none
  CUresult failure = CUDA_SUCCESS;

  explicit Symbol(const char* symbol_name);
  static Symbol* first;
  static Symbol* find(const char* name);
};

class Call {
 public:
  Call(Symbol& symbol, Need need, bool per_thread);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool refused() const { return result_ != CUDA_SUCCESS; }
  CUresult result() const { return result_; }
  CUresult leave(CUresult result) {
    result_ = result;
    return result;
  }

  // The stream that a handle stands for, which 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are among. Null where it is
  // not a stream.
  CUstream stream(CUstream handle) const;

  Driver& driver;
  CUcontext context = nullptr;  // the current one, where the call needs one
  bool per_thread;

 private:
  bool own_lock_ = false;
  Symbol& symbol_;
  CUresult result_ = CUDA_SUCCESS;
};

// Calls that a program should not make while it captures: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED then.
CUresult forbid_while_capturing(Call& call);

}  // namespace simcuda

#define SIM_EXPORT __attribute__((visibility("default")))
#define SIM_COMMA(...) __VA_OPT__(, ) __VA_ARGS__

#define SIM_SYMBOL(symbol, body, need, per_thread, params, args)        \
  static ::simcuda::Symbol symbol##_symbol{#symbol};                    \
  extern "C" SIM_EXPORT CUresult CUDAAPI symbol params {                \
    ::simcuda::Call call(symbol##_symbol, ::simcuda::need, per_thread); \
    if (call.refused()) return call.result();                           \
    try {                                                               \
      return call.leave(body(call SIM_COMMA args));                     \
    } catch (const std::bad_alloc&) {                                   \
      return call.leave(CUDA_ERROR_OUT_OF_MEMORY);                      \
    }                                                                   \
  }

#define SIM_CALL(symbol, need, params, args)                             \
  static CUresult symbol##_body(::simcuda::Call& call SIM_COMMA params); \
  SIM_SYMBOL(symbol, symbol##_body, need, false, params, args)           \
  static CUresult symbol##_body([[maybe_unused]] ::simcuda::Call& call SIM_COMMA params)

// The same with a per-thread default stream variant.
#define SIM_CALL_VARIANT(symbol, suffix, need, params, args)             \
  static CUresult symbol##_body(::simcuda::Call& call SIM_COMMA params); \
  SIM_SYMBOL(symbol, symbol##_body, need, false, params, args)           \
  SIM_SYMBOL(symbol##suffix, symbol##_body, need, true, params, args)    \
  static CUresult symbol##_body([[maybe_unused]] ::simcuda::Call& call SIM_COMMA params)

#define SIM_CALL_PTSZ(symbol, need, params, args) SIM_CALL_VARIANT(symbol, _ptsz, need, params, args)
#define SIM_CALL_PTDS(symbol, need, params, args) SIM_CALL_VARIANT(symbol, _ptds, need, params, args)

// A further symbol with the same body.
#define SIM_ALIAS(symbol, same_as, need, params, args) SIM_SYMBOL(symbol, same_as##_body, need, false, params, args)
#define SIM_ALIAS_PTSZ(symbol, same_as, need, params, args)     \
  SIM_SYMBOL(symbol, same_as##_body, need, false, params, args) \
  SIM_SYMBOL(symbol##_ptsz, same_as##_body, need, true, params, args)
