// Lets libnimble.so load on systems older than the one that it is built on. glibc gave many functions a new version when
// it merged libpthread and libdl into libc (2.34), and a library built on such a system asks for that version, although
// the old one is the same function. Here each name means the old version, for the whole of libnimble.so, including the
// static C++ library. Functions that are entirely new are in glibc_floor.cpp; a test checks what remains.

  .text

.macro old name, version=GLIBC_2.2.5
  .symver nimble_old_\name, \name@\version
  .globl \name
  .hidden \name
  .type \name, @function
  .p2align 4
\name:
  endbr64
  jmp *nimble_old_\name@GOTPCREL(%rip)
  .size \name, .-\name
.endm

  old dladdr
  old dladdr1, GLIBC_2.3.3
  old dlclose
  old dlerror
  old __pthread_key_create
  old pthread_create
  old pthread_attr_getstack
  old pthread_attr_setstacksize
  old pthread_detach
  old pthread_getattr_np
  old pthread_getspecific
  old pthread_join
  old pthread_key_create
  old pthread_key_delete
  old pthread_mutex_trylock
  old pthread_once
  old pthread_rwlock_rdlock
  old pthread_rwlock_unlock
  old pthread_rwlock_wrlock
  old pthread_setspecific
  old pthread_sigmask

  .section .note.GNU-stack,"",@progbits
