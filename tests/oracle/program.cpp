#include "tests/oracle/program.h"

#include <algorithm>
#include <optional>

#include "tests/oracle/order.h"
#include "tests/oracle/random.h"

namespace nimble::oracle {
namespace {

bool of_step(Memory memory) { return memory == Memory::local || memory == Memory::plain; }
bool on_device(Memory memory) { return memory != Memory::pinned && memory != Memory::pageable; }

// Which bytes hold something, as ops go by.
class Contents {
 public:
  explicit Contents(const std::vector<Buffer>& buffers) {
    for (const Buffer& buffer : buffers) add(buffer);
  }
  void add(const Buffer& buffer) {
    const bool there = !of_step(buffer.memory);
    written_.emplace_back(buffer.bytes, there);
    live_.push_back(there);
  }
  bool live(std::uint32_t buffer) const { return live_[buffer]; }
  bool written(std::uint32_t buffer, std::uint32_t begin, std::uint32_t end) const {
    const auto& bytes = written_[buffer];
    return std::all_of(bytes.begin() + begin, bytes.begin() + end, [](bool byte) { return byte; });
  }
  // False, and nothing is changed, where the op needs what is not there.
  bool apply(const Op& op) {
    if (op.kind == OpKind::alloc) {
      live_[op.buffer] = true;
      std::fill(written_[op.buffer].begin(), written_[op.buffer].end(), false);
      return true;
    }
    if (op.kind == OpKind::free) {
      if (!live_[op.buffer]) return false;
      live_[op.buffer] = false;
      return true;
    }
    for (const Range& range : op.ranges)
      if (!live_[range.buffer] || (!range.writes && !written(range.buffer, range.begin, range.end))) return false;
    for (const Range& range : op.ranges)
      if (range.writes)
        std::fill(written_[range.buffer].begin() + range.begin, written_[range.buffer].begin() + range.end, true);
    return true;
  }

 private:
  std::vector<std::vector<bool>> written_;
  std::vector<bool> live_;
};

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed), contents_({}) { program_.seed = seed; }

  Program run() {
    choose_shape();
    choose_buffers();
    const std::uint32_t wanted = random_.percent(10) ? random_.between(2, 5) : random_.between(6, 42);
    if (random_.percent(12)) make_graph();
    for (std::uint32_t tries = 0; program_.ops.size() < wanted && tries < wanted * 8; ++tries) draw();
    free_all();
    return std::move(program_);
  }

 private:
  void choose_shape() {
    program_.repeats = random_.between(5, 7);
    program_.streams = random_.percent(78) ? 1 : random_.between(2, 3);
    program_.stream_kind = random_.one_of({StreamKind::blocking, StreamKind::non_blocking, StreamKind::non_blocking});
    if (program_.streams == 1 && random_.percent(25)) program_.stream_kind = StreamKind::legacy;
    program_.ordered_widely = random_.percent(50);
    program_.ending = random_.one_of({Ending::none, Ending::synchronize, Ending::events});
    program_.swaps = random_.percent(10);
    if (random_.percent(5)) program_.extra_every = random_.between(2, 3);
    syncs_ = random_.one_of<std::uint32_t>({0, 0, 1, 6});
    opaque_ = random_.one_of<std::uint32_t>({0, 0, 0, 2, 12});
    proven_ = random_.one_of<std::uint32_t>({0, 50, 100});
    with_table_ = !program_.swaps && random_.percent(15);
    pageable_ = random_.percent(6);
    plain_ = random_.percent(8);
    for (std::uint32_t& size : sizes_) size = 4 * random_.between(24, 280);
  }

  std::uint32_t add(Memory memory, std::uint32_t bytes) {
    program_.buffers.push_back({memory, bytes});
    contents_.add(program_.buffers.back());
    return static_cast<std::uint32_t>(program_.buffers.size() - 1);
  }

  void choose_buffers() {
    const std::uint32_t states = random_.between(2, 5), size = sizes_[0];
    for (std::uint32_t i = 0; i < states; ++i) {
      const Memory memory = random_.percent(8)    ? Memory::managed
                            : random_.percent(15) ? Memory::pooled
                                                  : Memory::device;
      add(i < 2 ? Memory::device : memory, i < 2 ? size : 4 * random_.between(32, 300));
    }
    const std::uint32_t pinned = random_.between(1, 3);
    for (std::uint32_t i = 0; i < pinned; ++i) add(Memory::pinned, 4 * random_.between(32, 200));
    if (program_.ending != Ending::none) program_.buffers.back().input = true;
    if (pageable_) add(Memory::pageable, 4 * random_.between(32, 200));
    if (!with_table_) return;
    program_.table = {place_in(0, 4 * kTableCount), place_in(1, 4 * kTableCount)};
    program_.table_buffer = add(Memory::device, 16);
    program_.table_host = add(Memory::pinned, 16);
    program_.buffers[program_.table_buffer].addresses = program_.buffers[program_.table_host].addresses = true;
  }

