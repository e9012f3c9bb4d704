#include "replayer/onlookers/stream_clocks.h"

#include <algorithm>

namespace nimble {

namespace {

bool keeps_order_with_legacy(StreamKind kind) { return kind == StreamKind::blocking || kind == StreamKind::per_thread; }

}  // namespace

StreamClocks::StreamClocks() : slots_(kMostStreams), events_(kMostEvents), pending_(kMostCalls) {}

// Those that have entered get a number. It is on its way as long as any may be, of whichever number.
void StreamClocks::count_entered(std::uint32_t slot) {
  Slot& mine = slots_[slot];
  const std::uint64_t number = mine.arrived + 1;
  if (streams_[slot].passing.take_any()) mine.entered = mine.arrived = number;
  for (std::size_t i = 0; i < gates_used_; ++i)
    if (gates_[i].slot_ == slot && gates_[i].passing_.take_any()) gates_[i].last_ = mine.arrived = number;
  if (mine.arrived == number) {
    if (!mine.lingers && mine.open++ == 0) mine.first_open = number;
    mine.lingers = true;
  }
  if (!mine.lingers || is_passing(slot)) return;
  mine.lingers = false;
  --mine.open;
}

bool StreamClocks::is_passing(std::uint32_t slot) const {
  if (streams_[slot].passing.is_busy()) return true;
  return std::any_of(gates_.begin(), gates_.begin() + static_cast<std::ptrdiff_t>(gates_used_),
                     [&](const Gate& gate) { return gate.slot_ == slot && gate.is_busy(); });
}

StreamClocks::Op StreamClocks::entered(std::uint32_t slot) {
  count_entered(slot);
  const std::uint64_t number = slots_[slot].entered;
  return number > done_[slot] ? Op{slot, number, 0} : Op{};
}

StreamClocks::Gate* StreamClocks::take_gate() {
  auto* const end = gates_.begin() + gates_used_;
  auto* const free = std::find_if(gates_.begin(), end, [](const Gate& gate) { return !gate.taken_; });
  if (free == end && gates_used_ == kMostGates) return nullptr;
  if (free == end) ++gates_used_;
  free->taken_ = true;
  return free;
}

void StreamClocks::give_back(Gate& gate) {
  close(gate);
  entered(gate);
  gate.slot_ = kNone;
  gate.last_ = 0;
  gate.taken_ = false;
}

void StreamClocks::open(Gate& gate, Op op) {
  if (op.number == 0 || is_joined(op.slot)) return;
  if (gate.slot_ != op.slot) {
    close(gate);
    entered(gate);
    if (gate.is_busy()) return;
    gate.slot_ = op.slot;
    gate.last_ = 0;
  }
  gate.open_for_.store(keys_[op.slot].load(std::memory_order_relaxed), std::memory_order_release);
}

void StreamClocks::close(Gate& gate) {
  if (gate.open_for_.load(std::memory_order_relaxed) != 0) gate.open_for_.store(0, std::memory_order_seq_cst);
}

// Of the slot, or all.
void StreamClocks::close_gates(std::uint32_t slot) {
  for (std::size_t i = 0; i < gates_used_; ++i)
    if (slot == kNone || gates_[i].slot_ == slot) close(gates_[i]);
}

StreamClocks::Op StreamClocks::entered(Gate& gate) {
  if (gate.slot_ == kNone) return {};
  if (gate.passing_.has_any()) count_entered(gate.slot_);
  return {gate.slot_, gate.last_, 0};
}

// What clocks say of a slot's ops stays true where all of them have finished.
bool StreamClocks::is_free(std::uint32_t slot) {
  count_entered(slot);
  return slots_[slot].open == 0 && done_[slot] >= slots_[slot].arrived;
}

std::uint32_t StreamClocks::find_or_add(const Stream& stream) {
  const std::uint32_t known = find(stream.ref.key);
  if (known != kNone || stream.ref.key == 0) return known;
  close_gates();  // the new one may get the slot of another, or be joined with others
  std::uint32_t found = kNone;
  for (std::uint32_t i = 0; i < used() && (found == kNone || keys_[found] != 0); ++i)
    if (is_free(i) && (found == kNone || keys_[i] == 0)) found = i;
  const bool is_new = used() < kMostStreams && (found == kNone || keys_[found] != 0);
  if (is_new) found = static_cast<std::uint32_t>(used());
  if (found == kNone) return kNone;
  Slot& slot = slots_[found];
  keys_[found].store(stream.ref.key, std::memory_order_release);
  slot.kind = stream.kind;
  slot.context = stream.context;
  slot.clock = {};
  if (is_new) used_.store(found + 1, std::memory_order_release);
  for (std::uint32_t i = 0; i < used(); ++i) {
    if (!join_each_other(found, i)) continue;
    streams_[found].joined.store(true, std::memory_order_release);
    streams_[i].joined.store(true, std::memory_order_release);
  }
  return found;
}

// What comes on the legacy stream comes after all that is on the streams that keep order with it, and the other way
// about.
bool StreamClocks::join_each_other(std::uint32_t one, std::uint32_t other) const {
  const Slot &a = slots_[one], &b = slots_[other];
  if (one == other || keys_[one] == 0 || keys_[other] == 0 || a.context != b.context) return false;
  return (a.kind == StreamKind::legacy && keeps_order_with_legacy(b.kind)) ||
         (keeps_order_with_legacy(a.kind) && b.kind == StreamKind::legacy);
}

StreamClocks::Clock StreamClocks::present(std::uint32_t slot) {
  count_entered(slot);
  Clock clock = slots_[slot].clock;
  clock.raise(slot, slots_[slot].own());
  return clock;
}

StreamClocks::Clock StreamClocks::before_next(std::uint32_t slot) {
  Clock clock = present(slot);
  for (std::uint32_t i = 0; i < used(); ++i)
    if (join_each_other(slot, i)) clock.join(present(i));
  return clock;
}

StreamClocks::Event* StreamClocks::find(CUevent event) {
  if (!event) return nullptr;
  const auto end = event_names_.begin() + static_cast<std::ptrdiff_t>(std::min(next_event_, kMostEvents));
  const auto found = std::find(event_names_.begin(), end, event);
  return found == end ? nullptr : &events_[static_cast<std::size_t>(found - event_names_.begin())];
}

StreamClocks::Event& StreamClocks::find_or_add(CUevent event) {
  if (Event* const known = find(event)) return *known;
  const std::size_t place = next_event_++ % kMostEvents;
  event_names_[place] = event;
  return events_[place];
}

StreamClocks::Token StreamClocks::begin(Pending::What what, CUevent event, std::uint32_t slot, const Clock& clock) {
  // Some room is kept for records: without any, it could not be told which wait is for which record.
  constexpr std::size_t kForRecords = 16;
  const std::size_t room = what == Pending::What::record ? kMostCalls : kMostCalls - kForRecords;
  for (std::size_t i = 0; i < room; ++i) {
    Pending& pending = pending_[i];
    if (pending.what != Pending::What::none) continue;
    const Event* const known = find(event);
    pending = {what, event, known ? known->version : 0, slot, slot == kNone ? 0 : keys_[slot].load(), clock};
    if (what == Pending::What::record) ++records_;
    return static_cast<Token>(i + 1);
  }
  return 0;
}

StreamClocks::Op StreamClocks::arrives(const Stream& stream) {
  const std::uint32_t index = find_or_add(stream);
  if (index == kNone) return {};
  Slot& slot = slots_[index];
  count_entered(index);
  const Token token =
      slot.kind == StreamKind::non_blocking ? 0 : begin(Pending::What::op, nullptr, index, before_next(index));
  ++slot.arrived;
  if (slot.open++ == 0) slot.first_open = slot.arrived;
  return {index, slot.arrived, token};
}

void StreamClocks::landed(Op op, bool good) {
  if (op.number == 0) return;
  ended(op.token, good);
  if (slots_[op.slot].open != 0) --slots_[op.slot].open;
}

StreamClocks::Token StreamClocks::records(CUevent event, const Stream& stream) {
  if (!event) return 0;
  const std::uint32_t slot = find_or_add(stream);
  Event& entry = find_or_add(event);
  // Until the driver has had it, a wait may be for either of the two.
  entry.version = ++version_;
  entry.known = false;
  // Nor of two records at a time which one is the later.
  bool alone = true;
  for (std::size_t i = 0, left = records_; left > 0; ++i) {
    Pending& other = pending_[i];
    if (other.what != Pending::What::record) continue;
    --left;
    if (other.event != event) continue;
    other.version = 0;
    alone = false;
  }
  if (slot == kNone) return 0;
  const Token token = begin(Pending::What::record, event, slot, before_next(slot));
  if (token == 0) blind_ = true;  // it could not be told from one that comes meanwhile
  if (token != 0 && (!alone || blind_)) pending_[token - 1].version = 0;
  return token;
}

StreamClocks::Token StreamClocks::waits(const Stream& stream, CUevent event) {
  const Event* const entry = find(event);
  const std::uint32_t slot = entry && is_known(*entry) ? find_or_add(stream) : kNone;
  if (slot == kNone) return 0;
  return begin(Pending::What::wait, event, slot, entry->clock);
}

StreamClocks::Token StreamClocks::host_waits(const Stream& stream) {
  const std::uint32_t slot = find(stream.ref.key);
  if (slot == kNone) return 0;
  return begin_host_wait(nullptr, slot, present(slot));
}

StreamClocks::Token StreamClocks::host_waits(CUevent event) {
  const Event* const entry = find(event);
  if (!entry || !is_known(*entry)) return 0;
  return begin_host_wait(event, kNone, entry->clock);
}

StreamClocks::Token StreamClocks::host_waits(Op op) {
  if (op.number == 0) return 0;
  Clock clock = before_next(op.slot);
  // Others may be on their way to the same stream, and come after it.
  const Slot& slot = slots_[op.slot];
  if (slot.open != 0 && slot.first_open == op.number) clock.raise(op.slot, op.number);
  return begin_host_wait(nullptr, op.slot, clock);
}

StreamClocks::Token StreamClocks::host_waits_for_context(std::uint64_t context) {
  Clock clock;
  for (std::uint32_t i = 0; i < used(); ++i)
    if (slots_[i].context == context) clock.join(present(i));
  return begin_host_wait(nullptr, kNone, clock);
}

void StreamClocks::ended(Token token, bool good) {
  if (token == 0) return;
  Pending& pending = pending_[token - 1];
  const Pending::What what = pending.what;
  pending.what = Pending::What::none;
  if (what == Pending::What::record) --records_;
  if (!good) return;
  if (pending.slot != kNone && keys_[pending.slot] != pending.key) return;  // it has ended meanwhile
  Event* const entry = find(pending.event);
  // It is recorded anew, or nothing is known of it any more.
  if (pending.event && (!entry || entry->version != pending.version || entry->version <= forgotten_)) return;
  switch (what) {
    case Pending::What::record:
      entry->clock = pending.clock;
      entry->known = true;
      entry->version = ++version_;
      [[fallthrough]];
    case Pending::What::op:
    case Pending::What::wait:
      slots_[pending.slot].clock.join(pending.clock);
      break;
    case Pending::What::host:
      done_.join(pending.clock);
      break;
    case Pending::What::none:
      break;
  }
}

void StreamClocks::forget(CUevent event) {
  if (Event* const entry = find(event)) {
    entry->known = false;
    entry->version = ++version_;
  }
}

void StreamClocks::forget_events() { forgotten_ = version_; }

void StreamClocks::ends(const StreamRef& stream) {
  const std::uint32_t slot = find(stream.key);
  if (slot == kNone) return;
  close_gates(slot);
  keys_[slot] = 0;
}

void StreamClocks::forget_streams() {
  close_gates();
  for (auto& key : keys_) key.store(0, std::memory_order_seq_cst);
}

void StreamClocks::context_ends(std::uint64_t context) {
  for (std::uint32_t i = 0; i < used(); ++i) {
    Slot& slot = slots_[i];
    if (slot.context != context) continue;
    close_gates(i);
    count_entered(i);
    keys_[i] = 0;
    done_.raise(i, slot.own());
  }
}

StreamClocks::Clock StreamClocks::so_far(const Stream& stream) {
  const std::uint32_t slot = find_or_add(stream);
  return slot == kNone ? Clock{} : present(slot);
}

StreamClocks::Clock StreamClocks::before(const Stream& stream) {
  const std::uint32_t slot = find_or_add(stream);
  Clock clock = slot == kNone ? Clock{} : before_next(slot);
  clock.join(done_);
  return clock;
}

}  // namespace nimble
