// Signals at threads that are not the program's own, and at the process as a whole. A handler of the program's runs in
// the program's threads alone, and what waits for a signal gets it.
#pragma once

#include <cuda.h>
#include <dirent.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>

class Signals {
 public:
  static void install(bool restarts) {
    own_ = static_cast<pid_t>(::syscall(SYS_gettid));
    for (const int number : kNumbers) {
      struct sigaction action {};
      action.sa_handler = handle;
      action.sa_flags = restarts ? SA_RESTART : 0;
      ::sigaction(number, &action, nullptr);
    }
  }

  static void start_timer() {
    install(false);
    const itimerval often = {{0, 150}, {0, 150}};
    ::setitimer(ITIMER_PROF, &often, nullptr);
    ::setitimer(ITIMER_REAL, &often, nullptr);
  }

  // One of each at every thread but this one.
  static void at_others() {
    DIR* const tasks = ::opendir("/proc/self/task");
    if (!tasks) return;
    while (const dirent* const task = ::readdir(tasks)) {
      const int thread = std::atoi(task->d_name);
      if (thread == 0 || thread == own_) continue;
      for (const int number : kNumbers) ::syscall(SYS_tgkill, ::getpid(), thread, number);
    }
    ::closedir(tasks);
  }

  // Blocked in this thread, the only one of the program: they stay with the process until this thread asks.
  static void at_process(CUstream stream) {
    sigset_t set, before;
    sigemptyset(&set);
    for (const int number : kNumbers) sigaddset(&set, number);
    ::pthread_sigmask(SIG_BLOCK, &set, &before);
    for (const int number : kNumbers) {
      ::kill(::getpid(), number);
      ::cuStreamSynchronize(stream);
      const timespec moment = {0, 2'000'000};
      ::nanosleep(&moment, nullptr);
      sigset_t one;
      sigemptyset(&one);
      sigaddset(&one, number);
      const timespec none = {0, 0};
      if (::sigtimedwait(&one, nullptr, &none) != number) ++lost_;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  static int handled_elsewhere() { return elsewhere_.load(); }
  static int lost() { return lost_; }

 private:
  static constexpr int kNumbers[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGPROF, SIGVTALRM, SIGCHLD, SIGIO, SIGURG, SIGHUP};

  static void handle(int) {
    const int error = errno;
    if (static_cast<pid_t>(::syscall(SYS_gettid)) != own_) elsewhere_.fetch_add(1);
    errno = error;
  }

  static inline pid_t own_ = 0;
  static inline std::atomic<int> elsewhere_{0};
  static inline int lost_ = 0;
};
