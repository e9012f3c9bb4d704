// Starts Nimble's own threads: detached, with all signals blocked, and with a stack of a chosen size. By default
// RLIMIT_STACK decides, or the program by pthread_setattr_default_np. Either can be too small for Nimble (128 KiB), or
// so large (64 GiB) that RLIMIT_AS lets no thread start; without a limit a thread gets 2 MiB.
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

// The deepest use: a mangled name of a thousand characters takes 310 KiB to demangle.
inline constexpr std::size_t kOwnStackBytes = std::size_t{1} << 20;

namespace detail {

// How much of a stack glibc takes for itself: thread-local variables lie there, and libraries may have many. No header
// declares it; other runtimes use it, too. Looked up when the library is loaded, not when a thread starts: that may be
// inside a driver call, while a thread that loads a library, whose constructor waits for us, holds the loader's lock.
inline const auto pthread_get_minstack =
    reinterpret_cast<std::size_t (*)(const pthread_attr_t*)>(::dlsym(RTLD_DEFAULT, "__pthread_get_minstack"));

// 0 if it is not found.
inline std::size_t stack_taken(const pthread_attr_t& attributes) {
  return pthread_get_minstack ? pthread_get_minstack(&attributes) : 0;
}

}  // namespace detail

// False if no thread can start now: RLIMIT_NPROC, a full cgroup, no memory. Does not throw.
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
