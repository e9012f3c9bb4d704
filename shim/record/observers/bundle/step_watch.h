// Detects at run time that a program repeats itself, and says where the next repeat begins.
//
// The recorder has no trace to look back on, as the analyzer's step finder has; this keeps of each op a hash of what it
// does, and the pointers that it names. A period that holds a launch is accepted once it has run three times in a row
// and names mostly the same long-lived memory each time, which tells the steps of a program from the equal layers of a
// network; otherwise it has to run six times, as with alternating buffers. If a longer period turns out later to hold
// much that the first does not (which was a solver's inner loop), or if only it names the same memory each time, it is
// proposed, too.
//
// Pure; not synchronised. Takes some hundred bytes per op, and stops after kMostOps ops. A period is judged once per
// repeat, so the total time is linear in the ops.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace nimble::shim {

class StepWatch {
 public:
  static constexpr std::uint32_t kMostOps = 1u << 20;
  explicit StepWatch(std::uint32_t most_ops = kMostOps) : most_ops_(most_ops) {}

  // A pointer among an op's arguments, and how many ops there were when its object was allocated.
  struct Pointer {
    std::uint64_t word = 0;
    std::uint32_t birth = 0;
  };

  struct Op {
    std::uint64_t signature = 0;
    bool launch = false;
    bool observed_before = false;  // the host could observe the GPU's progress between it and the previous op
  };
  // An op was put on a stream.
  void add(const Op& op, std::span<const Pointer> pointers);

  std::uint32_t ops() const { return static_cast<std::uint32_t>(signatures_.size()); }
  bool full() const { return ops() >= most_ops_; }

  // How many ops the step has that begins with the next op, if that has this signature; 0 where none does.
  std::uint32_t begins_with(std::uint64_t signature) const;
  // Whether all ops since have been what that period predicts.
  bool repeats(std::uint32_t period) const { return runs_.count(period) != 0; }
  // A step of that period was captured, or will not be: longer ones are proposed only if they hold much else.
  void settle(std::uint32_t period);

  // How many ops were revisited so far, to judge periods and to find where they begin. For tests.
  std::uint64_t looked_at() const { return looked_at_; }

 private:
  // A period that has predicted every op since it was first seen.
  struct Run {
    std::uint32_t length = 1;              // ops in a row that were those of a period before
    std::uint32_t judged = 0;              // at how many repeats it was last judged
    std::optional<std::uint32_t> first{};  // the first of its ops, once asked for
  };
  bool propose(std::uint32_t period, Run& run) const;
  bool same_memory(std::uint32_t period) const;
  bool holds_much_else(std::uint32_t period) const;
  void schedule(std::uint32_t period, Run& run);
  void look_for_periods();

  const std::uint32_t most_ops_;
  std::vector<std::uint64_t> signatures_;
  std::vector<std::uint64_t> prefix_{0};  // polynomial hashes of all prefixes
  std::vector<std::uint8_t> observed_;
  std::vector<std::uint32_t> launches_{0};  // before each op, and in total
  std::vector<Pointer> pointers_;
  std::vector<std::uint64_t> first_pointer_{0};  // per op and one more
  // The last op of a window, by the window's hash. Several lengths, since a step may hold no op just once.
  static constexpr std::uint32_t kWindows[] = {1, 8, 64, 512};
  std::unordered_map<std::uint64_t, std::uint32_t> last_[4];
  std::map<std::uint32_t, Run> runs_;     // by period
  std::uint32_t period_ = 0, begin_ = 0;  // what is proposed, beginning at this op
  std::uint32_t settled_ = 0;
  bool settled_same_memory_ = false;
  std::unordered_set<std::uint64_t> settled_signatures_;
  mutable std::uint64_t looked_at_ = 0;
};

}  // namespace nimble::shim
