// Machine code in static single assignment form: what each instruction reads, as the values that may be there.
//
// A value is what one instruction puts into one register; or a choice, where ways meet, among what comes from each; or
// what a register holds when the kernel begins. What an instruction writes under a condition is a choice, too: of that,
// and of what was there; and whoever reads it under the same condition, or the opposite one, reads the one or the
// other. A copy is the value that it copies, for whoever reads it, and so is what is loaded
// back from local memory, where that is always the same. Found from the places that read (M. Braun et al.,
// Simple and Efficient Construction of Static Single Assignment Form, CC 2013), so what is never read is not there. A
// register that a callee does not write is the caller's after the call; one that it writes is a choice there, for what
// two calls write is not the same. Owns all it has; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analyzer/kernel_code/sass_code/control_flow.h"
#include "analyzer/kernel_code/sass_code/kernel.h"

namespace nimble::code::sass {

using ValueId = std::uint32_t;
inline constexpr ValueId kNoValue = 0xffffffffu;

struct Value {
  enum class Kind : std::uint8_t { initial, written, choice };
  Kind kind = Kind::initial;
  std::uint32_t variable = 0;
  std::uint32_t instruction = 0;       // by which it is written; choice: before which, or of what it writes, it stands
  std::uint32_t first = 0, count = 0;  // choice: of these, in Values::choices
  // Choice of what was written under a condition, the first, and what was there, the second: the first where that
  // predicate has this value.
  ValueId predicate = kNoValue;
  bool if_true = false;
};

class Values {
 public:
  Values(const Kernel& kernel, const ControlFlow& flow);

  std::span<const Value> all() const { return values_; }
  std::span<const ValueId> choices(ValueId id) const {
    return std::span(choices_).subspan(values_[id].first, values_[id].count);
  }
  // What an instruction reads, register by register, in the order of Instruction::read; and what it writes.
  std::span<const ValueId> read(std::uint32_t instruction) const { return of(instruction, reads_); }
  std::span<const ValueId> written(std::uint32_t instruction) const { return of(instruction, writes_); }
  // What an instruction reads at that place, from the first register on; empty where that is none.
  std::span<const ValueId> read(std::uint32_t instruction, const Registers& registers) const;
  // Which function begins where this choice stands; kNoBlock where none does. The sources of such a choice begin with
  // those of the function's callers, in their order.
  std::uint32_t begins_function(ValueId choice) const;
  std::span<const std::uint32_t> callers(std::uint32_t function) const { return callers_[function]; }
  // What has to hold for an instruction to run: that this predicate has this value; kNoValue where it always runs.
  struct Fact {
    ValueId predicate = kNoValue;
    bool is_true = false;
  };
  const Fact& guard(std::uint32_t instruction) const { return guards_[instruction]; }
  // The same fact, told by the predicate that is always the opposite of this one, if there is one.
  Fact plain(Fact fact) const;
  // Whether what other instructions compute, elsewhere, is read as what this one does: since it is the same. What holds
  // where this one runs need not hold there.
  bool stands_for_others(std::uint32_t instruction) const { return stands_for_others_.contains(instruction); }
  // Instructions that were reached, in the order of the text.
  std::span<const std::uint32_t> order() const { return order_; }

 private:
  struct List {
    std::uint32_t first = 0, count = 0;
  };
  struct Lists {
    std::vector<List> of;  // by instruction
    std::vector<ValueId> ids;
  };

  std::span<const ValueId> of(std::uint32_t instruction, const Lists& lists) const {
    const List& list = lists.of[instruction];
    return std::span(lists.ids).subspan(list.first, list.count);
  }
  void write_block(std::uint32_t block);
  void read_block(std::uint32_t block);
  void fill_choices();
  // ---- after that, what is known to be the same is made so ----
  void join_equal_choices();
  void find_equal_predicates();
  void find_equal_results();
  void find_copies();
  void find_loaded_back(const Kernel& kernel);
  // What stands in a bit of a register: zero or one; a predicate's value, or its opposite where `is_one` is false; a
  // bit of another value. While a choice is looked at: what it is itself.
  struct Bit {
    enum class Kind : std::uint8_t { unknown, fixed, predicate, kept, itself };
    Kind kind = Kind::unknown;
    bool is_one = false;
    ValueId value = kNoValue;
    unsigned bit = 0;
    bool operator==(const Bit&) const = default;
  };
  ValueId register_at(std::uint32_t instruction, unsigned bit) const;
  Bit bit_by(ValueId predicate) const;
  static Bit chosen(Bit one, Bit other, const Fact& fact);
  Bit by_table(unsigned table, std::array<Bit, 3> bits, int depth);
  Bit bit_of_result(std::uint32_t instruction, unsigned bit, int depth);
  Bit settled(const Bit& bit, int depth);
  Bit bit_of(ValueId value, unsigned bit, int depth);
  Bit bit_of_written(ValueId value, unsigned bit, int depth);
  Bit bit_of_choice(ValueId choice, unsigned bit, int depth);
  Bit ask(std::uint32_t instruction, ValueId value, unsigned bit);
  static Bit predicate_of(const std::function<Bit(unsigned bit)>& bit_at);
  void make_same(ValueId predicate, const Bit& as);
  void use_representatives();
  void resolve_conditions();
  std::vector<Fact> facts_of(std::uint32_t block) const;
  ValueId resolve(ValueId value, std::span<const Fact> facts) const;
  ValueId representative(ValueId value) const;
  void make_same(ValueId value, ValueId as);
  ValueId at_entry(std::uint32_t block, std::uint32_t variable);
  ValueId at_end(std::uint32_t block, std::uint32_t variable);
  const ValueId* last_in(std::uint32_t block, std::uint32_t variable) const;
  bool is_one_way(std::uint32_t block, std::uint32_t variable, std::uint32_t& from) const;
  ValueId initial(std::uint32_t variable);

  const ControlFlow& flow_;
  std::vector<Value> values_;
  std::vector<ValueId> choices_;
  Lists reads_, writes_;
  std::vector<std::uint32_t> order_;
  std::vector<std::vector<std::uint32_t>> callers_;           // by function: blocks
  std::unordered_map<ValueId, std::uint32_t> entry_choices_;  // of which function
  std::unordered_set<ValueId> returned_;                      // choices of what a callee has written

  std::vector<ValueId> same_as_;                    // by value: one that it always is, or itself
  std::unordered_map<ValueId, ValueId> opposites_;  // of predicates: one that is always the opposite
  std::vector<Fact> guards_;                        // by instruction
  std::unordered_set<std::uint32_t> stands_for_others_;
  std::unordered_map<std::uint64_t, Bit> bits_;  // by value and bit, while predicates are looked for
  std::vector<std::uint64_t> in_terms_;          // of them: told in terms of what is looked at
  int steps_ = 0;

  // While it is built: per block, the last value of each variable that it writes, ascending; the
  // choices at blocks' entries, and those of which the sources are yet to be found.
  struct Last {
    std::uint32_t variable = 0;
    ValueId value = 0;
  };
  std::vector<std::vector<Last>> last_;
  std::unordered_map<std::uint64_t, ValueId> entries_;
  std::vector<std::pair<std::uint32_t, ValueId>> open_;
  std::unordered_map<std::uint32_t, ValueId> initial_;
};

}  // namespace nimble::code::sass