  Place place_in(std::uint32_t buffer, std::uint32_t bytes) {
    return {buffer, 4 * random_.below((program_.buffers[buffer].bytes - bytes) / 4 + 1)};
  }

  // A place of so many bytes, of which all that is read holds something; nothing where no luck was had.
  std::optional<Place> find(std::uint32_t bytes, bool reads, bool host = false) {
    for (int tries = 0; tries < 12; ++tries) {
      // The latest buffers more often: they are the step's own.
      const auto all = static_cast<std::uint32_t>(program_.buffers.size());
      const std::uint32_t buffer = random_.percent(50) && all > 6 ? all - 1 - random_.below(6) : random_.below(all);
      const Buffer& found = program_.buffers[buffer];
      if (!contents_.live(buffer) || found.bytes < bytes || found.addresses) continue;
      if (host == on_device(found.memory) && !(found.memory == Memory::pinned && random_.percent(4))) continue;
      if (!reads && found.input) continue;
      Place place = random_.percent(40) ? Place{buffer, 0} : place_in(buffer, bytes);
      if (reads && !contents_.written(buffer, place.offset, place.offset + bytes)) continue;
      return place;
    }
    return std::nullopt;
  }

  static bool overlap(const Place& a, std::uint32_t a_bytes, const Place& b, std::uint32_t b_bytes) {
    return a.buffer == b.buffer && a.offset < b.offset + b_bytes && b.offset < a.offset + a_bytes;
  }

  std::uint32_t stream() { return program_.streams == 1 ? 0 : random_.below(program_.streams); }

  bool take(Op op) {
    if (!contents_.apply(op)) return false;
    program_.ops.push_back(std::move(op));
    return true;
  }

  void draw() {
    const std::uint32_t what = random_.below(100);
    if (what < 14) return draw_alloc();
    if (what < 20) return draw_free();
    if (what < 30) return draw_copy();
    if (what < 36) return draw_set();
    if (what < 40) return draw_event();
    if (what < 40 + syncs_) return draw_read();
    if (what < 48 && !program_.graph.empty()) return draw_graph();
    if (what < 52 && with_table_) return draw_table_copy();
    Op op = draw_launch(false);
    if (op.count != 0) take(std::move(op));
  }

  void draw_alloc() {
    if (std::count_if(program_.buffers.begin(), program_.buffers.end(),
                      [](const Buffer& b) { return of_step(b.memory); }) > 24)
      return;
    Op op;
    op.kind = OpKind::alloc;
    op.stream = stream();
    op.buffer = add(plain_ && random_.percent(30) ? Memory::plain : Memory::local, sizes_[random_.below(kSizes)]);
    op.ranges = {{op.buffer, 0, program_.buffers[op.buffer].bytes, true}};
    take(std::move(op));
  }

  void draw_free() {
    std::vector<std::uint32_t> live;
    for (std::uint32_t i = 0; i < program_.buffers.size(); ++i)
      if (of_step(program_.buffers[i].memory) && contents_.live(i)) live.push_back(i);
    if (!live.empty()) add_free(live[random_.below(static_cast<std::uint32_t>(live.size()))]);
  }

  void add_free(std::uint32_t buffer) {
    Op op;
    op.kind = OpKind::free;
    op.stream = stream();
    // Mostly where it was allocated.
    for (const Op& other : program_.ops)
      if (other.kind == OpKind::alloc && other.buffer == buffer && !random_.percent(10)) op.stream = other.stream;
    op.buffer = buffer;
    op.ranges = {{buffer, 0, program_.buffers[buffer].bytes, true}};
    take(std::move(op));
  }

  void free_all() {
    std::vector<std::uint32_t> live;
    for (std::uint32_t i = 0; i < program_.buffers.size(); ++i)
      if (of_step(program_.buffers[i].memory) && contents_.live(i)) live.push_back(i);
    while (!live.empty()) {
      const std::uint32_t at = random_.below(static_cast<std::uint32_t>(live.size()));
      add_free(live[at]);
      live.erase(live.begin() + at);
    }
  }

