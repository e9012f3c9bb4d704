// Runs libnimble.so's work inside a call of the program on a stack with room for it: the thread's, as for any call, or
// one of ours if that is small or unknown. Threads may have stacks of 16 KiB, and coroutines have stacks that the
// thread does not know; reading an image's code, building a graph or analyzing one takes more than the driver itself
// would.
//
// It stays the same thread, with its current context, captures and thread-locals. Exceptions propagate. Our stacks are
// kept for the next use. Any thread; uses may nest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace nimble::shim {

// If less than this is left of a thread's stack, we use our own.
inline constexpr std::size_t kRoom = std::size_t{512} << 10;

namespace detail {

// Where the thread has room: `begin` is kRoom above the low end of its stack, `bytes` the size above that. Zero bytes
// until it is looked up, and in threads without room.
struct Room {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool is_known = false;
};
extern constinit thread_local Room t_room __attribute__((tls_model("initial-exec")));

// Looks this thread's stack up, the first time; whether there is room. Out of line.
bool look_for_room() noexcept;
void run_on_own_stack(void (*run)(void*), void* argument);

}  // namespace detail

inline bool has_room() noexcept {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (here - detail::t_room.begin < detail::t_room.bytes) [[likely]]
    return true;
  return detail::look_for_room();
}

// Calls `function`, and returns its result.
template <class Function>
std::invoke_result_t<Function&> with_room(Function&& function) {
  using Result = std::invoke_result_t<Function&>;
  if (has_room()) [[likely]]
    return function();
  using Plain = std::remove_reference_t<Function>;
  static_assert(!std::is_function_v<Plain>, "a lambda that calls it");
  if constexpr (std::is_void_v<Result>) {
    detail::run_on_own_stack([](void* own) { (*static_cast<Plain*>(own))(); }, std::addressof(function));
  } else {
    struct State {
      Plain& function;
      union {
        Result result;
      };
      explicit State(Plain& called) : function(called) {}
      ~State() {}
    } state(function);
    detail::run_on_own_stack(
        [](void* own) {
          auto& mine = *static_cast<State*>(own);
          std::construct_at(std::addressof(mine.result), mine.function());
        },
        &state);
    Result result = std::move(state.result);
    std::destroy_at(std::addressof(state.result));
    return result;
  }
}

}  // namespace nimble::shim
