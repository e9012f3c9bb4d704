#include "tests/oracle/program/generator.h"

#include <algorithm>
#include <optional>

#include "tests/oracle/program/contents.h"
#include "tests/oracle/program/random.h"
#include "tests/oracle/program/ranges.h"

namespace nimble::oracle {
namespace {

class Generator {
 public:
  Generator(std::uint64_t seed, bool several_streams)
      : random_(seed), contents_({}), several_streams_(several_streams) {
    program_.seed = seed;
  }

  Program run() {
    choose_shape();
    choose_buffers();
    const std::uint32_t wanted = random_.percent(10)  ? random_.between(2, 5)
                                 : random_.percent(3) ? random_.between(60, 120)
                                                      : random_.between(6, 42);
    if (random_.percent(12)) make_graph();
    for (std::uint32_t tries = 0; program_.ops.size() < wanted && tries < wanted * 8; ++tries) draw();
    free_all();
    return std::move(program_);
  }

 private:
  void choose_shape() {
    program_.repeats = random_.between(5, 7);
    if (random_.percent(65)) {
      program_.calm = 5;
      program_.repeats += program_.calm;
    }
    program_.streams = random_.percent(84) ? 1 : random_.between(2, 3);
    program_.stream_kind = random_.one_of({StreamKind::blocking, StreamKind::non_blocking, StreamKind::non_blocking});
    if (program_.streams == 1 && random_.percent(25)) program_.stream_kind = StreamKind::legacy;
    if (several_streams_ && program_.streams == 1) {
      program_.streams = random_.between(2, 3);
      program_.stream_kind = random_.one_of({StreamKind::blocking, StreamKind::non_blocking});
    }
    program_.ordered_widely = random_.percent(50);
    program_.ending =
        random_.one_of({Ending::none, Ending::synchronize, Ending::synchronize, Ending::events, Ending::events});
    program_.swaps = random_.percent(10);
    if (random_.percent(3)) program_.extra_every = random_.between(2, 3);
    syncs_ = random_.one_of<std::uint32_t>({0, 0, 1, 6});
    opaque_ = random_.one_of<std::uint32_t>({0, 0, 0, 2, 12});
    proven_ = random_.one_of<std::uint32_t>({0, 50, 100});
    with_table_ = !program_.swaps && random_.percent(15);
    pageable_ = random_.percent(6);
    plain_ = random_.percent(5);
    own_pool_ = random_.percent(8);
    carried_ = random_.percent(6);
    if (random_.percent(65)) {
      variation_ = random_.one_of({Variation::moves, Variation::moves, Variation::swaps, Variation::swaps,
                                   Variation::skips, Variation::shrinks, Variation::any});
      variations_ = random_.between(1, 4);
    }
    copies_ = random_.one_of<std::uint32_t>({10, 10, 25, 35});
    sets_ = random_.one_of<std::uint32_t>({6, 6, 15});
    same_sizes_ = random_.percent(60);
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
      add(i < 2 || same_sizes_ ? Memory::device : memory, i < 2 || same_sizes_ ? size : 4 * random_.between(32, 300));
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

  // A place of so many bytes whose read parts are all defined; nothing if the draw had no luck.
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
    op.ranges = touched(program_, op);
    if (!contents_.apply(op)) return false;
    program_.ops.push_back(std::move(op));
    return true;
  }

  // The same for an op with pointers, some of which may be elsewhere in other steps. What an op writes that is not part
  // of every step must have been there before.
  void take_varied(Op op) {
    op.ranges = touched(program_, op);
    if (!apart(op, op.ranges)) return;
    // Kernels are taken to touch whole objects: that their pointers move inside them is of little interest.
    const bool dull = variation_ == Variation::moves && op.kind == OpKind::launch;
    if (variations_ > 0 && random_.percent(dull ? 5 : 35)) vary(op);
    take(std::move(op));
  }

  // One thing about the op that is not as it is in all other steps. One kind of variation per program, mostly: a step
  // of which everything is different is recognised at once.
  void vary(Op& op) {
    const Variation kind =
        variation_ == Variation::any
            ? random_.one_of({Variation::moves, Variation::swaps, Variation::skips, Variation::shrinks})
            : variation_;
    for (int tries = 0; tries < 8; ++tries) {
      Op changed = op;
      const bool on_pointer = kind == Variation::moves || kind == Variation::swaps;
      if (on_pointer && (op.places.empty() || op.kernel == Kernel::moved || op.kernel == Kernel::backwards)) return;
      Place* place =
          on_pointer ? &changed.places[random_.below(static_cast<std::uint32_t>(op.places.size()))] : nullptr;
      switch (kind) {
        case Variation::moves:
          place->stride = 4 * random_.between(1, 60);
          place->period = random_.between(2, 3);
          break;
        case Variation::swaps:
          place->other = random_.below(static_cast<std::uint32_t>(program_.buffers.size()));
          place->other_odd = random_.percent(50);
          if (!place->other_odd) place->other_from = random_.between(1, 4);
          if (place->other == place->buffer) continue;
          break;
        case Variation::skips:
          changed.skip = random_.between(2, program_.repeats);
          break;
        default:
          if (op.kind != OpKind::launch) return;
          changed.shrinks = true;
          break;
      }
      if (!holds_in_all_steps(changed)) continue;
      op = std::move(changed);
      --variations_;
      return;
    }
  }

