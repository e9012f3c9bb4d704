#include "replayer/onlookers.h"

#include "replayer/current_context.h"

namespace nimble {

namespace {

// Of a stream that has ended while something of it may be running.
constexpr std::uint64_t kEnded = 4;

// A thread's own default stream no other thread can name.
bool can_be_named(const StreamRef& stream) { return stream.key != kEnded && !stream.is_per_thread(); }

// The legacy stream is that of the context which is current, and its key tells which it is of.
CUcontext context_of_legacy(std::uint64_t key) {
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(key & ~std::uint64_t{3}));
}

bool is_idle(const DriverApi& driver, const StreamRef& stream) {
  if (!stream.is_legacy()) return driver.cuStreamQuery_(stream.handle) == CUDA_SUCCESS;
  const CurrentContext current(driver, context_of_legacy(stream.key));
  return driver.cuStreamQuery_(stream.handle) == CUDA_SUCCESS;
}

}  // namespace

bool are_in_order(const StreamRef& one, const StreamRef& other, CUcontext of, CallContext& context) {
  if (one.is_legacy() == other.is_legacy()) return one == other;
  const StreamRef& legacy = one.is_legacy() ? one : other;
  const auto bits = [](CUcontext each) { return reinterpret_cast<std::uint64_t>(each) & ~std::uint64_t{3}; };
  return bits(context_of_legacy(legacy.key)) == bits(of) &&
         context.stream_kind(one.is_legacy() ? other : one) != StreamKind::non_blocking;
}

const Onlookers::Stream* Onlookers::find(std::uint64_t key) const {
  for (const Stream& stream : streams())
    if (stream.key.load(std::memory_order_acquire) == key) return &stream;
  return nullptr;
}

Onlookers::Stream* Onlookers::find_or_add(const StreamRef& ref) {
  if (Stream* const found = find(ref.key)) return found;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    Stream& stream = all_[i];
    std::uint64_t none = 0;
    const bool added = stream.key.compare_exchange_strong(none, ref.key, std::memory_order_acq_rel);
    if (!added && none != ref.key) continue;  // else another thread was faster
    if (added) stream.handle.store(ref.handle, std::memory_order_release);
    for (std::size_t used = used_.load(std::memory_order_relaxed); used <= i;)
      used_.compare_exchange_weak(used, i + 1, std::memory_order_seq_cst);
    return &stream;
  }
  crowded_.store(true, std::memory_order_release);
  return nullptr;
}

void Onlookers::arrives(Call& call) {
  Stream* const stream = find_or_add(call.stream);
  if (!stream) return;
  stream->in_flight.fetch_add(1, std::memory_order_seq_cst);
  call.onlooker = static_cast<std::uint32_t>(stream - all_.data()) + 1;
}

void Onlookers::landed(const Call& call) {
  if (call.onlooker == 0) return;
  Stream& stream = all_[call.onlooker - 1];
  if (!call.synchronous()) {
    if (!stream.used.load(std::memory_order_relaxed)) stream.used.store(true, std::memory_order_relaxed);
    if (call.looks) stream.landed.fetch_add(1, std::memory_order_release);
  }
  if (call.looks) stream.looking.fetch_sub(1, std::memory_order_release);
  stream.in_flight.fetch_sub(1, std::memory_order_release);
}

void Onlookers::looks(Call& call) {
  if (call.onlooker == 0 || call.looks) return;
  call.looks = true;
  all_[call.onlooker - 1].looking.fetch_add(1, std::memory_order_release);
}

void Onlookers::has_been(const StreamRef& ref) {
  if (Stream* const stream = find_or_add(ref); stream && !stream->used.load(std::memory_order_relaxed))
    stream->used.store(true, std::memory_order_relaxed);
}

bool Onlookers::was_looked_from(const StreamRef& ref) const {
  const Stream* const stream = find(ref.key);
  return stream && stream->landed.load(std::memory_order_relaxed) != 0;
}

bool Onlookers::knows(CUevent event) const {
  for (const Record& record : records_)
    if (event && record.event.load(std::memory_order_acquire) == event) return true;
  return false;
}

Onlookers::Record* Onlookers::find(CUevent event) {
  for (Record& record : records_)
    if (event && record.event.load(std::memory_order_relaxed) == event) return &record;
  return nullptr;
}

void Onlookers::note(CUevent event, std::uint64_t stream, bool of_work, std::uint64_t number) {
  Record* record = find(event);
  if (!record) record = &records_[next_record_++ % records_.size()];
  record->stream = stream;
  record->of_work = of_work;
  record->number = number;
  record->event.store(event, std::memory_order_release);
}

void Onlookers::recorded(CUevent event, const StreamRef& work, std::uint64_t launch) {
  if (event) note(event, work.key, true, launch);
}

void Onlookers::recorded_outside(CUevent event, const StreamRef& ref) {
  Stream* const stream = find(ref.key);
  // What is on its way may come on either side of the record.
  const bool any =
      event && stream && (stream->probed || stream->landed.load(std::memory_order_acquire) != stream->settled);
  if (any && stream->looking.load(std::memory_order_acquire) == 0)
    return note(event, ref.key, false, stream->landed.load(std::memory_order_acquire));
  forget(event);
}

void Onlookers::forget(CUevent event) {
  if (Record* const record = find(event)) record->event.store(nullptr, std::memory_order_release);
}

