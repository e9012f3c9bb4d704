#include "replayer/onlookers/relaxed_work.h"

namespace nimble {

void RelaxedWork::use(std::span<const MemoryRange> memory, bool variables, bool anything) {
  for (const MemoryRange& range : memory_) {
    if (!may_run()) continue;
    const auto same = std::ranges::lower_bound(memory, range.begin, {}, &MemoryRange::begin);
    if (same != memory.end() && *same == range) continue;
    const auto known = std::ranges::find_if(former_, [&](const Former& former) { return former.range == range; });
    if (known != former_.end()) {
      known->until = begun_;
    } else if (former_.size() < kMostFormer) {
      former_.push_back({range, begun_});
    } else {
      former_anything_ = begun_;
    }
  }
  if (may_run() && anything_) former_anything_ = begun_;
  memory_.assign(memory.begin(), memory.end());
  variables_ = variables_ || variables;
  anything_ = anything;
}

void RelaxedWork::release(std::uint64_t address, std::uint64_t size) {
  std::erase_if(former_,
                [&](const Former& former) { return former.range.begin - address < std::max<std::uint64_t>(size, 1); });
}

// Whether the launches up to this one are before what the clock is of. Those that are not remembered any more are
// before the oldest that is.
bool RelaxedWork::are_before(const StreamClocks::Clock& clock, std::uint64_t until) const {
  bool is_oldest = true;
  for (std::uint64_t i = std::max(ended_, ran_ - std::min(ran_, kLaunches)); i < ran_; ++i) {
    const Past& launch = launches_[i % kLaunches];
    if (launch.number > until && !is_oldest) break;
    if (!StreamClocks::has(clock, launch.op)) return false;
    is_oldest = false;
  }
  return true;
}

bool RelaxedWork::meets(const StreamClocks::Clock& clock, const MemoryView& touched) const {
  if (!may_run()) return false;
  const auto is_before = [&](std::uint64_t until) { return on_their_way_ == 0 && are_before(clock, until); };
  if (is_before(begun_)) return false;
  if (conflict(touched, view())) return true;
  if (former_anything_ != 0 && conflict(touched, {{}, false, true}) && !is_before(former_anything_)) return true;
  return std::ranges::any_of(former_, [&](const Former& former) {
    return conflict(touched, {{&former.range, 1}}) && !is_before(former.until);
  });
}

void RelaxedWork::settle(const StreamClocks::Clock& done) {
  if (running_ && on_their_way_ == 0 && are_before(done, begun_)) end(begun_);
}

void RelaxedWork::end(std::uint64_t launches) {
  if (on_their_way_ != 0 || begun_ != launches) return;
  running_ = false;
  former_.clear();
  former_anything_ = 0;
  ended_ = ran_;
}

}  // namespace nimble
