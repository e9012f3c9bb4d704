// Watches allocations for a program: each watch has a word that says whether one of its allocations has been released.
// So a program can launch work that reads them before it has checked whether it still should.
//
// A word is set before the driver is called, and stays. Any thread; a lock guards the table, under which the driver is
// not called. Owns the words.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <shared_mutex>
#include <span>
#include <vector>

#include "nimble/internal/call.h"

namespace nimble::shim {

class MemoryWatch {
 public:
  explicit MemoryWatch(CallContext& context) : context_(context) {}

  // Watches the allocations of the current context in which these addresses lie. Null if the driver knows none for one
  // of them. The word is valid until remove().
  const std::uint32_t* add(std::span<const std::uint64_t> addresses);
  // False if it is not such a word.
  bool remove(const std::uint32_t* gone);

  // The program is about to have memory released, or a context end.
  void ends(const Call& call) noexcept;

 private:
  struct Watched {
    std::uint32_t gone = 0;
    CUcontext context = nullptr;
    std::vector<std::uint64_t> places;  // the addresses, and where their allocations begin; ascending
  };

  CallContext& context_;
  mutable std::shared_mutex mutex_;
  std::list<Watched> watched_;
  std::atomic<bool> any_{false};
};

}  // namespace nimble::shim