void Onlookers::forget_events() {
  for (Record& record : records_) record.event.store(nullptr, std::memory_order_release);
}

void Onlookers::waits(const StreamRef& ref, CUevent event) {
  const Record* const record = find(event);
  if (!record || !record->of_work) return;
  Stream* const stream = find_or_add(ref);
  if (!stream || (stream->behind_work == record->stream && stream->behind_launch >= record->number)) return;
  stream->behind_work = record->stream;
  stream->behind_launch = record->number;
}

void Onlookers::work_waits(CUevent event) {
  const Record* const record = find(event);
  if (!record || record->of_work) return;
  Stream* const stream = find(record->stream);
  if (!stream || record->number < stream->settled) return;
  stream->settled = record->number;
  stream->probed = false;  // it is before the event
}

bool Onlookers::is_behind(const StreamRef& ref, const StreamRef& work, std::uint64_t launch) const {
  const Stream* const stream = find(ref.key);
  return stream && stream->behind_work == work.key && stream->behind_launch >= launch;
}

// Has an event behind all that has landed on the stream, or finds it idle.
bool Onlookers::probe(const DriverApi& driver, Stream& stream) {
  const std::uint64_t landed = stream.landed.load(std::memory_order_acquire);
  const StreamRef ref{stream.handle.load(std::memory_order_acquire), stream.key.load(std::memory_order_acquire)};
  if (!can_be_named(ref)) return false;
  if (is_idle(driver, ref)) {
    stream.settled = landed;
    stream.probed = false;
    return true;
  }
  // An event on the legacy stream would put others in order.
  if (ref.is_legacy()) return false;
  if (!stream.probe && driver.cuEventCreate_(&stream.probe, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    stream.probe = nullptr;
    return false;
  }
  // One that has not come true yet is recorded anew: what was before it is before that, too.
  if (driver.cuEventRecord_(stream.probe, ref.handle) != CUDA_SUCCESS) return false;  // of another context, perhaps
  stream.settled = landed;
  stream.probed = true;
  return true;
}

bool Onlookers::any(const DriverApi& driver, bool news, bool may_ask,
                    const std::function<bool(const StreamRef&)>& is_own) {
  if (crowded()) return true;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // whoever is not seen here sees the work's memory
  bool found = false;
  for (Stream& stream : streams()) {
    const std::uint64_t key = stream.key.load(std::memory_order_acquire);
    if (key == 0) continue;
    if (key != kEnded && is_own({stream.handle.load(std::memory_order_acquire), key})) continue;
    const bool in_flight = stream.in_flight.load(std::memory_order_acquire) != 0;
    const bool was_used = stream.used.load(std::memory_order_relaxed) && key != kEnded;
    if ((news && was_used) || (stream.arriving && !in_flight)) stream.landed.fetch_add(1, std::memory_order_relaxed);
    stream.arriving = in_flight && (news || stream.arriving);
    if (stream.arriving || stream.looking.load(std::memory_order_acquire) != 0) {
      found = true;
      continue;
    }
    const bool unsettled = stream.landed.load(std::memory_order_acquire) != stream.settled;
    if (!unsettled && !stream.probed) continue;
    if (!may_ask || (unsettled && !probe(driver, stream))) {
      found = true;
      continue;
    }
    if (stream.probed) stream.probed = driver.cuEventQuery_(stream.probe) != CUDA_SUCCESS;
    found = found || stream.probed;
    if (!stream.probed && key == kEnded) stream.key.store(0, std::memory_order_release);
  }
  return found;
}

void Onlookers::ends(const DriverApi* driver, const StreamRef& ref) {
  Stream* const stream = find(ref.key);
  if (!stream) return;
  if (driver && stream->landed.load(std::memory_order_acquire) != stream->settled) probe(*driver, *stream);
  if (stream->landed.load(std::memory_order_acquire) != stream->settled) crowd();  // nobody can tell any more
  for (Record& record : records_)
    if (record.stream == ref.key) record.event.store(nullptr, std::memory_order_release);
  stream->behind_work = 0;
  stream->arriving = false;
  stream->settled = stream->landed.load(std::memory_order_acquire);
  stream->used.store(false, std::memory_order_relaxed);
  stream->key.store(stream->probed ? kEnded : 0, std::memory_order_release);
}

void Onlookers::forget(const StreamRef& ref) {
  Stream* const stream = find(ref.key);
  if (!stream) return;
  stream->used.store(false, std::memory_order_relaxed);
  stream->key.store(0, std::memory_order_release);
}

void Onlookers::context_gone() {
  forget_events();
  for (Stream& stream : streams()) {
    if (stream.key.load(std::memory_order_acquire) == 0) continue;
    // Which streams have gone with it nobody knows, and none of those may be named any more.
    const bool open = stream.in_flight.load(std::memory_order_acquire) != 0 || stream.probed ||
                      stream.landed.load(std::memory_order_acquire) != stream.settled;
    if (open) crowded_.store(true, std::memory_order_release);
    stream.behind_work = 0;
    stream.used.store(false, std::memory_order_relaxed);
    stream.key.store(0, std::memory_order_release);
  }
}

void Onlookers::abandon() {
  for (Stream& stream : streams()) stream.probe = nullptr;
}

}  // namespace nimble
