// What is changed of the memory that a step uses.
#include <algorithm>

#include "tests/oracle/disorder/changes.h"

namespace nimble::oracle {

// What the step allocated is not freed by it, but by another one.
void StepChanges::keep(Random& random) {
  const Op* const free = one_of(
      [&](const Op& o) {
        return o.kind == OpKind::free && of_step(program_.buffers[o.buffer].memory) &&
               program_.buffers[o.buffer].memory != Memory::carried;
      },
      random);
  if (free == nullptr) return;
  Buffer kept = program_.buffers[free->buffer];
  kept.memory = kept.memory == Memory::plain ? Memory::device : Memory::pooled;
  kept.later = true;
  Op op;
  op.kind = OpKind::keep;
  op.stream = free->stream;
  op.buffer = free->buffer;
  op.other = static_cast<std::uint32_t>(program_.buffers.size());
  program_.buffers.push_back(kept);
  ops_[static_cast<std::size_t>(free - ops_.data())] = std::move(op);
}

void StepChanges::free_kept(Random random) {
  Op op;
  op.kind = OpKind::free;
  op.buffer = kept_[some(kept_.size(), random)];
  op.stream = some(program_.streams + 1, random);
  op.blocking = program_.buffers[op.buffer].memory == Memory::device || random.percent(20);
  insert(std::move(op), random);
}

// Memory that stays changes its place; not where addresses of it are kept elsewhere.
void StepChanges::memory(ChangeKind kind, Random& random) {
  if (!program_.graph.empty() || !program_.table.empty()) return;
  std::vector<std::uint32_t> found;
  for (std::uint32_t i = 0; i < program_.buffers.size(); ++i) {
    const Memory memory = program_.buffers[i].memory;
    const bool pinned = memory == Memory::pinned && kind != ChangeKind::renew;
    if (stays(i) && (memory == Memory::device || pinned)) found.push_back(i);
  }
  if (found.empty()) return;
  Op op;
  op.buffer = found[some(found.size(), random)];
  op.kind = kind == ChangeKind::exchange ? OpKind::exchange : OpKind::replace;
  op.blocking = kind == ChangeKind::renew;
  op.salt = static_cast<std::uint32_t>(random.next());
  if (kind == ChangeKind::exchange) {
    const Buffer& mine = program_.buffers[op.buffer];
    std::vector<std::uint32_t> alike;
    for (const std::uint32_t i : found) {
      const Buffer& other = program_.buffers[i];
      if (i != op.buffer && other.memory == mine.memory && other.bytes == mine.bytes && other.input == mine.input)
        alike.push_back(i);
    }
    if (alike.empty()) return;
    op.other = alike[some(alike.size(), random)];
    // Users of the one are ordered before users of the other, which is the same memory by then.
    for (const std::uint32_t buffer : {op.buffer, op.other})
      op.ranges.push_back({buffer, 0, program_.buffers[buffer].bytes, true});
  }
  // Between steps, as frameworks do, or in their midst.
  ops_.insert(ops_.begin() + (random.percent(60) ? 0 : some(ops_.size(), random)), std::move(op));
}

// Allocated, filled, used, and freed.
void StepChanges::new_object(Random& random) {
  Buffer buffer{random.one_of({Memory::local, Memory::local, Memory::own_pool, Memory::plain}),
                4 * random.between(24, 280)};
  for (const Buffer& other : program_.buffers)
    if (of_step(other.memory) && random.percent(30)) buffer.bytes = other.bytes;
  const auto index = static_cast<std::uint32_t>(program_.buffers.size());
  program_.buffers.push_back(buffer);
  std::uint32_t at = some(ops_.size(), random);
  const auto put = [&](Op op) {
    op.stream = random.percent(80) ? 0 : some(program_.streams + 1, random);
    ops_.insert(ops_.begin() + at, std::move(op));
    at += 1 + some(ops_.size() - at, random);
  };
  Op alloc, fill, use, free;
  alloc.kind = OpKind::alloc;
  free.kind = OpKind::free;
  alloc.buffer = free.buffer = index;
  fill.kernel = Kernel::fill;
  fill.count = buffer.bytes / 4;
  fill.salt = static_cast<std::uint32_t>(random.next());
  fill.places = {{index, 0}};
  use.kernel = Kernel::accumulate;
  use.count = std::min(fill.count, program_.buffers[0].bytes / 4);
  use.places = {{0, 0}, {index, 0}};
  for (const Op& op : {alloc, fill, use, free}) put(op);
}

// What the step allocated is used, and then freed, on the spare stream.
void StepChanges::elsewhere(Random& random) {
  Op* const free = one_of(
      [&](const Op& o) {
        const Memory memory = program_.buffers[o.buffer].memory;
        return o.kind == OpKind::free && (memory == Memory::local || memory == Memory::own_pool);
      },
      random);
  if (free == nullptr) return;
  free->stream = program_.streams;
  Op use;
  use.stream = free->stream;
  use.kernel = random.one_of({Kernel::in_place, Kernel::fill});
  use.places = {{free->buffer, 0}};
  use.count = program_.buffers[free->buffer].bytes / 4;
  const auto at = free - ops_.data();
  for (std::uint32_t i = random.between(1, 4); i > 0; --i) {
    use.salt = static_cast<std::uint32_t>(random.next());
    ops_.insert(ops_.begin() + at, use);
  }
}

}  // namespace nimble::oracle
