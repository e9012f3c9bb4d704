// The operators new and delete of libnimble.so's own C++ code: malloc, and a reserve for unwinding.
//
// If memory runs out, the code that needs some throws, and its caller goes on without. Unwinding destroys objects, and
// some of them allocate for that (nlohmann::json keeps a list of what it has yet to destroy). A destructor may not
// throw: the process would end. So during unwinding, and where code asks for it
// (include/nimble/internal/process/memory_reserve.h), small requests that malloc refuses come from the reserve. It
// works like a stack: the last piece taken can be reused once it is freed, and destructors run in that order.
//
// Not exported: the program's C++ code has operators of its own. Any thread; no locks.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>

#include "nimble/internal/process/memory_reserve.h"

namespace {

constexpr std::size_t kReserveBytes = std::size_t{1} << 20, kAlignment = alignof(std::max_align_t);

alignas(kAlignment) unsigned char g_reserve[kReserveBytes];
std::atomic<std::size_t> g_taken{0};

struct Piece {
  std::size_t begin;  // of this head, in the reserve
  std::size_t end;
};
static_assert(sizeof(Piece) == kAlignment);

void* take(std::size_t bytes) noexcept {
  if (bytes > kReserveBytes / 2) return nullptr;
  const std::size_t whole = sizeof(Piece) + (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::size_t begin = g_taken.load(std::memory_order_relaxed);
  do {
    if (whole > kReserveBytes - begin) return nullptr;
  } while (!g_taken.compare_exchange_weak(begin, begin + whole, std::memory_order_acq_rel));
  auto* const head = new (g_reserve + begin) Piece{begin, begin + whole};
  return head + 1;
}

bool gave_back(void* memory) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(memory), first = reinterpret_cast<std::uintptr_t>(g_reserve);
  if (at - first >= kReserveBytes) return false;
  const Piece piece = *(static_cast<const Piece*>(memory) - 1);
  std::size_t last = piece.end;
  g_taken.compare_exchange_strong(last, piece.begin, std::memory_order_acq_rel);  // else it is leaked
  return true;
}

}  // namespace

void* operator new(std::size_t bytes) {
  if (void* const memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  if (std::uncaught_exceptions() != 0 || nimble::MemoryReserve::is_open()) {
    if (void* const memory = take(bytes)) return memory;
  }
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept {
  if (!gave_back(memory)) std::free(memory);
}

void* operator new[](std::size_t bytes) { return operator new(bytes); }
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
void operator delete[](void* memory, std::size_t) noexcept { operator delete(memory); }
