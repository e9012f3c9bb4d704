// Starts threads of ours: detached, with no signals, and with a stack of a size that is ours to say. By default a
// thread has the stack that RLIMIT_STACK says, or the program by pthread_setattr_default_np: with 128 KiB there is no
// room for what runs on ours, and an unlimited one is 2 MiB or, where it is 64 GiB, no thread at all under RLIMIT_AS.
//
// Any thread may start one.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "nimble/internal/process/blocked_signals.h"

namespace nimble {

// The deepest that runs on one: a mangled name of a thousand characters takes 310 KiB to demangle.
inline constexpr std::size_t kOwnStackBytes = std::size_t{1} << 20;

namespace detail {

// What glibc takes of a stack for itself: thread-local variables lie there, and libraries may have many. It has no name
// in any header; other runtimes ask it, too. It is looked up when the library is loaded, not when a thread starts: that
// may be inside a driver call, and whoever loads a library whose constructor waits for it has the loader's lock.
inline const auto pthread_get_minstack =
    reinterpret_cast<std::size_t (*)(const pthread_attr_t*)>(::dlsym(RTLD_DEFAULT, "__pthread_get_minstack"));

// 0 where it is not to be found.
inline std::size_t stack_taken(const pthread_attr_t& attributes) {
  return pthread_get_minstack ? pthread_get_minstack(&attributes) : 0;
}

}  // namespace detail

// False where there can be no thread now: RLIMIT_NPROC, a full cgroup, no memory. Nothing is thrown.
template <class Run>
[[nodiscard]] bool start_own_thread(Run run) noexcept {
  std::unique_ptr<Run> owned(new (std::nothrow) Run(std::move(run)));
  pthread_attr_t attributes;
  if (!owned || pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kOwnStackBytes + detail::stack_taken(attributes));
  const auto body = [](void* own) -> void* {
    const std::unique_ptr<Run> mine(static_cast<Run*>(own));
    (*mine)();
    return nullptr;
  };
  const BlockedSignals blocked;
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, body, owned.get()) == 0;
  pthread_attr_destroy(&attributes);
  if (started) static_cast<void>(owned.release());
  return started;
}

}  // namespace nimble
