// Which allocation every address of a trace meant at the time of the call.
//
// An Object is one allocation, from the call that made it to the call that ended it: the same address allocated again
// is another object. An ObjectTable owns the objects of a whole trace and, for each call that names memory, the
// pointers found in it; once built it does not change, so threads may share it. The trace must only outlive the
// construction. Addresses and sizes are bytes. No errors: this only looks up what the trace says about addresses.
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
  std::uint32_t context = kNone;  // its end also ends the object; kNone if it is not known
  std::uint32_t birth = kNone;    // index into Trace::calls
  std::uint32_t death = kNone;    // likewise; kNone if it outlived the trace
};

// An address in a call that was inside a live object. `at` says where in the call it is: for a launch the byte in the
// packed parameters; kAtDst or kAtSrc for copies and sets; 0 for allocations and frees, which name the object itself;
// for an op with a list of accesses the place in the list; for a graph launch the place in the graph's list, followed
// by the bytes of its kernels' packed parameters, one kernel after another. From kAtWords on: the words that a copy
// carries (TraceCall::words), by their place in the list. From kAtGlobals on: the variables that a launched kernel
// touches by its code (KernelProof::globals), by their place in that list.
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

  // Appends the objects of any time that have a byte from `first` to before `last`, in no order.
  void find_meeting(std::uint64_t first, std::uint64_t last, std::vector<std::uint32_t>& found) const;

  // The pointers in call `index` of the trace, in the order of `at`. If the call says how much it touches, an address
  // only counts if all of that is inside the object.
  std::span<const PointerWord> pointers(std::uint32_t index) const {
    return {pointers_.data() + first_[index], pointers_.data() + first_[index + 1]};
  }

  // The words of a launch, or of the kernels of a graph launch, that may lead to this object although they are not
  // pointers into it. It is not known what the kernel makes of such a word, whether or not there is a pointer in the
  // same place. `offset` is meaningless. By `at`, which ascends:
  //   - the end of an object that no other word of the kernel points to, if there is no other object there: the first
  //     byte past it, from which a kernel may go backwards;
  //   - an address a little before an object, inside another one or none: arrays that are counted from one, or that
  //     have a halo;
  //   - an address inside an object at a place where pointers are not aligned, as in packed classes.
  std::span<const PointerWord> unsure(std::uint32_t index) const {
    const auto found = unsure_.find(index);
    return found == unsure_.end() ? std::span<const PointerWord>() : std::span(found->second);
  }

 private:
  void sort_by_base();
  std::uint64_t set_farthest_ends(std::size_t begin, std::size_t end);
  void find_meeting_in(std::size_t begin, std::size_t end, std::uint64_t first, std::uint64_t last,
                       std::vector<std::uint32_t>& found) const;

  std::vector<Object> objects_;
  // By base: the object, and where the last one of its subtree ends. An interval tree (Cormen et al., Introduction to
  // Algorithms, 14.3) in an array: the middle of a range is the root of the tree of that range.
  struct Place {
    std::uint64_t base = 0, farthest_end = 0;
    std::uint32_t object = kNone;
  };
  std::vector<Place> places_;
  std::vector<std::uint64_t> first_;  // per call and one more: where its pointers begin
  std::vector<PointerWord> pointers_;
  std::unordered_map<std::uint32_t, std::vector<PointerWord>> unsure_;  // by launch
};

// The 8-byte word at byte `at` of packed parameters; bytes past their end are 0.
std::uint64_t word_at(const std::vector<std::uint8_t>& params, std::uint32_t at);

// How far a region of `height` rows reaches, from its first byte to one past its last.
inline std::uint64_t extent_of(const TraceRegion& region, std::uint64_t width, std::uint64_t height) {
  return (height - 1) * region.pitch + width;
}

}  // namespace nimble::analyzer
