/* Stands in libnimble.so's place, and is in its host's way as FAULT_BREAK says: what a matrix of faults has to notice.
   Built without sanitizers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static int breaks(const char* what) {
  const char* const asked = getenv("FAULT_BREAK");
  return asked && strcmp(asked, what) == 0;
}

static void* wait_for_ever(void* nothing) {
  for (;;) pause();
  return nothing;
}

__attribute__((constructor)) static void start(void) {
  pthread_t thread;
  if (breaks("descriptor") && open("/dev/null", O_RDONLY) < 0) return;
  if (breaks("descriptor_high") && fcntl(open("/dev/null", O_RDONLY), F_DUPFD, 15) < 0) return;
  if (breaks("kept_open")) dup2(open("/dev/null", O_RDONLY), 100); /* goes on into children */
  if (breaks("address_space"))
    mmap(NULL, (size_t)1400 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (breaks("core"))
    memset(mmap(NULL, (size_t)160 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1,
           (size_t)160 << 20);
  if (breaks("thread")) pthread_create(&thread, NULL, wait_for_ever, NULL); /* signals are handled there */
  if (breaks("sigpipe")) signal(SIGPIPE, SIG_IGN);
  if (breaks("stderr")) { /* a log that goes wherever 2 leads */
    const char text[] = "what no one has asked for\n";
    if (write(2, text, sizeof text - 1) < 0) return;
  }
  if (breaks("file_size")) {
    static char much[300000];
    const int file = open("much", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (write(file, much, sizeof much) < 0) return;
    close(file);
  }
  if (breaks("trace")) {
    const int file = open("trace.json", O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (write(file, "[\n{", 3) < 0) return;
    close(file);
  }
}

__attribute__((destructor)) static void end(void) {
  if (breaks("stdout") && write(1, "more\n", 5) < 0) return;
  if (breaks("status")) _exit(0);
  if (breaks("killed")) raise(SIGTERM);
  if (breaks("hangs")) wait_for_ever(NULL);
}

/* A driver call that fails in the middle. */
int cuStreamSynchronize(void* stream) {
  static int (*next)(void*);
  static int count;
  if (!next) *(void**)&next = dlsym(RTLD_NEXT, "cuStreamSynchronize");
  return breaks("call") && ++count == 20 ? 2 : next(stream);
}
