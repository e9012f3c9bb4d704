/* A library that is preloaded after libnimble.so, and makes the host's memory run out for that one alone: allocations
   whose caller is code of libnimble.so, or of the C library on its behalf, fail, the FAULT_ALLOCATION-th and, unless
   FAULT_ONCE is set, all later ones. With FAULT_CALLER=libc only the latter count. How many there were is written into
   the file FAULT_COUNT at the end. The dynamic loader has its memory: a driver that is not set up yet needs some
   itself. Built without sanitizers. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

enum { kMostLibraries = 8, kMostFrames = 16 };
struct Code {
  uintptr_t begin, end;
};
static struct Code own_;                  /* of libnimble.so */
static struct Code libc_[kMostLibraries]; /* of the C library in its parts, and of this one */
static int libcs_;
static unsigned long first_;
static int once_, only_libc_;
static atomic_int begun_;
static atomic_ulong count_;

static int is_in(const struct Code* code, uintptr_t at) { return at >= code->begin && at < code->end; }

static int look(struct dl_phdr_info* info, size_t size, void* data) {
  static const char* const kLibc[] = {"/libc.so", "/libpthread.so", "/libgcc_s.so", "libfailing_host.so"};
  (void)size, (void)data;
  struct Code* code = strstr(info->dlpi_name, "libnimble.so") ? &own_ : NULL;
  for (size_t i = 0; i < sizeof kLibc / sizeof *kLibc; ++i)
    if (!code && libcs_ < kMostLibraries && strstr(info->dlpi_name, kLibc[i])) code = &libc_[libcs_++];
  for (int i = 0; code && i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
    code->begin = info->dlpi_addr + part->p_vaddr;
    code->end = code->begin + part->p_memsz;
  }
  return 0;
}

static int is_libc(uintptr_t at) {
  for (int i = 0; i < libcs_; ++i)
    if (is_in(&libc_[i], at)) return 1;
  return 0;
}

struct Walk {
  int frames, own;
};

static _Unwind_Reason_Code step(struct _Unwind_Context* context, void* data) {
  struct Walk* const walk = data;
  const uintptr_t at = (uintptr_t)_Unwind_GetIP(context);
  walk->own = is_in(&own_, at);
  return walk->own || !is_libc(at) || ++walk->frames == kMostFrames ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

/* Whether the C library allocates because libnimble.so called it. */
static int is_for_us(void) {
  static __thread int walks __attribute__((tls_model("initial-exec")));
  if (walks) return 0;
  struct Walk walk = {0, 0};
  walks = 1;
  _Unwind_Backtrace(step, &walk);
  walks = 0;
  return walk.own;
}

__attribute__((constructor)) static void start(void) {
  const char* const first = getenv("FAULT_ALLOCATION");
  first_ = first ? strtoul(first, NULL, 10) : 0;
  once_ = getenv("FAULT_ONCE") != NULL;
  only_libc_ = getenv("FAULT_CALLER") != NULL;
  dl_iterate_phdr(look, NULL);
}

__attribute__((destructor)) static void tell(void) {
  const char* const path = getenv("FAULT_COUNT");
  if (!path) return;
  char text[32];
  const int length = snprintf(text, sizeof text, "%lu\n", atomic_load(&count_));
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return;
  if (write(file, text, (size_t)length) < 0) unlink(path);
  close(file);
}

/* Called by the program where it begins. What fails for good fails from there on: a process in which no exception can
   be kept in memory, since there was none while its libraries were set up, does not come so far. One that fails once
   may be one of those, too. */
void fault_begins(void) { atomic_store(&begun_, 1); }

static int fails(const void* caller) {
  const uintptr_t at = (uintptr_t)caller;
  if (is_in(&own_, at) ? only_libc_ : !(is_libc(at) && is_for_us())) return 0;
  if (!once_ && !atomic_load(&begun_)) return 0;
  const unsigned long number = atomic_fetch_add(&count_, 1) + 1;
  if (first_ == 0 || number < first_ || (once_ && number != first_)) return 0;
  errno = ENOMEM;
  return 1;
}

void* malloc(size_t bytes) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  if (fails(__builtin_return_address(0))) return ENOMEM;
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}