  // Rows of bytes: a copy's one side, or a set's.
  void add_rows(Op& op, const Place& place, std::uint32_t pitch, bool writes) {
    for (std::uint32_t row = 0; row < op.height; ++row) {
      const std::uint32_t begin = place.offset + row * pitch;
      op.ranges.push_back({place.buffer, begin, begin + op.width, writes});
    }
  }

  bool may_block() const { return program_.streams == 1 && program_.stream_kind != StreamKind::non_blocking; }

  void draw_copy() {
    Op op;
    op.kind = OpKind::copy;
    op.stream = stream();
    if (random_.percent(35)) {
      op.width = random_.between(3, 48);
      op.height = random_.between(2, 6);
      op.to_pitch = op.width + random_.below(24);
      op.from_pitch = op.width + random_.below(24);
    } else {
      op.width = random_.percent(70) ? 4 * random_.between(1, 96) : random_.between(1, 200);
      op.to_pitch = op.from_pitch = op.width;
    }
    const std::uint32_t to_bytes = (op.height - 1) * op.to_pitch + op.width;
    const std::uint32_t from_bytes = (op.height - 1) * op.from_pitch + op.width;
    const std::uint32_t direction = random_.below(10);  // 0 to 3: within the device, 4 to 6: to it, 7 to 9: from it
    const auto to = find(to_bytes, false, direction >= 7),
               from = find(from_bytes, true, direction >= 4 && direction < 7);
    if (!to || !from || overlap(*to, to_bytes, *from, from_bytes)) return;
    // Two host addresses are no copy of the driver's to speak of.
    if (!on_device(program_.buffers[to->buffer].memory) && !on_device(program_.buffers[from->buffer].memory)) return;
    op.blocking = may_block() && random_.percent(4);
    op.opaque = program_.buffers[to->buffer].memory == Memory::pageable ||
                program_.buffers[from->buffer].memory == Memory::pageable;
    op.places = {*to, *from};
    add_rows(op, *from, op.from_pitch, false);
    add_rows(op, *to, op.to_pitch, true);
    take(std::move(op));
  }

  void draw_set() {
    Op op;
    op.kind = OpKind::set;
    op.stream = stream();
    op.element = random_.one_of<std::uint32_t>({1, 2, 4, 4});
    op.width = op.element * random_.between(1, 64);
    op.to_pitch = op.width;
    if (random_.percent(30)) {
      op.width = op.element * random_.between(1, 12);
      op.height = random_.between(2, 6);
      op.to_pitch = (op.width + random_.below(24) + 3) / 4 * 4;
    }
    op.salt = static_cast<std::uint32_t>(random_.next());
    const auto to = find((op.height - 1) * op.to_pitch + op.width, false);
    if (!to) return;
    op.places = {*to};
    add_rows(op, *to, op.to_pitch, true);
    take(std::move(op));
  }

  // For the host: it waits later, or never.
  void draw_event() {
    Op op;
    op.stream = stream();
    if (marked_ == 0 || random_.percent(50)) {
      op.kind = OpKind::record;
      op.event = program_.events++;
      ++marked_;
    } else {
      if (syncs_ == 0) return;
      op.kind = OpKind::host_wait;
      op.event = random_.below(program_.events);
    }
    take(std::move(op));
  }

  // Something comes back to the host, which waits for it.
  void draw_read() {
    Op op;
    op.kind = OpKind::synchronize;
    if (const auto place = find(4 * random_.between(1, 24), true, true)) op.places = {*place};
    // The host reads as much as is there, behind this place.
    if (!op.places.empty() && on_device(program_.buffers[op.places[0].buffer].memory)) op.places.clear();
    take(std::move(op));
  }

  void draw_table_copy() {
    Op op;
    op.kind = OpKind::copy;
    op.stream = stream();
    op.width = op.to_pitch = op.from_pitch = 16;
    op.places = {{program_.table_buffer, 0}, {program_.table_host, 0}};
    add_rows(op, op.places[1], 16, false);
    add_rows(op, op.places[0], 16, true);
    take(std::move(op));
  }

  // A few ops on memory that stays, captured before the first step.
  void make_graph() {
    if (program_.swaps) return;
    for (std::uint32_t i = random_.between(1, 4); i > 0; --i) {
      Op op = draw_launch(true);
      // What the host writes comes at another address each time.
      if (std::any_of(op.ranges.begin(), op.ranges.end(),
                      [&](const Range& range) { return program_.buffers[range.buffer].input; }))
        continue;
      if (op.count != 0 && contents_.apply(op)) program_.graph.push_back(std::move(op));
    }
  }

