// Children by every way there is, from a program that uses the GPU, and what came of them as one number.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

inline int wait_for(pid_t child) {
  int status = -1;
  pid_t got = 0;
  do got = ::waitpid(child, &status, 0);
  while (got < 0 && errno == EINTR);
  if (got != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// How many descriptors this process has, without the one that tells.
inline int count_descriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (!folder) return -1;
  int count = -1;
  while (const dirent* const entry = ::readdir(folder)) count += entry->d_name[0] != '.';
  ::closedir(folder);
  return count;
}

// Children that end at once, or fork in turn; also made by another thread, which has made no driver call.
inline int fork_children(int number) {
  int sum = 0;
  const auto each = [&](auto leave) {
    const pid_t child = ::fork();
    if (child == 0) leave();
    sum = sum * 7 + wait_for(child);
  };
  each([] { ::_exit(3); });
  each([] { std::exit(4); });
  each([] { std::quick_exit(5); });
  each([] {
    const pid_t grandchild = ::fork();
    if (grandchild == 0) std::exit(6);
    ::_exit(wait_for(grandchild));
  });
  each([] { std::abort(); });
  const auto raw = static_cast<pid_t>(::syscall(SYS_fork));
  if (raw == 0) ::_exit(7);
  sum = sum * 7 + wait_for(raw);
  if (number % 16 == 3) {
    std::thread([&] { each([] { ::_exit(8); }); }).join();
    std::thread([&] { each([] { std::exit(9); }); }).join();
  }
  return sum;
}

// In functions of their own: nothing of the caller's is in registers that a child of vfork could change.
[[gnu::noinline]] inline int status_of_vfork() {
  const pid_t child = ::vfork();
  if (child == 0) ::_exit(3);
  return wait_for(child);
}
[[gnu::noinline]] inline int status_of_vforked_shell() {
  const pid_t child = ::vfork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", "exit 4", nullptr);
    ::_exit(127);
  }
  return wait_for(child);
}

inline int spawn_children() {
  int sum = status_of_vfork();
  sum = sum * 7 + status_of_vforked_shell();
  pid_t spawned = 0;
  char name[] = "sh", option[] = "-c", script[] = "ls /proc/self/fd | wc -l | { read n; exit $n; }";
  char* arguments[] = {name, option, script, nullptr};
  if (::posix_spawn(&spawned, "/bin/sh", nullptr, nullptr, arguments, environ) == 0) sum = sum * 7 + wait_for(spawned);
  sum = sum * 7 + std::system("exit 5");
  if (FILE* const pipe = ::popen("echo 6", "r")) {
    int told = 0;
    while ((told = std::fgetc(pipe)) == EOF && std::ferror(pipe) && errno == EINTR) std::clearerr(pipe);
    sum = sum * 7 + told;
    ::pclose(pipe);
  }
  return sum;
}

// A child that becomes this program once more, which uses the GPU for itself.
inline int exec_child(const char* file) {
  const std::string own = std::string(file) + ".child";
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "faults", own.c_str(), "child", nullptr);
    ::_exit(127);
  }
  return wait_for(child);
}
