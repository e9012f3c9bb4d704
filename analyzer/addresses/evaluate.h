// How far from its pointers a launch gets: the ranges of a kernel's address expressions for the launch's own values.
//
// By abstract interpretation over ranges, to a fixed point; what grows without end is widened, and narrowed again by
// the conditions under which it is used (P. Cousot and R. Cousot, Static Determination of Dynamic Properties of
// Programs, 1976). Pure functions; any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "analyzer/addresses/range.h"
#include "nimble/internal/address_expressions.h"

namespace nimble::analyzer {

struct LaunchValues {
  std::span<const std::uint8_t> params;     // packed
  std::span<const std::uint32_t> pointers;  // words of them that are pointers, byte offsets, ascending
  std::array<std::uint32_t, 3> grid{}, block{};
};

// Bytes [first, last) from a pointer on.
struct Reach {
  std::int64_t first = 0, last = 0;
  bool indexed = false;  // beyond which an index that was loaded may lead: within the object
};

// A number among the parameters: its first byte, and how many there are.
struct NumberAt {
  std::uint32_t at = 0, bytes = 0;
  auto operator<=>(const NumberAt&) const = default;
};

// What answers for one launch rest on, and what they found that serves others.
class Trail {
 public:
  // What an index leads to: each `bytes` wide, from the byte `first` of the parameters to the one that begins at
  // `last`.
  struct Lookup {
    std::uint32_t first = 0, last = 0, bytes = 0;
    auto operator<=>(const Lookup&) const = default;
  };
  // Pointers, ascending, or numbers; besides pointers some that are null. Neither: it may be anything.
  struct Found {
    std::vector<std::uint32_t> pointers;
    Range numbers;
    bool has_numbers = false;
  };

  void rest_on(std::int64_t at, std::uint64_t bytes);
  // Whether an answer may be another one if these bytes were others, or a pointer, or none.
  bool rests_on(std::uint32_t at, std::uint32_t bytes) const;
  // The numbers that were taken from the parameters by an index.
  std::set<NumberAt> taken() const;

  std::map<Lookup, Found> lookups;

 private:
  std::vector<bool> pieces_;  // of 4 bytes, that are read
};

// Where the uses of a group get to, from the pointer in this word of the parameters, which is one of the group's;
// nothing if that has no bounds. An empty list where none of them is made. The group must be one of `extents`, which
// must be well formed (is_well_formed). `trail`, here and below: of earlier answers for the same launch, if any.
std::optional<std::vector<Reach>> reach(const AddressExtents& extents, const AddressGroup& group, std::uint32_t pointer,
                                        const LaunchValues& launch, Trail* trail = nullptr);

// The same where none of the group's words points anywhere: as numbers, they are all null, say. Addresses then are from
// zero on.
std::optional<std::vector<Reach>> reach_without_pointer(const AddressExtents& extents, const AddressGroup& group,
                                                        const LaunchValues& launch, Trail* trail = nullptr);

// What of the parameters addresses are made of, wherever they then lead to.
struct WordsTaken {
  bool anything = false;                                    // something is not understood, and may be made of any
  std::set<std::pair<std::uint32_t, std::uint32_t>> spans;  // bytes from the first to before the second

  void add(std::int64_t first, std::int64_t last);
  // Whether any of the 8 bytes from there on are among them.
  bool names(std::uint32_t word) const;
};

// Of a group's addresses in this launch. It holds for the word `focus`, which has to be one of the launch's pointers,
// and for all that no answer rests on.
WordsTaken words_taken(const AddressExtents& extents, const AddressGroup& group, std::uint32_t focus,
                       const LaunchValues& launch, Trail* trail = nullptr);

// Whether an expression may have a value at all in this launch: if not, what it stands for does not happen. What is not
// understood may.
bool may_happen(const AddressExtents& extents, std::uint32_t expression, const LaunchValues& launch,
                Trail* trail = nullptr);

// Whether all operands are there, of the bits that their operation takes, values are what the operation may have, and
// nothing but `either` leads back.
bool is_well_formed(const AddressExtents& extents);

// Those that are added to a group's pointers, or multiplied with what is: strides and sizes, not what is only compared
// with, divided by or shifted by, nor what is taken by an index. Ascending.
std::vector<NumberAt> numbers_added(const AddressExtents& extents, const AddressGroup& group);

// Whether expressions tell of what all of a group's addresses are made; else it may be all that may have come into
// them.
bool is_told(const AddressExtents& extents, const AddressGroup& group);

// What a group's addresses are computed from: 4-byte pieces of the parameters, pointers among them, ascending; and
// whether the sizes of the grid and its blocks are among it.
struct Sources {
  std::vector<std::uint32_t> params;  // without those that are taken by an index
  bool shape = false;
  bool looks_up = false;  // some are taken by an index: a launch tells which (known_launches.h)
};
Sources sources_of(const AddressExtents& extents, const AddressGroup& group);
// The same of one expression.
Sources sources_of(const AddressExtents& extents, std::uint32_t expression);

}  // namespace nimble::analyzer
