// The addresses that machine code computes, as expressions.
//
// Values are those of single assignment form (sass_code/values.h); where ways meet stands a choice, where a loop begins
// one that leads back. What branches make sure of is put beside a value where it is used. A register has 32 bits, and
// an address two of them: sums whose carries go from one into the other are found again as sums of 64 bits. What is not
// known is unknown, never guessed. One thread; `kernel`, `flow` and `values` must outlive it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analyzer/kernel_code/sass_code/control_flow.h"
#include "analyzer/kernel_code/sass_code/kernel.h"
#include "analyzer/kernel_code/sass_code/local_words.h"
#include "analyzer/kernel_code/sass_code/values.h"
#include "analyzer/kernel_code/sass_expressions/conditions.h"
#include "analyzer/kernel_code/sass_expressions/expression_list.h"
#include "analyzer/kernel_code/sass_expressions/operands.h"

namespace nimble::code::sass {

class Addresses {
 public:
  Addresses(const Kernel& kernel, const ControlFlow& flow, const Values& values);

  // The address that an instruction names by this operand, of 64 bits, where the instruction runs.
  ExpressionId address(std::uint32_t instruction, const MemoryOperand& operand);

  // By what the loops count in which addresses were found that change from time to time.
  std::vector<ExpressionId> counters();

  // Where a comparison has its outcome; nothing where what it compares is not known.
  std::optional<ExpressionId> comparison(const Comparison& comparison, int depth = 0);

  // The sources of a choice, each with what is known where it comes from.
  struct Source {
    ValueId value = kNoValue;
    std::uint32_t from = kNoBlock;  // block
    std::optional<Fact> fact;
  };
  std::vector<Source> sources(ValueId choice) const;

  const ExpressionList& list() const { return list_; }
  ExpressionList& list() { return list_; }
  const Conditions& conditions() const { return conditions_; }
  const LocalWords& local_words() const { return local_words_; }

 private:
  // A value of 64 bits in two registers.
  struct Pair {
    ValueId low = kNoValue, high = kNoValue;
  };
  struct Halves {
    SourceOperand low, high;
  };

  // Of values that go back to values, by recursion: a thread's stack may be as small as 64 KiB, and one takes up to 2.
  static constexpr int kMostDepth = 16;

  // ---- of 32 bits (narrow.cpp) ----
  ExpressionId of(ValueId value, int depth);
  ExpressionId choice(ValueId value, int depth);
  ExpressionId written(ValueId value, int depth);
  ExpressionId arithmetic(std::uint32_t at, int depth);
  ExpressionId sum(std::uint32_t at, int depth);
  ExpressionId multiply(std::uint32_t at, int depth);
  ExpressionId shift(std::uint32_t at, int depth);
  ExpressionId logic(std::uint32_t at, int depth);
  ExpressionId select(std::uint32_t at, int depth);
  ExpressionId selected(std::uint32_t at, const SourceOperand& operand, ExpressionId id, bool is_first, int depth);
  ExpressionId permute(std::uint32_t at, int depth);
  ExpressionId special(std::uint32_t at);
  ExpressionId load(std::uint32_t at, ValueId value, unsigned index, int depth);
  ExpressionId constant(unsigned bank, std::int64_t offset, unsigned bytes, bool is_signed);
  ExpressionId number_at(std::uint32_t at, std::int64_t offset, unsigned bytes, bool is_signed, int depth);
  ExpressionId with_sign(ExpressionId id, unsigned bytes);
  ExpressionId of_other_lane(ExpressionId id);
  ExpressionId operand(std::uint32_t at, const SourceOperand& operand, int depth);
  ExpressionId plain(std::uint32_t at, const SourceOperand& operand, int depth);  // without its negation
  ExpressionId carry(Word word, unsigned predicate, unsigned negated);
  ExpressionId narrowed(std::uint32_t at, ValueId value, ExpressionId id, int depth);
  ExpressionId narrowed(std::span<const Comparison> comparisons, ValueId value, ExpressionId id, int depth);
  std::optional<std::pair<ValueId, std::int32_t>> sum_with_number(ValueId value) const;
  // The value where these hold together, which may be never.
  ExpressionId possible(std::span<const Comparison> comparisons, ExpressionId id, int depth);

