// Where an address can come from, in machine code: the 8-byte words of the packed parameters come first, then these,
// then variables of the module.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "analyzer/kernel_code/sass_flow/root_sets.h"

namespace nimble::code::sass {

enum SpecialRoot : std::uint32_t {
  kRootOfMemory,   // it was loaded from global memory, or from constant variables
  kRootOfUnknown,  // from nowhere
  kRootOfNothing,  // from a register that nothing wrote before it was read
  kRootOfCode,     // it is the address of a function
  kRootOfLocal,    // the generic address of local memory
  kRootOfParams,   // the generic address of the parameters
  kRootOfShared,   // the generic address of shared memory
  kSpecialRoots,
};

// What may be in a register of 32 bits.
struct Content {
  RootSet low = kNoRoots, high = kNoRoots;  // the lower, the upper half of an address that comes from these
  RootSet from = kNoRoots;                  // something that was computed from these, and is no half of an address
  bool number = false;                      // it may be no half of an address at all
  bool zero = false;                        // it may be zero: no address, and nothing is added by it
  bool operator==(const Content&) const = default;
};

inline constexpr Content kNumber{kNoRoots, kNoRoots, kNoRoots, true};
// A null pointer is no address, and nothing may be computed from one: where a value is an address or zero, whoever
// reaches memory by it does so by the address.
inline constexpr Content kZero{kNoRoots, kNoRoots, kNoRoots, false, true};

// Contents of one kernel: joins them, and makes those of constants. One thread.
class Contents {
 public:
  explicit Contents(std::uint32_t words) : words_(words) {}

  Root special(SpecialRoot which) const { return words_ + which; }
  // A variable of the module, by its name; names must outlive this.
  Root variable(std::string_view name);
  std::uint32_t words() const { return words_; }
  const std::vector<std::string_view>& variables() const { return variables_; }
  Root first_variable() const { return words_ + kSpecialRoots; }

  RootSets& sets() { return sets_; }

  Content low(Root root) { return {sets_.of(root), kNoRoots, kNoRoots, false}; }
  Content high(Root root) { return {kNoRoots, sets_.of(root), kNoRoots, false}; }
  Content either_half(Root root) { return {sets_.of(root), sets_.of(root), kNoRoots, false}; }
  Content part(Root root) { return {kNoRoots, kNoRoots, sets_.of(root), true}; }

  // Whether it may be a half of an address that comes from somewhere: not only from what nothing wrote.
  bool is_address(const Content& a);
  // One or the other.
  Content either(const Content& a, const Content& b);
  // Their sum, or one masked by the other: an address where one of them is.
  Content sum(const Content& a, const Content& b);
  // A number that was computed from it.
  Content weak(const Content& a);

 private:
  const std::uint32_t words_;
  RootSets sets_;
  std::vector<std::string_view> variables_;
};

}  // namespace nimble::code::sass
