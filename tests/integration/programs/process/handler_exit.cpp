// A program that ends, or goes on in a child, while it holds what it holds.
//
//   handler_exit malloc   calls _exit in a handler that interrupts malloc and free at any place
//   handler_exit nodefer  likewise, with the signal not blocked (SA_NODEFER)
//   handler_exit stack    likewise, and the handler has a stack of its own (SA_ONSTACK)
//   handler_exit fork     ends, while its child prints a process id and waits for a line
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/integration/programs/common/driver.h"

int main(int count, char** arguments) {
  CHECK(cuInit(0));
  CUcontext context = nullptr;
  CHECK(cuCtxCreate(&context, nullptr, 0, 0));
  CUdeviceptr memory = 0;
  CHECK(cuMemAlloc(&memory, 256));
  CHECK(cuMemsetD8(memory, 1, 256));
  if (count > 1 && std::strcmp(arguments[1], "fork") == 0) {
    if (fork() != 0) _exit(0);
    // Only what POSIX allows in the child of a process with threads: one of them may have held malloc's lock.
    char text[16];
    char* begin = text + sizeof text;
    *--begin = '\n';
    for (pid_t rest = getpid(); rest > 0; rest /= 10) *--begin = static_cast<char>('0' + rest % 10);
    const ssize_t length = text + sizeof text - begin;
    _exit(write(STDOUT_FILENO, begin, static_cast<std::size_t>(length)) == length && read(STDIN_FILENO, text, 1) == 1
              ? 0
              : 1);
  }
  alignas(16) static char own_stack[64 << 10];
  const stack_t own{own_stack, 0, sizeof own_stack};
  struct sigaction action {};
  action.sa_handler = [](int) { _exit(0); };
  if (count > 1 && std::strcmp(arguments[1], "malloc") != 0) action.sa_flags = SA_NODEFER;
  if (count > 1 && std::strcmp(arguments[1], "stack") == 0 && sigaltstack(&own, nullptr) == 0)
    action.sa_flags |= SA_ONSTACK;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval soon{{0, 0}, {0, 20'000 + static_cast<int>(getpid()) % 997}};
  setitimer(ITIMER_REAL, &soon, nullptr);
  void* held[64] = {};
  for (unsigned random = 1;;) {
    random = random * 1103515245u + 12345u;
    void*& one = held[random >> 16 & 63];
    std::free(one);
    one = std::malloc(1100 + (random >> 8 & 0x3fff));
  }
}
