// Runs what libnimble.so does inside a call of the program's where there is room for it: on the thread's stack, as a
// call does, or, where that is small or is not known, on one of ours. Threads may have stacks of 16 KiB, and coroutines
// have some that the thread knows nothing of; reading an image's code, building a graph or analyzing one take more than
// the driver's own answer would have.
//
// It is the same thread all the while: its current context, its captures and its thread-locals. Exceptions pass. Stacks
// of ours are kept for the next that needs one. Any thread, inside another use as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace nimble::shim {

// What is left of a thread's stack has to be so much, or ours is taken.
inline constexpr std::size_t kRoom = std::size_t{512} << 10;

namespace detail {

// Where the thread has room: `begin` is so much above the low end of its stack, `bytes` what is above that. Without
// bytes until it is asked for, and in threads that have none.
struct Room {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool is_known = false;
};
extern constinit thread_local Room t_room __attribute__((tls_model("initial-exec")));

// Asks for this thread's stack, the first time; whether there is room. Out of line.
bool look_for_room() noexcept;
void run_on_own_stack(void (*run)(void*), void* argument);

}  // namespace detail

inline bool has_room() noexcept {
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (here - detail::t_room.begin < detail::t_room.bytes) [[likely]]
    return true;
  return detail::look_for_room();
}

// Calls `function`, and returns what it does.
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
