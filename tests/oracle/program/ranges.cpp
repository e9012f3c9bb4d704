#include "tests/oracle/program/ranges.h"

#include <algorithm>

namespace nimble::oracle {
namespace {

class Collector {
 public:
  Collector(const Op& op, std::uint32_t step) {
    for (const Place& place : op.places) places_.push_back(at_step(place, step));
  }
  void reads(std::size_t place, std::uint32_t bytes) { add(place, 0, bytes, false); }
  void writes(std::size_t place, std::uint32_t bytes) { add(place, 0, bytes, true); }
  void updates(std::size_t place, std::uint32_t bytes) {
    reads(place, bytes);
    writes(place, bytes);
  }
  void add(std::size_t place, std::uint32_t at, std::uint32_t bytes, bool writes) {
    const std::uint32_t begin = places_[place].offset + at;
    ranges_.push_back({places_[place].buffer, begin, begin + bytes, writes});
  }
  void add(const Range& range) { ranges_.push_back(range); }
  const Place& place(std::size_t index) const { return places_[index]; }
  std::vector<Range> take() { return std::move(ranges_); }

 private:
  std::vector<Place> places_;
  std::vector<Range> ranges_;
};

void add_launch(const Program& program, const Op& op, std::uint32_t count, Collector& c) {
  const std::uint32_t bytes = 4 * count;
  switch (op.kernel) {
    case Kernel::map1:
    case Kernel::map3:
    case Kernel::by_struct:
    case Kernel::opaque_map:
      c.reads(0, bytes);
      return c.writes(1, bytes);
    case Kernel::bytes:
      c.reads(0, count);
      return c.writes(1, count);
    case Kernel::gather:
      c.reads(0, bytes);
      c.reads(1, bytes);
      return c.writes(2, bytes);
    case Kernel::by_array:
      c.writes(0, bytes);
      c.reads(1, bytes);
      return c.reads(2, bytes);
    case Kernel::in_place:
    case Kernel::opaque_in_place:
      return c.updates(0, bytes);
    case Kernel::accumulate:
      c.updates(0, bytes);
      return c.reads(1, bytes);
    case Kernel::reduce:
      c.reads(0, bytes);
      return c.updates(1, 4);
    case Kernel::scatter:
      c.reads(0, bytes);
      return c.updates(1, bytes);
    case Kernel::fill:
      return c.writes(0, bytes);
    case Kernel::strided:
      c.reads(0, bytes);
      for (std::uint32_t i = 0; i < count; ++i) c.add(1, 4 * i * op.stride, 4, true);
      return;
    case Kernel::moved:
      c.writes(1, bytes);
      return c.reads(2, bytes);
    case Kernel::backwards: {
      const Place& last = c.place(0);
      for (const bool writes : {false, true}) c.add({last.buffer, last.offset + 4 - bytes, last.offset + 4, writes});
      return;
    }
    case Kernel::sometimes:
      c.reads(0, 4);
      return c.updates(1, bytes);
    case Kernel::through_table: {
      c.reads(0, 16);
      const Place &out = program.table[0], &in = program.table[1];
      for (const bool writes : {false, true}) c.add({out.buffer, out.offset, out.offset + bytes, writes});
      return c.add({in.buffer, in.offset, in.offset + bytes, false});
    }
    case Kernel::count:
      return;
  }
}

// Whether each thread keeps to its own element, and two pointers may be the same.
bool element_by_element(Kernel kernel) {
  switch (kernel) {
    case Kernel::in_place:
    case Kernel::accumulate:
    case Kernel::by_struct:
    case Kernel::by_array:
    case Kernel::moved:
    case Kernel::backwards:
    case Kernel::opaque_map:
    case Kernel::opaque_in_place:
    case Kernel::through_table:
      return true;
    default:
      return false;
  }
}

}  // namespace

Place at_step(Place place, std::uint32_t step) {
  if (step >= place.other_from || (place.other_odd && step % 2 == 1)) place.buffer = place.other;
  place.offset += step % place.period * place.stride;
  return place;
}

bool varies(const Op& op) {
  return op.skip != 0 || op.shrinks || std::any_of(op.places.begin(), op.places.end(), [](const Place& place) {
           return place.period > 1 || place.other_odd || place.other_from != Place().other_from;
         });
}

std::vector<Range> touched(const Program& program, const Op& op, std::uint32_t step) {
  Collector c(op, step);
  switch (op.kind) {
    case OpKind::launch:
    case OpKind::captured:
    case OpKind::reloaded:
      add_launch(program, op, count_at(op, step), c);
      break;
    case OpKind::copy:
      for (std::uint32_t row = 0; row < op.height; ++row) c.add(1, row * op.from_pitch, op.width, false);
      for (std::uint32_t row = 0; row < op.height; ++row) c.add(0, row * op.to_pitch, op.width, true);
      break;
    case OpKind::set:
      for (std::uint32_t row = 0; row < op.height; ++row) c.add(0, row * op.to_pitch, op.width, true);
      break;
    case OpKind::alloc:
    case OpKind::free:
      c.add({op.buffer, 0, program.buffers[op.buffer].bytes, true});
      break;
    case OpKind::graph:
      for (const Op& node : program.graph)
        for (const Range& range : touched(program, node, 0)) c.add(range);
      break;
    case OpKind::read_back:
      for (std::size_t i = 0; i < op.places.size(); ++i) c.reads(i, op.width);
      break;
    default:
      break;
  }
  return c.take();
}

std::vector<Range> touched(const Program& program, const Op& op) {
  std::vector<Range> all = touched(program, op, 0);
  for (std::uint32_t step = 1; varies(op) && step < program.repeats; ++step)
    for (const Range& range : touched(program, op, step)) all.push_back(range);
  return all;
}

bool apart(const Op& op, const std::vector<Range>& ranges) {
  const bool same_element = launches(op.kind) && element_by_element(op.kernel);
  const bool same_place = op.kernel == Kernel::sometimes || op.kernel == Kernel::scatter || op.kernel == Kernel::reduce;
  for (std::size_t i = 0; i < ranges.size(); ++i)
    for (std::size_t j = 0; j < ranges.size(); ++j) {
      const Range &a = ranges[i], &b = ranges[j];
      if (i == j || !a.writes || a.buffer != b.buffer || a.end <= b.begin || b.end <= a.begin) continue;
      const bool equal = a.begin == b.begin && a.end == b.end;
      if (b.writes || !equal) return false;
      // The read that belongs to the write is listed just before it.
      if (!same_element && !(same_place && i == j + 1)) return false;
    }
  return true;
}

}  // namespace nimble::oracle