  void draw_graph() {
    Op op;
    op.kind = OpKind::graph;
    op.stream = stream();
    for (const Op& node : program_.graph) {
      op.ranges.insert(op.ranges.end(), node.ranges.begin(), node.ranges.end());
      op.opaque |= node.opaque;
    }
    take(std::move(op));
  }

  // No count where no place was found.
  Op draw_launch(bool for_graph) {
    Op op;
    op.stream = for_graph ? 0 : stream();
    op.kernel = static_cast<Kernel>(random_.below(static_cast<std::uint32_t>(Kernel::through_table)));
    if (random_.percent(opaque_)) op.kernel = random_.one_of({Kernel::opaque_map, Kernel::opaque_in_place});
    if (with_table_ && !for_graph && random_.percent(8)) op.kernel = Kernel::through_table;
    op.opaque = op.kernel >= Kernel::through_table;
    op.proven = op.kernel < Kernel::opaque_map && random_.percent(proven_);
    op.salt = static_cast<std::uint32_t>(random_.next());
    std::uint32_t count = random_.between(1, 96);
    if (!fill_launch(op, count)) return op;
    op.count = count;
    return op;
  }

  // The pointers of a launch, in the order of parameters, and what it touches.
  bool fill_launch(Op& op, std::uint32_t& count) {
    std::uint32_t bytes = 4 * count;
    const auto reads = [&](std::uint32_t size) { return pointer(op, size, false); };
    const auto writes = [&](std::uint32_t size) { return pointer(op, size, true); };
    const auto updates = [&](std::uint32_t size) {
      if (!pointer(op, size, false)) return false;
      Range range = op.ranges.back();
      range.writes = true;
      op.ranges.push_back(range);
      return writable(range) && apart(op);
    };
    switch (op.kernel) {
      case Kernel::map1:
      case Kernel::map3:
      case Kernel::by_struct:
      case Kernel::opaque_map:
        return reads(bytes) && writes(bytes) && apart(op);
      case Kernel::bytes:
        return reads(count) && writes(count) && shift(op) && apart(op);
      case Kernel::gather:
        return reads(bytes) && reads(bytes) && writes(bytes) && apart(op);
      case Kernel::by_array:
        return writes(bytes) && reads(bytes) && reads(bytes) && apart(op);
      case Kernel::in_place:
      case Kernel::opaque_in_place:
        return updates(bytes);
      case Kernel::accumulate:
        return updates(bytes) && reads(bytes) && apart(op);
      case Kernel::reduce:
        return reads(bytes) && updates(4);
      case Kernel::scatter:
        return reads(bytes) && updates(bytes);
      case Kernel::fill:
        return writes(bytes);
      case Kernel::strided: {
        op.stride = random_.between(2, 4);
        if (!reads(bytes) || !writes(4 * ((count - 1) * op.stride + 1))) return false;
        const Range hull = op.ranges.back();
        op.ranges.pop_back();
        for (std::uint32_t i = 0; i < count; ++i) {
          const std::uint32_t begin = hull.begin + 4 * i * op.stride;
          op.ranges.push_back({hull.buffer, begin, begin + 4, true});
        }
        return apart(op);
      }
      case Kernel::moved: {
        // The pointer is to the beginning of what holds both places.
        const auto to = find(bytes, false);
        if (!to) return false;
        const std::uint32_t all = program_.buffers[to->buffer].bytes;
        const Place from = place_in(to->buffer, bytes);
        if (all < 2 * bytes || !contents_.written(from.buffer, from.offset, from.offset + bytes)) return false;
        const std::uint32_t base = 4 * random_.below(all / 4);
        op.places = {{to->buffer, base}, *to, from};
        op.ranges = {{from.buffer, from.offset, from.offset + bytes, false},
                     {to->buffer, to->offset, to->offset + bytes, true}};
        return apart(op);
      }
      case Kernel::backwards: {
        if (!updates(bytes)) return false;
        op.places[0].offset += bytes - 4;
        return true;
      }
      case Kernel::sometimes:
        return reads(4) && updates(bytes);
      case Kernel::through_table:
        if (!contents_.written(program_.table_buffer, 0, 16)) return false;
        count = std::min(count, kTableCount);
        bytes = 4 * count;
        op.places = {{program_.table_buffer, 0}};
        op.ranges = {{program_.table_buffer, 0, 16, false}};
        for (const bool second : {false, true}) {
          const Place& place = program_.table[second ? 1 : 0];
          op.ranges.push_back({place.buffer, place.offset, place.offset + bytes, false});
          if (!second) op.ranges.push_back({place.buffer, place.offset, place.offset + bytes, true});
        }
        return true;
      case Kernel::count:
        break;
    }
    return false;
  }

