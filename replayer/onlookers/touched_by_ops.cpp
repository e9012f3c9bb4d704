#include "replayer/onlookers/touched_by_ops.h"

#include <algorithm>

namespace nimble {

TouchedByOps::TouchedByOps(const StreamClocks& clocks) : clocks_(clocks), streams_(StreamClocks::kMostStreams) {
  for (OfStream& each : streams_) each.parts.reserve(kMostParts);
  launched_.reserve(kMostLaunched);
}

void TouchedByOps::add(StreamClocks::Op op, const MemoryView& touched, const std::shared_ptr<RelaxedWork>& work) {
  if (!work && touched.none()) return;
  if (op.number == 0) return add_unknown();
  OfStream& stream = streams_[op.slot];
  // What has passed unseen is told later than ops that came after it.
  const auto raise = [&](std::uint64_t& number) { number = std::max(number, op.number); };
  raise(last_[op.slot]);
  if (touched.variables) raise(stream.variables);
  if (touched.anything) raise(stream.anything);
  for (const MemoryRange& range : touched.ranges)
    if (stream.anything < op.number) add(op, range);
  if (work) add(op, work);
}

void TouchedByOps::add(StreamClocks::Op op, const MemoryRange& range) {
  OfStream& stream = streams_[op.slot];
  for (Part& part : stream.parts) {
    if (part.range.begin != range.begin || part.range.end != range.end || part.range.written < range.written) continue;
    part.number = std::max(part.number, op.number);
    return;
  }
  if (stream.parts.size() == kMostParts)
    std::erase_if(stream.parts, [&](const Part& part) { return part.number <= clocks_.done()[op.slot]; });
  if (stream.parts.size() == kMostParts) {
    stream.parts.clear();
    stream.anything = last_[op.slot];
  } else {
    stream.parts.push_back({range, op.number});
  }
}

void TouchedByOps::add(StreamClocks::Op op, const std::shared_ptr<RelaxedWork>& work) {
  for (Launched& each : launched_) {
    if (each.work != work || (each.op.slot != op.slot && !clocks_.is_done(each.op))) continue;
    each.op = op;
    return;
  }
  std::erase_if(launched_, [&](const Launched& each) { return clocks_.is_done(each.op); });
  if (launched_.size() == kMostLaunched) {
    streams_[op.slot].anything = std::max(streams_[op.slot].anything, op.number);
  } else {
    launched_.push_back({op, work});
  }
}

void TouchedByOps::release(std::uint64_t address) {
  for (OfStream& stream : streams_)
    std::erase_if(stream.parts, [&](const Part& part) { return part.range.begin == address; });
}

void TouchedByOps::forget(const RelaxedWork& work) {
  std::erase_if(launched_, [&](const Launched& each) {
    if (each.work.get() != &work) return false;
    std::uint64_t& anything = streams_[each.op.slot].anything;
    anything = std::max(anything, each.op.number);
    return true;
  });
}

bool TouchedByOps::any() const {
  if (crowded_ || !launched_.empty()) return true;
  for (std::size_t slot = 0; slot < clocks_.used(); ++slot)
    if (last_[slot] > clocks_.done()[slot]) return true;
  return false;
}

bool TouchedByOps::meets(const StreamClocks::Clock& clock, const MemoryView& used) const {
  if (crowded_) return true;
  for (std::size_t slot = 0; slot < clocks_.used(); ++slot) {
    if (last_[slot] <= clock[slot]) continue;
    const OfStream& stream = streams_[slot];
    if (stream.anything > clock[slot] && conflict({{}, false, true}, used)) return true;
    if (stream.variables > clock[slot] && conflict({{}, true, false}, used)) return true;
    for (const Part& part : stream.parts)
      if (part.number > clock[slot] && conflict({{&part.range, 1}}, used)) return true;
  }
  return std::ranges::any_of(launched_, [&](const Launched& each) {
    return !StreamClocks::has(clock, each.op) && conflict(each.work->view(), used);
  });
}

}  // namespace nimble
