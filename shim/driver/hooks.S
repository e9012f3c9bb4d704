// The exported functions that are not the driver's: dlsym, dlvsym and dlopen, which must jump to the next definition so
// that it sees the original caller (shim/driver/dlsym_hook.h); _exit (shim/modes/session.cpp); and what sets limits
// (shim/driver/va_reservation.h).

#if !defined(__x86_64__)
#error "libnimble.so is built for x86-64 only: write the jumps of hooks.S for this machine"
#endif

  .section nimble_exports, "ax", @progbits

.macro begin name
  .globl \name
  .type \name, @function
  .p2align 4
\name:
  .cfi_startproc
  endbr64
.endm

.macro end name
  .cfi_endproc
  .size \name, .-\name
.endm

.macro save register
  pushq \register
  .cfi_adjust_cfa_offset 8
.endm

.macro restore register
  popq \register
  .cfi_adjust_cfa_offset -8
.endm

.macro reserve bytes
  subq $\bytes, %rsp
  .cfi_adjust_cfa_offset \bytes
.endm

.macro release bytes
  addq $\bytes, %rsp
  .cfi_adjust_cfa_offset -\bytes
.endm

// A filter takes the arguments and the return address, and returns two words: an answer, and whether it is final. If it
// is not, the next definition is called, as if we were not there.
begin dlsym
  movq (%rsp), %rdx
  save %rdi
  save %rsi
  reserve 8
  call nimble_dlsym_filter
  release 8
  restore %rsi
  restore %rdi
  testq %rdx, %rdx
  jnz 1f
  jmp *nimble_next_dlsym(%rip)
1:
  ret
  end dlsym

begin dlvsym
  movq (%rsp), %rcx
  save %rdi
  save %rsi
  save %rdx
  call nimble_dlvsym_filter
  movq %rdx, %rcx
  restore %rdx
  restore %rsi
  restore %rdi
  testq %rcx, %rcx
  jnz 1f
  jmp *nimble_next_dlvsym(%rip)
1:
  ret
  end dlvsym

begin dlopen
  save %rdi
  reserve 16
  call nimble_dlopen_filter
  release 16
  restore %rdi
  movl %eax, %esi
  jmp *nimble_next_dlopen(%rip)
  end dlopen

begin _exit
  save %rdi
  call nimble_before_exit
  restore %rdi
  jmp *nimble_next_exit(%rip)
  end _exit

// Each under both of its names, which on x86-64 are one function.
begin setrlimit
  save %rdi
  save %rsi
  reserve 8
  call nimble_before_limit
  release 8
  restore %rsi
  restore %rdi
  jmp *nimble_next_setrlimit(%rip)
  end setrlimit

// Nothing to do for another process.
begin prlimit
  save %rdi
  save %rsi
  save %rdx
  save %rcx
  reserve 8
  call nimble_before_limit_of
  release 8
  restore %rcx
  restore %rdx
  restore %rsi
  restore %rdi
  jmp *nimble_next_prlimit(%rip)
  end prlimit

  .globl setrlimit64
  .type setrlimit64, @function
  .set setrlimit64, setrlimit

  .globl prlimit64
  .type prlimit64, @function
  .set prlimit64, prlimit

  .globl _Exit
  .type _Exit, @function
  .set _Exit, _exit

  .section .note.GNU-stack,"",@progbits