  bool holds_in_all_steps(const Op& op) const {
    for (std::uint32_t step = 0; step < program_.repeats; ++step) {
      const std::vector<Range> ranges = touched(program_, op, step);
      for (const Range& range : ranges) {
        const Buffer& buffer = program_.buffers[range.buffer];
        if (range.end > buffer.bytes || buffer.addresses || !contents_.live(range.buffer)) return false;
        if (!contents_.written(range.buffer, range.begin, range.end) || (buffer.input && range.writes)) return false;
      }
      for (std::size_t i = 0; i < op.places.size(); ++i) {
        // Memory that stays, and of the same kind: the call that copies is the same in all steps.
        const Place here = at_step(op.places[i], step);
        const Memory was = program_.buffers[op.places[i].buffer].memory, is = program_.buffers[here.buffer].memory;
        if (here.buffer != op.places[i].buffer &&
            (of_step(was) || of_step(is) || on_device(was) != on_device(is) || is == Memory::pageable))
          return false;
      }
      if (!apart(op, ranges)) return false;
    }
    return true;
  }

  void draw() {
    const std::uint32_t what = random_.below(100);
    if (what < 14) return draw_alloc();
    if (what < 20) return draw_free();
    if (what < 24) return draw_event();
    if (what < 24 + syncs_) return draw_read();
    if (what < 30 && !program_.graph.empty()) return draw_graph();
    if (what < 34 && with_table_) return draw_table_copy();
    if (what >= 100 - copies_) return draw_copy();
    if (what >= 100 - copies_ - sets_) return draw_set();
    Op op = draw_launch(false);
    if (op.count != 0) take_varied(std::move(op));
  }

  void draw_alloc() {
    if (std::count_if(program_.buffers.begin(), program_.buffers.end(),
                      [](const Buffer& b) { return of_step(b.memory); }) > 24)
      return;
    Op op;
    op.kind = OpKind::alloc;
    op.stream = stream();
    Memory memory = Memory::local;
    if (plain_ && random_.percent(30)) memory = Memory::plain;
    if (own_pool_ && random_.percent(30)) memory = Memory::own_pool;
    if (carried_ && random_.percent(30)) memory = Memory::carried;
    op.buffer = add(memory, sizes_[random_.below(kSizes)]);
    if (memory == Memory::carried) {
      // The one of the step before goes first; some ops may come between.
      Op before = op;
      before.kind = OpKind::free;
      take(std::move(before));
      carried_ = false;
      for (std::uint32_t i = random_.below(3); i > 0; --i) draw();
      carried_ = true;
    }
    take(std::move(op));
  }

  bool goes_with_step(std::uint32_t buffer) const {
    const Memory memory = program_.buffers[buffer].memory;
    return of_step(memory) && memory != Memory::carried && contents_.live(buffer);
  }

  void draw_free() {
    std::vector<std::uint32_t> live;
    for (std::uint32_t i = 0; i < program_.buffers.size(); ++i)
      if (goes_with_step(i)) live.push_back(i);
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
    op.blocking = random_.percent(2);
    take(std::move(op));
  }

  void free_all() {
    std::vector<std::uint32_t> live;
    for (std::uint32_t i = 0; i < program_.buffers.size(); ++i)
      if (goes_with_step(i)) live.push_back(i);
    while (!live.empty()) {
      const std::uint32_t at = random_.below(static_cast<std::uint32_t>(live.size()));
      add_free(live[at]);
      live.erase(live.begin() + at);
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
    // A copy between two host addresses is not of interest.
    if (!on_device(program_.buffers[to->buffer].memory) && !on_device(program_.buffers[from->buffer].memory)) return;
    op.blocking = may_block() && random_.percent(4);
    op.opaque = program_.buffers[to->buffer].memory == Memory::pageable ||
                program_.buffers[from->buffer].memory == Memory::pageable;
    op.places = {*to, *from};
    take_varied(std::move(op));
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
    take_varied(std::move(op));
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
      op.kind = random_.percent(30) ? OpKind::poll : OpKind::host_wait;
      op.event = random_.below(program_.events);
    }
    take(std::move(op));
  }

  // Something comes back to the host, which waits for it.
  void draw_read() {
    Op op;
    op.kind = OpKind::synchronize;
    if (const auto place = find(4 * random_.between(1, 24), true, true)) op.places = {*place};
    // The host reads as much as there is, after this place.
    if (!op.places.empty() && on_device(program_.buffers[op.places[0].buffer].memory)) op.places.clear();
    take(std::move(op));
  }

