#include "shim/process/roomy_stack.h"

#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "nimble/internal/process/own_thread.h"

// nimble_on_stack(run, argument, top): run(argument) with its frames below `top`. The frame pointer locates the
// caller's frame, also for the unwinder.
asm(R"(
  .text
  .globl nimble_on_stack
  .hidden nimble_on_stack
  .type nimble_on_stack, @function
  .p2align 4
nimble_on_stack:
  .cfi_startproc
  endbr64
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  movq %rdx, %rsp
  movq %rdi, %rax
  movq %rsi, %rdi
  call *%rax
  movq %rbp, %rsp
  popq %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .size nimble_on_stack, .-nimble_on_stack
)");

extern "C" void nimble_on_stack(void (*run)(void*), void* argument, void* top);

namespace nimble::shim::detail {

constinit thread_local Room t_room;

namespace {

constexpr std::size_t kGuard = std::size_t{64} << 10;  // below it, so that an overflow hits no other memory
constexpr std::size_t kMostSpare = 16;
constexpr std::size_t kUnlimited = std::size_t{8} << 20;  // of the first thread's stack: we rely on no more

// Never unmapped, except those returned when all slots are taken.
constinit std::atomic<std::byte*> g_spare[kMostSpare];

std::byte* take() noexcept {
  for (std::atomic<std::byte*>& place : g_spare) {
    if (!place.load(std::memory_order_relaxed)) continue;
    if (std::byte* const stack = place.exchange(nullptr, std::memory_order_acquire)) return stack;
  }
  void* const made = ::mmap(nullptr, kGuard + kOwnStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (made == MAP_FAILED) return nullptr;
  ::mprotect(made, kGuard, PROT_NONE);
  return static_cast<std::byte*>(made);
}

void give(std::byte* stack) noexcept {
  for (std::atomic<std::byte*>& place : g_spare) {
    std::byte* none = nullptr;
    if (place.compare_exchange_strong(none, stack, std::memory_order_release, std::memory_order_relaxed)) return;
  }
  ::munmap(stack, kGuard + kOwnStackBytes);
}

Room room_between(std::uintptr_t low, std::uintptr_t high) {
  return {low + kRoom, high - low > kRoom ? high - low - kRoom : 0, true};
}

// The first thread's stack grows to its limit, from what the kernel has put at its top. glibc would read
// /proc/self/maps.
Room room_of_first_thread() noexcept {
  const std::uintptr_t top = getauxval(AT_EXECFN);
  rlimit limit{};
  if (top == 0 || getrlimit(RLIMIT_STACK, &limit) != 0) return {};
  const std::size_t bytes = std::min<std::size_t>(limit.rlim_cur, kUnlimited);
  return top > bytes ? room_between(top - bytes, top) : Room{};
}

Room room_of_thread() noexcept {
  if (::getpid() == static_cast<pid_t>(::syscall(SYS_gettid))) return room_of_first_thread();
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* low = nullptr;
  std::size_t bytes = 0;
  const bool told = pthread_attr_getstack(&attributes, &low, &bytes) == 0;
  pthread_attr_destroy(&attributes);
  const auto begin = reinterpret_cast<std::uintptr_t>(low);
  return told ? room_between(begin, begin + bytes) : Room{};
}

// A stack in use, which meanwhile counts as the thread's.
class InUse {
 public:
  explicit InUse(std::byte* stack) : stack_(stack), before_(t_room) {
    const auto low = reinterpret_cast<std::uintptr_t>(stack + kGuard);
    // Nested uses have room, however much of it is left.
    t_room = {low, kOwnStackBytes, true};
  }
  ~InUse() {
    t_room = before_;
    give(stack_);
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

  std::byte* top() const { return stack_ + kGuard + kOwnStackBytes; }

 private:
  std::byte* const stack_;
  const Room before_;
};

}  // namespace

bool look_for_room() noexcept {
  if (t_room.is_known) return false;
  t_room = room_of_thread();
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return here - t_room.begin < t_room.bytes;
}

// If there is no memory for a stack, most work fits in what the thread has.
void run_on_own_stack(void (*run)(void*), void* argument) {
  std::byte* const stack = take();
  if (!stack) return run(argument);
  const InUse use(stack);
  nimble_on_stack(run, argument, use.top());
}

}  // namespace nimble::shim::detail
