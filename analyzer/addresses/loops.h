// How often loops repeat, by the numbers that they count with, and so how far what they add up can get.
//
// A counter that goes by the same step within known ends cannot go on for longer than there is room for; what stands at
// the same loop's beginning, and begins anew wherever the counter does, repeats as often. One thread; refers to the
// expressions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "analyzer/addresses/range.h"
#include "nimble/internal/address_expressions.h"

namespace nimble::analyzer {

class Loops {
 public:
  // `used`: the expressions that count. `focus`: as in either(). `range` tells what is known of one.
  Loops(const Expressions& expressions, std::span<const std::uint32_t> used, std::uint32_t focus,
        std::function<const Range&(std::uint32_t)> range)
      : expressions_(expressions), used_(used), focus_(focus), range_(std::move(range)) {
    find_users();
    find_alignments();
  }

  // Ranges of choices at the beginning of loops, as the number of repetitions bounds them: expression, range.
  std::vector<std::pair<std::uint32_t, Range>> bounded() const;

 private:
  // What a choice is before the loop, and by how much it changes each time.
  struct Induction {
    Range first;
    Range::Number least = 0, most = 0;
    std::vector<std::uint32_t> back;  // what it becomes
    std::vector<bool> goes_on;        // of each alternative: it is computed from the choice
    unsigned alignment = 0;           // of what it is before
  };
  struct Step {
    Range::Number least = 0, most = 0;
  };
  // On the way from what a choice becomes back to it.
  struct Way {
    std::uint32_t choice = 0;
    std::vector<bool> leads;  // expressions that are computed from it
    std::vector<std::uint32_t> open;
    std::map<std::uint32_t, std::optional<Step>> known;
  };

  void find_users();
  void find_alignments();
  bool is_one_value(std::uint32_t expression) const;
  unsigned alignment(const Expression& each) const;
  std::optional<Induction> induction(std::uint32_t choice) const;
  std::vector<std::uint32_t> alternatives(std::uint32_t choice) const;
  std::vector<bool> computed_from(std::uint32_t choice) const;
  std::optional<Step> step(std::uint32_t from, Way& way) const;
  std::optional<Step> find_step(std::uint32_t from, Way& way) const;
  static bool begins_with(const Induction& counter, const Induction& other);
  std::optional<Range> until_equal(std::uint32_t choice, const Induction& induction) const;

  const Expressions& expressions_;
  const std::span<const std::uint32_t> used_;
  const std::uint32_t focus_;
  const std::function<const Range&(std::uint32_t)> range_;
  std::vector<std::uint32_t> users_begin_, users_;  // of each expression those that have it as an operand
  std::vector<unsigned> alignments_;                // of each: it is a multiple of 2 to the power of that
};

}  // namespace nimble::analyzer