  void draw_table_copy() {
    Op op;
    op.kind = OpKind::copy;
    op.stream = stream();
    op.width = op.to_pitch = op.from_pitch = 16;
    op.places = {{program_.table_buffer, 0}, {program_.table_host, 0}};
    take(std::move(op));
  }

  // A few ops on memory that stays, captured before the first step.
  void make_graph() {
    if (program_.swaps) return;
    for (std::uint32_t i = random_.between(1, 4); i > 0; --i) {
      Op op = draw_launch(true);
      if (op.count == 0) continue;
      op.ranges = touched(program_, op);
      // What the host writes comes at another address each time.
      if (std::any_of(op.ranges.begin(), op.ranges.end(),
                      [&](const Range& range) { return program_.buffers[range.buffer].input; }))
        continue;
      if (apart(op, op.ranges)) program_.graph.push_back(std::move(op));
    }
  }

  void draw_graph() {
    Op op;
    op.kind = OpKind::graph;
    op.stream = stream();
    for (const Op& node : program_.graph) op.opaque |= node.opaque || node.kernel == Kernel::by_struct;
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
    op.packed = random_.percent(10);
    op.salt = static_cast<std::uint32_t>(random_.next());
    const std::uint32_t count = random_.between(1, op.kernel == Kernel::through_table ? kTableCount
                                                   : random_.percent(80)              ? 96
                                                                                      : 12);
    if (op.kernel == Kernel::by_struct && random_.percent(40)) {
      op.stale = true;
      op.buffer = random_.below(static_cast<std::uint32_t>(program_.buffers.size()));
    }
    if (find_places(op, count)) op.count = count;
    return op;
  }

  // The pointers of a launch, in the order of parameters.
  bool find_places(Op& op, std::uint32_t count) {
    const std::uint32_t bytes = 4 * count;
    const auto pointer = [&](std::uint32_t size, bool reads, bool writes) {
      const auto place = find(size, reads);
      if (!place || (writes && program_.buffers[place->buffer].input)) return false;
      op.places.push_back(*place);
      return true;
    };
    const auto in = [&](std::uint32_t size) { return pointer(size, true, false); };
    const auto out = [&](std::uint32_t size) { return pointer(size, false, true); };
    const auto in_out = [&](std::uint32_t size) { return pointer(size, true, true); };
    switch (op.kernel) {
      case Kernel::map1:
      case Kernel::map3:
      case Kernel::by_struct:
      case Kernel::opaque_map:
        return in(bytes) && out(bytes);
      case Kernel::bytes:
        if (!in(count + 3) || !out(count + 3)) return false;
        for (Place& place : op.places) place.offset += random_.below(4);
        return true;
      case Kernel::gather:
        return in(bytes) && in(bytes) && out(bytes);
      case Kernel::by_array:
        return out(bytes) && in(bytes) && in(bytes);
      case Kernel::in_place:
      case Kernel::opaque_in_place:
        return in_out(bytes);
      case Kernel::accumulate:
        return in_out(bytes) && in(bytes);
      case Kernel::reduce:
        return in(bytes) && in_out(4);
      case Kernel::scatter:
        return in(bytes) && in_out(bytes);
      case Kernel::fill:
        return out(bytes);
      case Kernel::strided:
        op.stride = random_.between(2, 4);
        return in(bytes) && out(4 * ((count - 1) * op.stride + 1));
      case Kernel::moved: {
        // The pointer is to anywhere in what holds both places.
        const auto to = find(bytes, false);
        if (!to) return false;
        const Place from = place_in(to->buffer, bytes);
        if (!contents_.written(from.buffer, from.offset, from.offset + bytes)) return false;
        op.places = {place_in(to->buffer, 4), *to, from};
        return true;
      }
      case Kernel::backwards:
        if (!in_out(bytes)) return false;
        op.places[0].offset += bytes - 4;
        return true;
      case Kernel::sometimes:
        return in(4) && in_out(bytes);
      case Kernel::through_table:
        op.places = {{program_.table_buffer, 0}};
        return true;
      case Kernel::count:
        break;
    }
    return false;
  }

  enum class Variation { moves, swaps, skips, shrinks, any };

  static constexpr std::uint32_t kSizes = 3, kTableCount = 16;

  Random random_;
  Program program_;
  Contents contents_;
  std::uint32_t sizes_[kSizes] = {};
  std::uint32_t syncs_ = 0, opaque_ = 0, proven_ = 0, copies_ = 0, sets_ = 0;  // in per cent
  std::uint32_t marked_ = 0, variations_ = 0;
  Variation variation_ = Variation::any;
  bool same_sizes_ = false;
  const bool several_streams_;
  bool with_table_ = false, pageable_ = false, plain_ = false, own_pool_ = false, carried_ = false;
};

}  // namespace

Program draw_program(std::uint64_t seed, bool several_streams) { return Generator(seed, several_streams).run(); }

}  // namespace nimble::oracle
