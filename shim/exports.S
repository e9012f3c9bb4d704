// The exported symbols, expanded from the call table: each is one jump to its wrapper (shim/wrappers.cpp), through a
// pointer that the linker fills. Assembly, since C++ cannot give a template instance a C name without repeating its
// parameter list. And dlsym, which must leave by a jump so that its caller stays its caller (shim/dlsym_hook.h).

#if !defined(__x86_64__)
#error "libnimble.so is built for x86-64 only: write the jumps of exports.S for this machine"
#endif

  .text

#define NIMBLE_CALL(symbol, default_stream, decoder, host) \
  .globl symbol;                                           \
  .type symbol, @function;                                 \
  .p2align 4;                                              \
symbol:                                                    \
  endbr64;                                                 \
  jmp *nimble_wrapper_##symbol(%rip);                      \
  .size symbol, .-symbol;
#include "nimble/driver_calls.def"

  .globl dlsym
  .type dlsym, @function
  .p2align 4
dlsym:
  endbr64
  pushq %rdi
  pushq %rsi
  subq $8, %rsp
  call nimble_dlsym_filter
  addq $8, %rsp
  popq %rsi
  popq %rdi
  testq %rax, %rax
  jnz 1f
  jmp *nimble_real_dlsym(%rip)
1:
  ret
  .size dlsym, .-dlsym

  .section .note.GNU-stack,"",@progbits
