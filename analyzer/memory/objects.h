// Which allocation every address of a trace meant at the time of the call.
//
// An Object is one allocation, from the call that made it to the call that ended it: the same address allocated again
// is another object. An ObjectTable owns the objects of a whole trace and, for each call that names memory, the
// pointers found in it; once built it does not change, so threads may read it together. The trace must outlive its
// construction only. Addresses and sizes are bytes. No errors: whatever the trace says about addresses, this is a
// lookup.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "nimble/internal/trace.h"

namespace nimble::analyzer {

struct Object {
  std::uint64_t base = 0, size = 0;
  MemoryKind memory = MemoryKind::device;
  bool own_pool = false;
  std::uint32_t context = kNone;  // whose end ends it, too; kNone where that is not known
  std::uint32_t birth = kNone;    // index into Trace::calls
  std::uint32_t death = kNone;    // likewise; kNone where it outlived the trace
};

// An address in a call that lay inside a live object. `at` says where in the call it stood: for a launch the byte in
// the packed parameters; kAtDst or kAtSrc for copies and sets; 0 for allocations and frees, which name the object
// itself; for an op with a list of accesses the place in the list; for a graph launch the place in the graph's list,
// and behind it the bytes of its kernels' packed parameters, one kernel after another. From kAtWords on: the words that
// a copy carries (TraceCall::words), by their place in the list. From kAtGlobals on: the variables that a launched
// kernel touches by its code (KernelProof::globals), by their place in that list.
struct PointerWord {
  std::uint32_t at = 0;
  std::uint32_t object = kNone;
  std::uint64_t offset = 0;
};

inline constexpr std::uint32_t kAtDst = 0, kAtSrc = 1, kAtWords = 2, kAtGlobals = 1u << 30;

class ObjectTable {
 public:
  explicit ObjectTable(const Trace& trace);

  const std::vector<Object>& objects() const { return objects_; }

  // The pointers in call `index` of the trace, in the order of `at`. Where the call says how much it touches, an
  // address counts only where all of that lies inside the object.
  std::span<const PointerWord> pointers(std::uint32_t index) const {
    return {pointers_.data() + first_[index], pointers_.data() + first_[index + 1]};
  }

  // The words of a launch, or of the kernels of a graph launch, that may lead to this object though they do not point
  // into it as pointers do. Whether or not there is a pointer in the same place, nobody can tell what the kernel makes
  // of such a word. `offset` says nothing. By `at`, which ascends:
  //   - the end of an object to which no other word of the kernel points, and where no other object lies: the first
  //     byte behind it, from which a kernel may go backwards;
  //   - what is a little before an object, in another one or in none: where arrays are counted from one, or hang over;
  //   - an address inside an object that does not stand where pointers are aligned, as in packed classes.
  std::span<const PointerWord> unsure(std::uint32_t index) const {
    const auto found = unsure_.find(index);
    return found == unsure_.end() ? std::span<const PointerWord>() : std::span(found->second);
  }

 private:
  std::vector<Object> objects_;
  std::vector<std::uint64_t> first_;  // per call and one more: where its pointers begin
  std::vector<PointerWord> pointers_;
  std::unordered_map<std::uint32_t, std::vector<PointerWord>> unsure_;  // by launch
};

// The 8-byte word at byte `at` of packed parameters: what lies beyond their end is 0.
std::uint64_t word_at(const std::vector<std::uint8_t>& params, std::uint32_t at);

// How far a region of `height` rows reaches from its first byte to behind its last.
inline std::uint64_t extent_of(const TraceRegion& region, std::uint64_t width, std::uint64_t height) {
  return (height - 1) * region.pitch + width;
}

}  // namespace nimble::analyzer
