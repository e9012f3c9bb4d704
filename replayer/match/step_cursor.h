// How far the program has come in a step, on each stream and in total; and which kind of step this is assumed to be.
//
// On one stream ops come in the schedule's order. Across streams they may come in any order that the program's events
// allow, and in a different one each time, if several threads issue them. The kind of a step shows where kinds diverge:
// until then we predict the one that followed the last two kinds the last time. Owns its lists; allocates nothing once
// built. Op numbers are indices into Schedule::ops. Not synchronised: the replayer's lock guards it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nimble/internal/schedule.h"
#include "nimble/internal/step_paths.h"

namespace nimble {

class StepCursor {
 public:
  // `paths` must outlive this.
  StepCursor(const Schedule& schedule, const StepPaths& paths)
      : paths_(paths),
        stream_(schedule.ops.size()),
        came_(schedule.ops.size(), 0),
        kinds_(paths.kinds()),
        next_(schedule.streams.size(), 0),
        expected_(schedule.streams.size(), kNone),
        followed_by_((kinds_.size() + 1) * (kinds_.size() + 1), kNone) {
    for (std::uint32_t op = 0; op < stream_.size(); ++op) stream_[op] = schedule.ops[op].stream;
    for (std::uint32_t k = 0; k < kinds_.size(); ++k) {
      kinds_[k].ops.resize(schedule.streams.size());
      for (const std::uint32_t op : paths.ops(k)) kinds_[k].ops[stream_[op]].push_back(op);
      for (std::uint32_t other = 0; other < kinds_.size(); ++other) {
        kinds_[k].shared.push_back(paths.shared(k, other));
        kinds_[k].goes_on = kinds_[k].goes_on || (other != k && kinds_[k].shared.back() == paths.ops(k).size());
      }
    }
    take_for(0);
  }

  // Resets: no op of the step has come.
  void reset() {
    ++step_;
    count_ = frontier_ = 0;
    furthest_ = kNone;
    next_.assign(next_.size(), 0);
    take_for(guess());
  }
  bool begun() const { return count_ != 0; }
  // How many ops have come.
  std::uint32_t count() const { return static_cast<std::uint32_t>(count_); }
  // How many a step of the assumed kind has.
  std::uint32_t length() const { return static_cast<std::uint32_t>(ops_.size()); }
  // Whether the step is over, and no other kind continues it.
  bool complete() const { return count_ == ops_.size() && !kinds_[kind_].goes_on; }
  // Whether an op has come on the stream.
  bool begun(std::uint32_t stream) const { return next_[stream] != 0; }

  // The expected next op on the stream; kNone if the step has no more there.
  std::uint32_t next(std::uint32_t stream) const { return expected_[stream]; }
  // The same assuming this kind, which must be possible.
  std::uint32_t next(std::uint32_t kind, std::uint32_t stream) const {
    const std::vector<std::uint32_t>& ops = kinds_[kind].ops[stream];
    return next_[stream] < ops.size() ? ops[next_[stream]] : kNone;
  }

  // Whether exactly the ops before `op` have come on the stream.
  bool comes_between(std::uint32_t stream, std::uint32_t op) const {
    const std::vector<std::uint32_t>& ops = kinds_[kind_].ops[stream];
    const std::size_t next = next_[stream];
    return (next == 0 || ops[next - 1] < op) && (next == ops.size() || ops[next] > op);
  }

  // The op has come: it must be the next one on its stream.
  void advance(std::uint32_t op) {
    const std::uint32_t stream = stream_[op];
    ++count_;
    ++next_[stream];
    expected_[stream] = next(kind_, stream);
    came_[op] = step_;
    if (furthest_ == kNone || op > furthest_) furthest_ = op;
    find_frontier();
  }
  // The first op that has not come; kNone, which is larger than any, if all have.
  std::uint32_t frontier() const { return first_missing_; }

  // --- Kinds.

  std::uint32_t kinds() const { return static_cast<std::uint32_t>(kinds_.size()); }
  std::uint32_t kind() const { return kind_; }
  // Whether some other kind of step begins with all of this one.
  bool goes_on(std::uint32_t kind) const { return kinds_[kind].goes_on; }
  // Whether the ops so far may belong to a step of this kind.
  bool may_be(std::uint32_t kind) const {
    if (furthest_ == kNone || kind == kind_) return true;
    const std::uint32_t shared = kinds_[kind_].shared[kind];
    return shared != 0 && furthest_ <= paths_.ops(kind)[shared - 1];
  }
  void take_for(std::uint32_t kind) {
    kind_ = kind;
    ops_ = paths_.ops(kind);
    for (std::uint32_t stream = 0; stream < expected_.size(); ++stream) expected_[stream] = next(kind, stream);
    find_frontier();
  }
  // The kind whose ops have all come, and no others; kNone for none.
  std::uint32_t whole() const {
    for (std::uint32_t k = 0; k < kinds_.size(); ++k)
      if (count_ == paths_.ops(k).size() && furthest_ == paths_.ops(k).back() && may_be(k)) return k;
    return kNone;
  }
  // The step was whole.
  void remember() {
    followed_by_[place()] = kind_;
    before_last_ = last_;
    last_ = kind_;
  }

 private:
  struct Kind {
    std::vector<std::vector<std::uint32_t>> ops;  // by stream
    std::vector<std::uint32_t> shared;            // by kind: the length of the common beginning
    bool goes_on = false;                         // some other kind has all of its ops, and more
  };

  // The common beginning comes first, so progress in one kind holds for the other.
  void find_frontier() {
    while (frontier_ < ops_.size() && came_[ops_[frontier_]] == step_) ++frontier_;
    first_missing_ = frontier_ < ops_.size() ? ops_[frontier_] : kNone;
  }

  std::size_t place() const {
    const auto number = [](std::uint32_t kind) { return kind == kNone ? 0 : std::size_t{kind} + 1; };
    return number(before_last_) * (kinds_.size() + 1) + number(last_);
  }
  std::uint32_t guess() const {
    if (followed_by_[place()] != kNone) return followed_by_[place()];
    return last_ == kNone ? 0 : last_;
  }

  const StepPaths& paths_;
  std::vector<std::uint32_t> stream_;  // by op
  std::vector<std::uint64_t> came_;    // by op: the step in which it last came
  std::vector<Kind> kinds_;
  std::vector<std::size_t> next_;           // by stream: how many have come
  std::vector<std::uint32_t> expected_;     // by stream: the expected next op, in a step of this kind
  std::vector<std::uint32_t> followed_by_;  // by the last two kinds: which came next
  std::uint32_t last_ = kNone, before_last_ = kNone;
  std::uint32_t kind_ = 0;
  std::span<const std::uint32_t> ops_;    // of the kind
  std::size_t count_ = 0, frontier_ = 0;  // the latter in the kind's ops
  std::uint32_t first_missing_ = kNone;   // that op
  std::uint32_t furthest_ = kNone;        // the largest op number that has come
  std::uint64_t step_ = 1;
};

}  // namespace nimble