  bool writable(const Range& range) const { return !program_.buffers[range.buffer].input; }

  bool pointer(Op& op, std::uint32_t bytes, bool writes) {
    const auto place = find(bytes, !writes);
    if (!place) return false;
    op.places.push_back(*place);
    op.ranges.push_back({place->buffer, place->offset, place->offset + bytes, writes});
    return true;
  }

  // Some bytes further, where that is possible.
  bool shift(Op& op) {
    for (std::size_t i = 0; i < op.places.size(); ++i) {
      Range& range = op.ranges[i];
      const std::uint32_t by = random_.below(4);
      if (range.end + by > program_.buffers[range.buffer].bytes) continue;
      if (!range.writes && !contents_.written(range.buffer, range.begin + by, range.end + by)) continue;
      op.places[i].offset += by;
      range.begin += by;
      range.end += by;
    }
    return true;
  }

  // Its threads do not depend on each other: nothing that it writes is read in another place of the same launch.
  static bool apart(const Op& op) {
    for (const Range& a : op.ranges)
      for (const Range& b : op.ranges) {
        if (&a == &b || !a.writes || a.buffer != b.buffer || a.end <= b.begin || b.end <= a.begin) continue;
        if (b.writes || a.begin != b.begin || a.end != b.end) return false;
      }
    if (element_by_element(op.kernel)) return true;
    for (std::size_t i = 0; i < op.places.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (op.places[i].buffer == op.places[j].buffer && op.places[i].offset == op.places[j].offset) return false;
    return true;
  }

  // Whether each thread keeps to its own element, and two pointers may be the same.
  static bool element_by_element(Kernel kernel) {
    switch (kernel) {
      case Kernel::in_place:
      case Kernel::accumulate:
      case Kernel::by_struct:
      case Kernel::by_array:
      case Kernel::moved:
      case Kernel::backwards:
      case Kernel::opaque_map:
      case Kernel::opaque_in_place:
        return true;
      default:
        return false;
    }
  }

  static constexpr std::uint32_t kSizes = 3, kTableCount = 16;

  Random random_;
  Program program_;
  Contents contents_;
  std::uint32_t sizes_[kSizes] = {};
  std::uint32_t syncs_ = 0, opaque_ = 0, proven_ = 0, marked_ = 0;
  bool with_table_ = false, pageable_ = false, plain_ = false;
};

// Leaves out what was asked for, and what then reads or frees what is not there.
void keep_valid(Program& program, const Limits& limits) {
  Contents contents(program.buffers);
  std::vector<bool> recorded(program.events, false);
  std::vector<Op> kept;
  for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
    Op& op = program.ops[i];
    const bool asked = std::find(limits.without.begin(), limits.without.end(), i) != limits.without.end();
    // Memory is freed whatever is left out.
    if ((asked || i >= limits.ops) && op.kind != OpKind::free) continue;
    if (op.kind == OpKind::record) recorded[op.event] = true;
    if (op.kind == OpKind::host_wait && !recorded[op.event]) continue;
    if (contents.apply(op)) kept.push_back(std::move(op));
  }
  program.ops = std::move(kept);
  // What was to be freed by an op that is gone.
  for (std::uint32_t buffer = 0; buffer < program.buffers.size(); ++buffer) {
    if (!of_step(program.buffers[buffer].memory) || !contents.live(buffer)) continue;
    Op op;
    op.kind = OpKind::free;
    op.buffer = buffer;
    op.ranges = {{buffer, 0, program.buffers[buffer].bytes, true}};
    program.ops.push_back(std::move(op));
  }
}

}  // namespace

const char* name_of(Kernel kernel) {
  static constexpr const char* kNames[] = {
#define X(id, name) name,
      NIMBLE_ORACLE_KERNELS(X)
#undef X
  };
  return kNames[static_cast<int>(kernel)];
}

Program make_program(std::uint64_t seed, const Limits& limits) {
  Program program = Generator(seed).run();
  keep_valid(program, limits);
  if (limits.repeats != 0) program.repeats = limits.repeats;
  order_streams(program);
  return program;
}

std::uint32_t drawn_ops(std::uint64_t seed) { return static_cast<std::uint32_t>(Generator(seed).run().ops.size()); }

}  // namespace nimble::oracle
