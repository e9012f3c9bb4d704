#include "tests/oracle/disorder/changes.h"

#include <algorithm>

#include "tests/oracle/program/contents.h"
#include "tests/oracle/program/ranges.h"

namespace nimble::oracle {
namespace {

// What the op touches. If the host waits for one stream, the memory that it then reads must be ordered after all
// others, too.
std::vector<Range> ranges_of(const Program& program, const Op& op) {
  std::vector<Range> ranges = touched(program, op, 0);
  const bool reads = (op.kind == OpKind::synchronize && program.streams == 1) || op.kind == OpKind::host_wait;
  if (reads) {
    for (const Place& place : op.places)
      ranges.push_back({place.buffer, place.offset,
                        std::min(place.offset + kReadBytes, program.buffers[place.buffer].bytes), false});
  }
  return ranges;
}

bool moves_memory(const Op& op) {
  return op.kind == OpKind::launch || op.kind == OpKind::copy || op.kind == OpKind::set;
}

}  // namespace

void StepChanges::insert(Op op, Random& random) {
  ops_.insert(ops_.begin() + some(ops_.size() + 1, random), std::move(op));
}

bool StepChanges::stays(std::uint32_t buffer) const {
  const Buffer& found = program_.buffers[buffer];
  return !of_step(found.memory) && !found.later && !found.addresses;
}

bool StepChanges::can_be(const Op& op) const {
  const std::vector<Range> ranges = ranges_of(program_, op);
  const bool inside = std::all_of(ranges.begin(), ranges.end(), [&](const Range& range) {
    const Buffer& buffer = program_.buffers[range.buffer];
    return range.begin < range.end && range.end <= buffer.bytes && !(range.writes && buffer.input) &&
           !(range.writes && buffer.addresses && op.kind != OpKind::copy);
  });
  return inside && (op.kind == OpKind::graph || apart(op, ranges));  // what a graph holds comes one after the other
}

bool StepChanges::move(Op& op, std::size_t place, std::uint32_t at, Random& random) const {
  if (op.kernel == Kernel::moved || op.kernel == Kernel::backwards || op.kernel == Kernel::through_table) return false;
  Contents contents(program_.buffers);
  for (const std::uint32_t buffer : kept_) contents.bring(buffer);
  for (std::uint32_t i = 0; i < at; ++i) {
    Op before = ops_[i];
    before.ranges = ranges_of(program_, before);
    contents.apply(before);
  }
  const Buffer was = program_.buffers[op.places[place].buffer];
  for (int tries = 0; tries < 16; ++tries) {
    Op changed = op;
    Place& to = changed.places[place];
    if (!random.percent(25)) to.buffer = some(program_.buffers.size(), random);
    const Buffer& is = program_.buffers[to.buffer];
    if (is.addresses || was.addresses || is.memory == Memory::pageable || was.memory == Memory::pageable) continue;
    if (on_device(is.memory) != on_device(was.memory)) continue;
    if (!random.percent(30)) to.offset = 4 * random.below(is.bytes / 4);
    if (to.buffer == op.places[place].buffer && to.offset == op.places[place].offset) continue;
    if (!can_be(changed)) continue;
    Op tried = changed;
    tried.ranges = ranges_of(program_, tried);
    if (!Contents(contents).apply(tried)) continue;
    op = std::move(changed);
    return true;
  }
  return false;
}

void StepChanges::apply(ChangeKind kind, Random random) {
  if (ops_.empty()) return;
  const std::uint32_t at = some(ops_.size(), random);
  switch (kind) {
    case ChangeKind::leave_out:
      return leave_out(random);
    case ChangeKind::add:
      return add(random);
    case ChangeKind::swap:
      return std::swap(ops_[at], ops_[random.percent(60) ? (at + 1) % ops_.size() : some(ops_.size(), random)]);
    case ChangeKind::pointer:
      return pointer(random);
    case ChangeKind::size:
      return size(random);
    case ChangeKind::shape:
      if (Op* op = one_of([](const Op& o) { return o.kind == OpKind::launch; }, random))
        op->more_blocks = random.between(1, 3);
      return;
    case ChangeKind::value:
      if (Op* op = one_of([](const Op& o) { return moves_memory(o); }, random)) {
        op->salt = static_cast<std::uint32_t>(random.next());
        Op other = *op;
        other.stride = random.between(2, 5);
        other.packed = random.percent(50);
        if (can_be(other)) *op = other;
      }
      return;
    case ChangeKind::kernel:
      return kernel(random);
    case ChangeKind::alloc_size:
      if (Op* op = one_of([](const Op& o) { return o.kind == OpKind::alloc; }, random))
        op->more_bytes = random.one_of<std::uint32_t>({4, 256, 512, 4096});
      return;
    case ChangeKind::keep:
      return keep(random);
    case ChangeKind::exchange:
    case ChangeKind::replace:
    case ChangeKind::renew:
      return memory(kind, random);
    case ChangeKind::elsewhere:
      return elsewhere(random);
    case ChangeKind::wait_event:
      return wait_event(random);
    case ChangeKind::new_object:
      return new_object(random);
    case ChangeKind::cut:
      return ops_.resize(at);
    case ChangeKind::stream:
      if (Op* op = one_of([](const Op& o) { return moves_memory(o) || o.kind == OpKind::free; }, random))
        op->stream = some(program_.streams + 1, random);
      return;
    case ChangeKind::captured:
    case ChangeKind::reloaded:
      return relaunch(kind == ChangeKind::captured ? OpKind::captured : OpKind::reloaded, random);
    case ChangeKind::free_blocking:
      if (Op* op = one_of([](const Op& o) { return o.kind == OpKind::free; }, random)) op->blocking = true;
      return;
    default:
      return host(kind, random);
  }
}

void StepChanges::leave_out(Random& random) {
  const std::uint32_t first = some(ops_.size(), random);
  const std::uint32_t count = random.percent(75) ? 1 : random.between(2, 5);
  ops_.erase(ops_.begin() + first, ops_.begin() + std::min<std::size_t>(first + count, ops_.size()));
}

// One of the step's once more, at another place.
void StepChanges::add(Random& random) {
  const Op* const found = one_of(moves_memory, random);
  if (found == nullptr) return;
  Op op = *found;
  const std::uint32_t at = some(ops_.size() + 1, random);
  if (!op.places.empty() && random.percent(60)) move(op, some(op.places.size(), random), at, random);
  op.salt = static_cast<std::uint32_t>(random.next());
  ops_.insert(ops_.begin() + at, std::move(op));
}

void StepChanges::pointer(Random& random) {
  Op* const op = one_of([](const Op& o) { return moves_memory(o) && !o.places.empty(); }, random);
  if (op != nullptr) move(*op, some(op->places.size(), random), static_cast<std::uint32_t>(op - ops_.data()), random);
}

void StepChanges::size(Random& random) {
  Op* const op = one_of(moves_memory, random);
  if (op == nullptr) return;
  for (int tries = 0; tries < 8; ++tries) {
    Op changed = *op;
    if (op->kind == OpKind::launch) {
      changed.count = random.between(1, 2 * op->count);
    } else if (op->height > 1 && random.percent(50)) {
      changed.height = random.between(1, 2 * op->height);
    } else {
      changed.width = op->element * random.between(1, 2 * op->width / op->element);
      if (op->height > 1 && changed.width > std::min(op->to_pitch, op->kind == OpKind::copy ? op->from_pitch : ~0u))
        continue;
    }
    if (!can_be(changed)) continue;
    *op = std::move(changed);
    return;
  }
}

// Another that takes the same parameters, or the same of another build.
void StepChanges::kernel(Random& random) {
  Op* const op = one_of([](const Op& o) { return o.kind == OpKind::launch; }, random);
  if (op == nullptr) return;
  const auto other = [&]() -> Kernel {
    switch (op->kernel) {
      case Kernel::map1:
        return random.one_of({Kernel::map3, Kernel::opaque_map});
      case Kernel::map3:
        return Kernel::map1;
      case Kernel::in_place:
        return random.one_of({Kernel::fill, Kernel::opaque_in_place});
      case Kernel::opaque_in_place:
        return Kernel::in_place;
      default:
        return op->kernel;
    }
  };
  Op changed = *op;
  changed.kernel = other();
  if (changed.kernel == op->kernel && op->kernel < Kernel::through_table) changed.proven = !op->proven;
  if (changed.kernel >= Kernel::through_table) changed.proven = false;
  if (can_be(changed)) *op = std::move(changed);
}

// The host waits for one of the step's own events, and reads results of earlier ops.
void StepChanges::wait_event(Random& random) {
  const Op* const record = one_of([](const Op& o) { return o.kind == OpKind::record; }, random);
  if (record == nullptr) return;
  Op op = *record;
  op.kind = OpKind::host_wait;
  std::vector<std::uint32_t> pinned;
  for (std::uint32_t i = 0; i < program_.buffers.size(); ++i)
    if (stays(i) && program_.buffers[i].memory == Memory::pinned) pinned.push_back(i);
  if (!pinned.empty()) op.places = {{pinned[some(pinned.size(), random)], 0}};
  if (!op.places.empty()) op.places[0].offset = 4 * some(program_.buffers[op.places[0].buffer].bytes / 4, random);
  ops_.insert(ops_.begin() + (record - ops_.data()) + 1, std::move(op));
}

// Calls by which the host sees how far the work is, or what it has made.
void StepChanges::host(ChangeKind kind, Random& random) {
  Op op;
  op.stream = some(program_.streams, random);
  switch (kind) {
    case ChangeKind::wait:
      op.kind = OpKind::synchronize;
      op.stream = 0;
      break;
    case ChangeKind::wait_stream:
      op.kind = OpKind::wait_stream;
      break;
    case ChangeKind::query:
      op.kind = OpKind::query;
      break;
    case ChangeKind::poll:
    case ChangeKind::renew_event:
      if (program_.events == 0) return;
      op.kind = kind == ChangeKind::poll ? OpKind::poll : OpKind::renew_event;
      op.event = some(program_.events, random);
      break;
    case ChangeKind::read_back:
    case ChangeKind::look: {
      op.kind = kind == ChangeKind::look ? OpKind::look : OpKind::read_back;
      op.stream = 0;
      op.width = 4 * random.between(1, 24);
      const std::uint32_t at = some(ops_.size() + 1, random);
      op.places = {{0, 0}};
      move(op, 0, at, random);
      if (can_be(op)) ops_.insert(ops_.begin() + at, std::move(op));
      return;
    }
    case ChangeKind::host_function:
      op.kind = OpKind::host_function;
      break;
    case ChangeKind::dawdle:
      op.kind = OpKind::dawdle;
      op.count = random.one_of<std::uint32_t>({100, 600, 1500});
      break;
    default:
      return;
  }
  insert(std::move(op), random);
}

void StepChanges::relaunch(OpKind kind, Random& random) {
  if (kind == OpKind::captured && program_.stream_kind == StreamKind::legacy) return;  // which cannot be captured
  if (Op* op = one_of([](const Op& o) { return o.kind == OpKind::launch; }, random)) op->kind = kind;
}

void StepChanges::finish() {
  Contents contents(program_.buffers);
  for (const std::uint32_t buffer : kept_) contents.bring(buffer);
  std::vector<Op> all;
  for (Op& op : ops_) {
    if (op.kind != OpKind::exchange) op.ranges = ranges_of(program_, op);
    if (!can_be(op)) continue;
    if (op.kind == OpKind::look && !contents.live(op.places[0].buffer)) continue;
    if (op.kind == OpKind::keep) {
      if (!contents.live(op.buffer) || !contents.written(op.buffer, 0, program_.buffers[op.buffer].bytes)) continue;
      contents.leave(op.buffer);
      contents.bring(op.other);
      kept_.push_back(op.other);
    } else if (!contents.apply(op)) {
      continue;
    }
    const auto gone = std::find(kept_.begin(), kept_.end(), op.buffer);
    if (op.kind == OpKind::free && gone != kept_.end()) kept_.erase(gone);
    all.push_back(std::move(op));
  }
  ops_ = std::move(all);
  for (std::uint32_t buffer = 0; buffer < program_.buffers.size(); ++buffer) {
    const Memory memory = program_.buffers[buffer].memory;
    if (!of_step(memory) || memory == Memory::carried || !contents.live(buffer)) continue;
    Op op;
    op.kind = OpKind::free;
    op.buffer = buffer;
    op.ranges = ranges_of(program_, op);
    ops_.push_back(std::move(op));
  }
}

}  // namespace nimble::oracle
