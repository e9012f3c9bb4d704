// What each value of a kernel may hold: runs the data-flow to its end, and says it of any operand.
//
// Shared memory is one place, local memory one for each of its words where they are known, and one for what is not.
// What was never put there is never taken from there. One thread; `kernel`, `flow` and `values` must outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analyzer/kernel_code/sass_code/control_flow.h"
#include "analyzer/kernel_code/sass_code/kernel.h"
#include "analyzer/kernel_code/sass_code/known_places.h"
#include "analyzer/kernel_code/sass_code/values.h"
#include "analyzer/kernel_code/sass_flow/roots.h"

namespace nimble::code::sass {

class ContentsFlow {
 public:
  ContentsFlow(const Kernel& kernel, const ControlFlow& flow, const Values& values);

  // False where it is too large.
  bool run();

  Contents& contents() { return contents_; }
  // What the address of an operand may be: its lower and its upper half.
  struct Address {
    Content low, high;
  };
  Address address(std::uint32_t instruction, const MemoryOperand& operand);
  // Whether it is one of the thread's or the block's own memory, whatever its lower half is: that is an offset in a
  // part of the address space that holds nothing else.
  bool is_own(const Address& address);
  // All that the instruction may put into memory there: what it reads that is no part of its addresses.
  Content stored(std::uint32_t instruction);
  const KnownPlaces& places() const { return places_; }
  const Content& of(ValueId value) const { return state_[value]; }
  // Whether it may be a half of an address that comes from there.
  bool may_come_from(const Content& content, Root root) {
    return contents_.sets().has(content.low, root) || contents_.sets().has(content.high, root);
  }
  // Whether an instruction of arithmetic has that from elsewhere than from the registers that it reads.
  bool brings(std::uint32_t instruction, Root root);
  // What lies in shared memory.
  const Content& shared() const { return shared_; }

 private:
  void find_users();
  void find_order();
  void apply(std::uint32_t instruction);
  void exchange(std::uint32_t instruction);
  void pass_on(ValueId value);
  void join(ValueId value, const Content& with);
  void join_memory(Content& place, const Content& with, std::vector<std::uint32_t>& readers);
  std::vector<Content> results(std::uint32_t instruction, unsigned count);
  std::optional<SpecialRoot> upper_half(std::uint32_t instruction) const;
  Content in_shared(std::uint32_t instruction, bool is_small);
  std::vector<Content> loaded(std::uint32_t instruction, const MemoryOperand& from, unsigned count);
  void store(std::uint32_t instruction, const MemoryOperand& to, const Content& what);
  Content in_local(std::uint32_t instruction, const MemoryOperand& from, unsigned index);
  void to_local(std::uint32_t instruction, const MemoryOperand& to, const Content& what);
  Content operand(std::uint32_t instruction, unsigned at, unsigned index) const;
  Content of_registers(std::uint32_t instruction, const Registers& registers, unsigned index) const;
  Content constant(std::uint32_t instruction, unsigned index);
  Content parameter(std::int64_t offset, unsigned bytes);
  Content any_parameter(unsigned bytes, unsigned index);
  Content symbol(const SymbolAt& symbol, unsigned index);
  void enqueue(std::uint32_t node);

  const Kernel& kernel_;
  const ControlFlow& flow_;
  const Values& values_;
  const KnownPlaces places_;
  Contents contents_;
  std::vector<Content> state_;                                 // by value
  std::vector<std::vector<std::uint32_t>> readers_, choices_;  // by value: instructions, and choices, that it goes into
  Content shared_, anywhere_local_, all_local_;
  std::map<std::int64_t, Content> local_;  // by word
  std::vector<std::uint32_t> shared_readers_, local_readers_;
  // What has to be looked at again, in the order of the text: a place for each instruction, and one for each value that
  // goes into choices.
  std::vector<std::uint32_t> order_, place_;  // node by place, place by node
  std::set<std::uint32_t> queue_;             // places
};

}  // namespace nimble::code::sass
