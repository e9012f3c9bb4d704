// The exported entry points, expanded from the call table: each is one jump to its wrapper (shim/intercept/wrappers.cpp), through a
// pointer that the linker fills. Assembly, since C++ cannot give a template instance a C name without repeating its
// parameter list. All in one section, so that we can recognise a pointer to one of them (shim/driver/dlsym_hook.cpp).

#if !defined(__x86_64__)
#error "libnimble.so is built for x86-64 only: write the jumps of exports.S for this machine"
#endif

  .section nimble_exports, "ax", @progbits

#define NIMBLE_CALL(symbol, default_stream, decoder, host) \
  .globl symbol;                                           \
  .type symbol, @function;                                 \
  .p2align 4;                                              \
symbol:                                                    \
  endbr64;                                                 \
  jmp *nimble_wrapper_##symbol(%rip);                      \
  .size symbol, .-symbol;
#include "nimble/internal/driver_calls.def"

  .section .note.GNU-stack,"",@progbits