  // ---- of 64 bits (wide.cpp) ----
  ExpressionId wide(Pair pair, int depth);
  ExpressionId wide_choice(Pair pair, int depth);
  ExpressionId wide_written(Pair pair, int depth);
  std::optional<ExpressionId> wide_param(std::uint32_t low, unsigned low_index, std::uint32_t high,
                                         unsigned high_index);
  std::optional<ExpressionId> wide_sum_above(ValueId low_half, std::uint32_t low, unsigned low_index,
                                             std::uint32_t high, int depth);
  std::optional<ExpressionId> wide_result(Pair pair, int depth);
  std::optional<ExpressionId> wide_param_at(std::uint32_t at, std::int64_t offset, int depth);
  std::optional<ExpressionId> wide_sum(Pair pair, int depth);
  std::optional<ExpressionId> wide_shifted_pair(std::uint32_t low, const SourceOperands& l, std::uint32_t high,
                                                const SourceOperands& h, int depth);
  std::optional<ExpressionId> wide_shifted_sum(std::uint32_t low, const SourceOperands& l, std::uint32_t high,
                                               const SourceOperands& h, int depth);
  std::optional<ExpressionId> wide_sum_with_upper_bits(std::uint32_t low, const SourceOperands& l, std::uint32_t high,
                                                       std::span<const SourceOperand> highs, int depth);
  bool addends(std::uint32_t at, const SourceOperands& from, std::array<SourceOperand, 3>& out, int depth);
  std::optional<ExpressionId> wide_shift(Pair pair, int depth);
  std::optional<ExpressionId> wide_extended(Pair pair, int depth);
  ExpressionId wide_operand(std::uint32_t low_at, const SourceOperand& low, std::uint32_t high_at,
                            const SourceOperand& high, int depth);
  ExpressionId wide_operand(std::uint32_t at, const SourceOperand& operand, int depth);
  ExpressionId joined(ExpressionId low, ExpressionId high);
  ExpressionId wide_narrowed(std::span<const Comparison> comparisons, Pair pair, ExpressionId id, int depth);
  bool is_sign_of(ValueId high, ValueId low) const;
  bool is_before(ValueId value, const Value& choice, int depth);
  bool is_same(std::uint32_t at, const SourceOperand& a, std::uint32_t other, const SourceOperand& b, int depth);
  bool is_same_lane(std::uint32_t low, std::uint32_t high) const;
  bool is_same_choice(std::uint32_t low, std::uint32_t high) const;
  const SourceOperand* moved(std::uint32_t at, const SourceOperands& from) const;
  int match(const SourceOperand& low, const SourceOperand& high) const;

  // ---- in local memory (local_memory.cpp) ----
  std::optional<std::vector<LocalWords::Stored>> kept(std::uint32_t at, unsigned index) const;
  ExpressionId loaded_back(std::uint32_t at, ValueId value, unsigned index, int depth);
  std::optional<ExpressionId> wide_loaded_back(std::uint32_t at, Pair pair, unsigned index, int depth);
  ExpressionId filled_at_any_time(ExpressionId choice, std::vector<ExpressionId> alternatives);

  // ---- division (division.cpp) ----
  std::optional<std::uint32_t> written_by(const SourceOperand& operand, std::string_view name) const;
  const SourceOperand* negated(std::uint32_t at, const SourceOperands& from) const;
  std::optional<ExpressionId> reciprocal_of(const SourceOperand& operand, int depth);
  ExpressionId bare(ExpressionId id) const;
  bool is_chosen_where(ExpressionId id, ExpressionRelation relation, bool is_signed,
                       const std::function<bool(ExpressionId)>& of_what) const;
  std::optional<ExpressionId> quotient_in(ExpressionId id, ExpressionId n, ExpressionId divisor, int depth) const;
  std::optional<ExpressionId> remainder(ExpressionId n, ExpressionId a, ExpressionId b, int depth);
  std::optional<ExpressionId> corrected(std::span<const ExpressionId> alternatives,
                                        std::span<const Comparison> comparisons, int depth);

  bool is_of_write(ValueId choice) const;
  std::vector<Comparison> conditions(ValueId choice, const Source& source);
  // What holds wherever what this instruction computes is computed.
  std::span<const Comparison> known_at(std::uint32_t instruction);
  // Which loop begins where the choice stands, plus one; 0 where none does.
  std::int64_t loop_of(ValueId choice) const;
  bool is_counter(ExpressionId choice) const;
  bool is_written_by(ValueId value, std::uint32_t& at, unsigned& index) const;

  const Kernel& kernel_;
  const ControlFlow& flow_;
  const Values& values_;
  ExpressionList list_;
  Conditions conditions_;
  const LocalWords local_words_;
  std::unordered_map<ValueId, ExpressionId> narrow_;
  std::unordered_map<std::uint64_t, ExpressionId> wide_;
  std::unordered_set<std::uint32_t> loops_;  // blocks that can be reached from themselves
};

}  // namespace nimble::code::sass
