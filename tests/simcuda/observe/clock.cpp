// See clock.h.
#include "tests/simcuda/observe/clock.h"

#include <algorithm>

namespace simcuda {

SimClock::SimClock() { free_.push_back({0, model_.multiprocessors}); }

void SimClock::reset() {
  origin_ = host_us_;
  submit_us_ = 0;
  busy_before_ = 0;
  busy_.clear();
}

void SimClock::wait_until(double us) { host_us_ = std::max(host_us_, us) + model_.synchronize_host_us; }

double SimClock::busy_us() const {
  double total = busy_before_;
  for (const Interval& interval : busy_) total += interval.end - interval.begin;
  return total;
}

double SimClock::place(const Work& work, double ready, nimble::CopyDirection direction) {
  double end = ready, length = 0;
  switch (work.kind) {
    case WorkKind::kKernel: {
      const std::uint64_t blocks = work.launch.grid.volume(), threads = work.launch.block.volume();
      length = nimble::kernel_us(model_, blocks, threads);
      end = place_kernel(ready, nimble::multiprocessors_of(model_, blocks, threads), length);
      break;
    }
    case WorkKind::kCopy: {
      length = nimble::copy_us(model_, work.copy.width * work.copy.height * work.copy.depth, direction);
      end = place_on(nimble::engine_of(direction), ready, length);
      mark_busy(end - length, end);
      break;
    }
    case WorkKind::kSet: {
      length = nimble::set_us(model_, work.set.width * work.set.height * std::uint64_t{work.set.element_bytes});
      end = place_on(nimble::Engine::device_to_device, ready, length);
      mark_busy(end - length, end);
      break;
    }
    case WorkKind::kHost:
      end = ready + model_.host_function_us;
      break;
    default:
      break;  // takes no time: it only orders
  }
  last_begin_us_ = end - length;
  device_end_us_ = std::max(device_end_us_, end);
  return end;
}

double SimClock::place_on(nimble::Engine engine, double ready, double length) {
  double& engine_free = engine_free_[static_cast<std::size_t>(engine)];
  engine_free = std::max(engine_free, ready) + length;
  return engine_free;
}

double SimClock::place_kernel(double ready, int multiprocessors, double length) {
  // The multiprocessors that are free soonest.
  double start = ready;
  int missing = multiprocessors;
  std::size_t used = 0;
  while (missing > 0) {
    start = std::max(start, free_[used].from);
    if (free_[used].count > missing) {
      free_[used].count -= missing;
      missing = 0;
    } else {
      missing -= free_[used].count;
      ++used;
    }
  }
  free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(used));
  const double end = start + length;
  const auto place = std::upper_bound(free_.begin(), free_.end(), end,
                                      [](double time, const Free& entry) { return time < entry.from; });
  free_.insert(place, {end, multiprocessors});
  // Whatever is free by now is the same to every later op.
  while (free_.size() > 1 && free_[1].from <= host_us_) {
    free_[1].count += free_[0].count;
    free_.erase(free_.begin());
  }
  mark_busy(start, end);
  return end;
}

void SimClock::mark_busy(double begin, double end) {
  auto first = std::lower_bound(busy_.begin(), busy_.end(), begin,
                                [](const Interval& interval, double time) { return interval.end < time; });
  auto last = first;
  while (last != busy_.end() && last->begin <= end) {
    begin = std::min(begin, last->begin);
    end = std::max(end, last->end);
    ++last;
  }
  if (first == last) {
    busy_.insert(first, {begin, end});
  } else {
    *first = {begin, end};
    busy_.erase(first + 1, last);
  }
  // Nothing starts before the host's own time any more.
  std::size_t past = 0;
  while (past < busy_.size() && busy_[past].end < host_us_) {
    busy_before_ += busy_[past].end - busy_[past].begin;
    ++past;
  }
  if (past != 0) busy_.erase(busy_.begin(), busy_.begin() + static_cast<std::ptrdiff_t>(past));
}

}  // namespace simcuda
