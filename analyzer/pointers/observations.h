// What the trace's probes saw: for each launch that was compared, which of the objects that it names it wrote.
//
// Besides an object's address, libraries give kernels addresses just past its end: the end itself, or something
// computed that is never used. If such a word led nowhere, always at one distance from a pointer to the object, it is
// not a way to reach memory: not even in a launch where something happens to be there.
//
// An object is known by its allocation, not by its address alone: what was compared counts only if it is the object
// that was alive at that call. Refers to the trace and its objects, which must outlive it; immutable once built. Any
// thread. No errors.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "analyzer/memory/objects.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

// With fewer, nothing is concluded.
inline constexpr std::uint32_t kLeastObservations = 2;

// Words of a kernel's parameters that pointed into one object when it was written, through at least one of them.
struct WrittenWords {
  std::vector<std::uint32_t> at;     // bytes of the packed parameters, ascending
  std::vector<std::uint32_t> calls;  // the launches in which that was seen, ascending; at least one
};

// A word of a kernel's parameters, at this distance from the pointer in another word.
struct WordPastEnd {
  std::uint32_t at = 0, pointer = 0;  // bytes of the packed parameters
  std::uint64_t distance = 0;
  auto operator<=>(const WordPastEnd&) const = default;
};

// One launch.
struct Sight {
  bool whole = false;                 // all objects that it names were compared
  std::vector<std::uint8_t> written;  // per pointer of the call: whether its object was
};

class Observations {
 public:
  Observations(const Trace& trace, const ObjectTable& objects);

  // Whether any launch was compared.
  bool any() const { return any_; }
  // Whether this launch was, at least in part.
  bool compared(std::uint32_t call) const { return trace_.calls[call].probe != kNone; }
  // For a launch that was compared.
  Sight look(std::uint32_t call) const;
  // The words of a launch's parameters that are just past an object that another word points into, as far from that as
  // they were in at least two compared launches of the kernel in which they led nowhere. Ascending.
  std::vector<std::uint32_t> past_ends(std::uint32_t call) const;
  // Whether there were no addresses in the object when this launch was over.
  bool was_plain(std::uint32_t call, std::uint32_t object) const;
  // Whether that is so for all objects that it names: then it has followed no pointers in memory.
  bool was_plain(std::uint32_t call) const;
  // Whether it is so for all launches of a kernel that were compared, and these are enough. They need not be alike:
  // classes that are passed by value contain bytes that were never written.
  bool follows_nothing(std::uint32_t function) const {
    return launches_[function] >= kLeastObservations && plain_[function] == launches_[function];
  }
  // The launches that were compared, anywhere in the trace, that differ from this one only in the values of pointers
  // and of words just past objects: the same kernel in the same shape, with pointers in the same words of its
  // parameters, and everything else in them the same. Ascending; this one may be among them.
  std::vector<std::uint32_t> alike(std::uint32_t call) const;

  // What was seen of all launches of a kernel together, each set of words once, in the order in which it was first
  // seen.
  std::span<const WrittenWords> of(std::uint32_t function) const { return by_function_[function]; }
  // Whether a launch like this one stores none of the pointers that it is given. Its kernel was never seen to write
  // anything that looks like an address; and enough launches that are alike, and were compared completely, had none in
  // the memory that they name: so no pointer was stored again where it was already, nor at the end of a pointer that
  // they followed.
  bool stores_none(std::uint32_t call) const;
  // Launches of the kernel that were compared.
  std::uint32_t launches(std::uint32_t function) const { return launches_[function]; }

 private:
  // What two launches that are alike have in common, besides their kernel and its shape.
  struct Common {
    std::vector<std::uint32_t> pointers, past_ends;
    std::vector<std::uint8_t> params;  // with nothing in these words
    bool operator==(const Common&) const = default;
  };

  void gather(std::uint32_t call);
  void gather_past_ends(std::uint32_t call);
  bool is_past_end(std::uint32_t call, const WordPastEnd& word) const;
  Common common(std::uint32_t call) const;
  // A hash of everything in which two launches that are alike are the same.
  std::uint64_t likeness(std::uint32_t call) const;
  bool are_alike(std::uint32_t one, std::uint32_t other) const;

  const Trace& trace_;
  const ObjectTable& objects_;
  bool any_ = false;
  std::vector<std::vector<WrittenWords>> by_function_;
  std::vector<std::uint32_t> launches_, addresses_, plain_;
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> alike_;  // calls, by likeness()
  std::vector<std::map<WordPastEnd, std::uint32_t>> past_ends_;  // by function: in how many launches they led nowhere
};

}  // namespace nimble::analyzer
