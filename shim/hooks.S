// The exported functions that are not the driver's: dlsym, dlvsym and dlopen, which must leave by a jump so that their
// caller stays their caller (shim/dlsym_hook.h), and _exit (shim/session.cpp).

#if !defined(__x86_64__)
#error "libnimble.so is built for x86-64 only: write the jumps of hooks.S for this machine"
#endif

  .section nimble_exports, "ax", @progbits

.macro begin name
  .globl \name
  .type \name, @function
  .p2align 4
\name:
  endbr64
.endm

// A filter takes the arguments and the return address, and gives back two words: an answer, and whether it stands.
// Otherwise the next definition is asked, as if we were not there.
begin dlsym
  movq (%rsp), %rdx
  pushq %rdi
  pushq %rsi
  subq $8, %rsp
  call nimble_dlsym_filter
  addq $8, %rsp
  popq %rsi
  popq %rdi
  testq %rdx, %rdx
  jnz 1f
  jmp *nimble_next_dlsym(%rip)
1:
  ret
  .size dlsym, .-dlsym

begin dlvsym
  movq (%rsp), %rcx
  pushq %rdi
  pushq %rsi
  pushq %rdx
  call nimble_dlvsym_filter
  movq %rdx, %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  testq %rcx, %rcx
  jnz 1f
  jmp *nimble_next_dlvsym(%rip)
1:
  ret
  .size dlvsym, .-dlvsym

begin dlopen
  pushq %rdi
  subq $16, %rsp
  call nimble_dlopen_filter
  addq $16, %rsp
  popq %rdi
  movl %eax, %esi
  jmp *nimble_next_dlopen(%rip)
  .size dlopen, .-dlopen

begin _exit
  pushq %rdi
  call nimble_before_exit
  popq %rdi
  jmp *nimble_next_exit(%rip)
  .size _exit, .-_exit

  .globl _Exit
  .type _Exit, @function
  .set _Exit, _exit
  .size _Exit, .-_exit

  .section .note.GNU-stack,"",@progbits
