// Checks a launch's parameters for pointers that the schedule does not know.
//
// Where the recorded launch had a number or padding the live one may have a different one, but not a pointer: what a
// kernel reaches by it was not analyzed. Caches which words pointed nowhere, and in which state of memory near them,
// since asking the driver takes up to a microsecond. Not synchronised: the replayer's lock guards it. Allocates nothing
// once built.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "nimble/internal/address_probe.h"
#include "nimble/internal/schedule.h"
#include "replayer/bind/memory_map.h"
#include "replayer/bind/object_map.h"

namespace nimble {

inline std::uint64_t word_at(const std::uint8_t* bytes) {
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

class PointerWords {
 public:
  // Both must outlive it.
  PointerWords(const MemoryMap& memory, const ObjectMap& objects, Reach reach);

  struct Found {
    const char* reason = nullptr;  // a text that lives forever; null if no other word is a pointer
    std::uint32_t at = 0;          // byte of the packed parameters
    bool lasts = true;             // the answer holds as long as the memory map is unchanged
  };
  // Checks all words of the packed parameters except those that are pointers or numbers in the schedule.
  Found look(const ScheduleOp& op, const ScheduleFunction& function, const std::uint8_t* live);

 private:
  // A word that pointed nowhere, and in which state of memory near it.
  struct Nowhere {
    std::uint64_t word = 0, state = 0;
  };

  const char* look_at(const ScheduleOp& op, const std::uint8_t* live, std::uint64_t word, bool& lasts);
  bool leads_nowhere(std::uint64_t word);
  bool leads_to_memory(std::uint64_t word) const;
  bool stands_for_memory(const ScheduleOp& op, const std::uint8_t* live, std::uint64_t word) const;
  bool is_packed_pointer(std::uint64_t word) const {
    return could_be_address(word) && memory_.may_hold(word) && leads_to_memory(word);
  }

  const MemoryMap& memory_;
  const ObjectMap& objects_;
  const Reach reach_;
  std::vector<Nowhere> nowhere_;  // by a hash of the word
};

}  // namespace nimble
