// What the kernel refuses from a moment on, by seccomp: it takes no privilege and no other library, holds for every
// thread, and cannot be got around. Linux on x86-64.
#pragma once

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace fault_filters {

using Rules = std::vector<sock_filter>;

inline sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset));
}
inline std::size_t argument(int index) {
  return offsetof(seccomp_data, args) + sizeof(std::uint64_t) * static_cast<std::size_t>(index);
}
inline sock_filter answer(int error) {
  return BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error));
}

inline void refuse(Rules& rules, long call, int error) {
  rules.push_back(load(offsetof(seccomp_data, nr)));
  rules.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
  rules.push_back(answer(error));
}

// Where the argument has any of these bits.
inline void refuse_flags(Rules& rules, long call, int index, unsigned bits, int error) {
  rules.push_back(load(offsetof(seccomp_data, nr)));
  rules.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 3));
  rules.push_back(load(argument(index)));
  rules.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1));
  rules.push_back(answer(error));
}

inline void apply(Rules rules) {
  rules.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(rules.size()), rules.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0)
    return;
  std::perror("seccomp");
  std::_Exit(4);
}

}  // namespace fault_filters

// No thread is made any more.
inline void refuse_threads() {
  fault_filters::Rules rules;
  fault_filters::refuse(rules, SYS_clone3, ENOSYS);  // its flags are in memory: libc takes the older call instead
  fault_filters::refuse_flags(rules, SYS_clone, 0, CLONE_THREAD, EAGAIN);
  fault_filters::apply(rules);
}

// No file, nor folder, is made any more, nor is one opened to be written.
inline void refuse_new_files(int error) {
  fault_filters::Rules rules;
  constexpr unsigned kWrites = O_CREAT | O_WRONLY | O_RDWR;
  fault_filters::refuse_flags(rules, SYS_openat, 2, O_CREAT, error);
  fault_filters::refuse_flags(rules, SYS_open, 1, O_CREAT, error);
  if (error == EROFS) {
    fault_filters::refuse_flags(rules, SYS_openat, 2, kWrites, error);
    fault_filters::refuse_flags(rules, SYS_open, 1, kWrites, error);
  }
  for (const long call : {SYS_creat, SYS_mkdir, SYS_mkdirat, SYS_rename, SYS_renameat, SYS_renameat2, SYS_link,
                          SYS_linkat, SYS_symlink, SYS_symlinkat})
    fault_filters::refuse(rules, call, error);
  fault_filters::apply(rules);
}

// No descriptor is given any more.
inline void refuse_descriptors(int error) {
  fault_filters::Rules rules;
  for (const long call : {SYS_open, SYS_openat, SYS_openat2, SYS_creat, SYS_dup, SYS_dup2, SYS_dup3, SYS_pipe,
                          SYS_pipe2, SYS_socket, SYS_memfd_create, SYS_eventfd2, SYS_epoll_create1})
    fault_filters::refuse(rules, call, error);
  fault_filters::apply(rules);
}

// No write comes through any more but those of the program's own file and the first three descriptors.
inline void refuse_writes(int own, int error) {
  fault_filters::Rules rules;
  for (const long call : {SYS_write, SYS_writev, SYS_pwrite64, SYS_pwritev}) {
    rules.push_back(fault_filters::load(offsetof(seccomp_data, nr)));
    rules.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 4));
    rules.push_back(fault_filters::load(fault_filters::argument(0)));
    rules.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(own), 2, 0));
    rules.push_back(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 2, 0, 1));
    rules.push_back(fault_filters::answer(error));
  }
  fault_filters::apply(rules);
}
