#include "replayer/audit/audit.h"

#include <fmt/format.h>
#include "replayer/match/op_text.h"

#include <algorithm>
#include <cstring>

namespace nimble {

namespace {

constexpr std::uint64_t kChunk = std::uint64_t{4} << 20;
// How many differences the message names.
constexpr std::size_t kNamed = 3;
constexpr const char* kOthersAtWork = "other streams have work";

// Whether only the GPU writes to memory of this kind while the program runs.
bool is_the_gpus(MemoryKind memory) {
  switch (memory) {
    case MemoryKind::device:
    case MemoryKind::stream_ordered:
    case MemoryKind::global:
    case MemoryKind::mapped:
      return true;
    default:
      return false;
  }
}

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

Audit::Audit(const Schedule& schedule, const OpMatch& live, const ObjectMap& objects, const DriverApi& driver,
             Counters& counters, std::optional<std::uint32_t> every)
    : schedule_(schedule),
      live_(live),
      objects_(objects),
      driver_(driver),
      counters_(counters),
      every_(every),
      copies_(schedule.segments.size()) {
  plan_next();
}

// After step 1 comes step 2, then 10, 100 and so on.
void Audit::plan_next() {
  if (every_) {
    next_ += *every_;
  } else {
    next_ = next_ < 2 ? next_ + 1 : next_ == 2 ? 10 : 10 * next_;
  }
}

Audit::Run Audit::begin_step(std::uint64_t elsewhere, bool bound) {
  const bool alone = elsewhere == elsewhere_;
  elsewhere_ = elsewhere;
  if (!bound) return Run::graphs;
  if (++steps_ >= next_) {
    due_ = true;
    plan_next();
  }
  if (pending()) return Run::in_order;
  if (!due_) return Run::graphs;
  if (!alone) {
    ++counters_.audits_skipped[kOthersAtWork];
    return Run::graphs;  // the next step may qualify
  }
  due_ = false;
  return Run::audited;
}

const char* Audit::why_not(std::uint32_t segment) const {
  for (const std::uint32_t index : schedule_.segments[segment].order) {
    const ScheduleOp& op = schedule_.ops[index];
    if (op.kind != CallKind::launch) continue;
    if (op.barrier) return "an unknown op may write anything";
    if (!op.writes) return "the schedule does not say what is written";
    for (const std::uint32_t object : *op.writes) {
      if (!is_the_gpus(schedule_.objects[object].memory)) return "a kernel writes memory that the host reaches";
    }
  }
  return nullptr;
}

// Finds what the segment may write with its live values. Null, or why it cannot be audited. Each byte once: it must
// come back as it was before the first op.
void Audit::merge(std::vector<Range>& ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return a.address != b.address ? a.address < b.address : a.bytes > b.bytes;
  });
  std::size_t kept = 0;
  for (const Range& range : ranges) {
    if (kept > 0 && range.address < ranges[kept - 1].address + ranges[kept - 1].bytes) {
      Range& before = ranges[kept - 1];
      before.bytes = std::max(before.bytes, range.address + range.bytes - before.address);
    } else {
      ranges[kept++] = range;
    }
  }
  ranges.resize(kept);
}

const char* Audit::collect(std::uint32_t segment, Audited& found) const {
  if (const char* const reason = why_not(segment)) return reason;
  found.segment = segment;
  const auto add = [&](std::uint32_t op, std::uint64_t address, std::uint64_t bytes, std::uint32_t object,
                       bool believed) {
    found.touches.push_back({op, address, bytes, believed});
    found.ranges.push_back({address, bytes, object});
    return address != 0;
  };
  for (const std::uint32_t index : schedule_.segments[segment].order) {
    const ScheduleOp& op = schedule_.ops[index];
    bool known = true;
    if (op.kind == CallKind::launch) {
      const auto whole = [&](std::uint32_t object, bool believed) {
        const ScheduleObject& it = schedule_.objects[object];
        if (is_the_gpus(it.memory)) known = add(index, objects_.base(object), it.size, object, believed) && known;
      };
      for (const std::uint32_t object : *op.writes) whole(object, false);
      for (const std::uint32_t object : op.believed_reads) whole(object, true);
    } else if (op.kind == CallKind::copy || op.kind == CallKind::set) {
      const OpValues& live = live_.live(index);
      if (live.width == 0 || live.height == 0) continue;
      // The host may be watching it, and has not asked for audits.
      if (!every_ && !is_the_gpus(schedule_.objects[op.dst.object].memory))
        return "a copy writes memory that the host reaches";
      const bool rows = live.height > 1 && live.dst.pitch != live.width;
      if (rows && !is_the_gpus(schedule_.objects[op.dst.object].memory))
        return "a copy writes host memory with gaps between its rows";
      const std::uint64_t bytes = live.height > 1 ? (live.height - 1) * live.dst.pitch + live.width : live.width;
      known = add(index, live.dst.address, bytes, op.dst.object, false);
    }
    if (!known) return "an object of the segment has not been seen";
  }
  merge(found.ranges);
  return found.ranges.empty() ? "it writes nothing" : nullptr;
}

// Memory for two copies, if the device can spare it: the program may need more than it has now.
bool Audit::provide(Copies& copies, std::uint64_t bytes) {
  if (bytes <= copies.bytes) return true;
  std::size_t free = 0, total = 0;
  if (copies.bytes != 0 || driver_.cuMemGetInfo_(&free, &total) != CUDA_SUCCESS || 2 * bytes > free / 4) return false;
  CUdeviceptr memory = 0;
  if (driver_.cuMemAlloc_(&memory, 2 * bytes) != CUDA_SUCCESS) return false;
  copies = {memory, memory + bytes, bytes};
  return true;
}

CUresult Audit::copy_out(const Audited& audited, CUdeviceptr to, CUstream stream) const {
  CUresult result = CUDA_SUCCESS;
  for (const Range& range : audited.ranges) {
    if (result == CUDA_SUCCESS) result = driver_.cuMemcpyAsync_(to, range.address, range.bytes, stream);
    to += aligned(range.bytes);
  }
  return result;
}

bool Audit::save(std::uint32_t segment, CUstream stream, std::uint64_t elsewhere) {
  Audited audited;
  const char* reason = elsewhere == elsewhere_ ? collect(segment, audited) : kOthersAtWork;
  if (!reason) {
    std::uint64_t bytes = 0;
    for (const Range& range : audited.ranges) bytes += aligned(range.bytes);
    if (!provide(copies_[segment], bytes)) reason = "no spare memory for its copies";
  }
  for (CUevent* const event : {&stand_in_, &done_}) {
    if (!reason && !*event && driver_.cuEventCreate_(event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
      reason = "the driver refused a call that it needs";
  }
  if (!reason && copy_out(audited, copies_[segment].before, stream) != CUDA_SUCCESS)
    reason = "the driver refused a call that it needs";
  if (reason) {
    ++counters_.audits_skipped[reason];
    return false;
  }
  pending_.push_back(std::move(audited));
  return true;
}

CUresult Audit::undo(CUstream stream, bool& undone) {
  const Audited& audited = pending_.back();
  const Copies& copies = copies_[audited.segment];
  undone = false;
  CUresult result = copy_out(audited, copies.by_graph, stream);
  std::uint64_t from = copies.before;
  for (const Range& range : audited.ranges) {
    if (result == CUDA_SUCCESS) {
      const auto put_back = [&] { return driver_.cuMemcpyAsync_(range.address, from, range.bytes, stream); };
      result = put_back();
      // With some memory as it was before and some as the graph left it there is no way back or on: retry once, in case
      // the driver only ran short for a moment.
      if (result != CUDA_SUCCESS && undone) result = put_back();
    }
    undone = undone || result == CUDA_SUCCESS;
    from += aligned(range.bytes);
  }
  return result;
}

CUresult Audit::keep(CUstream stream) {
  const Audited& audited = pending_.back();
  CUresult result = copy_out(audited, copies_[audited.segment].before, stream);
  if (result == CUDA_SUCCESS) result = driver_.cuEventRecord_(done_, stream);
  return result;
}

std::string Audit::judge() {
  if (pending_.empty()) return "";
  const CUresult result = driver_.cuEventQuery_(done_);
  if (result == CUDA_ERROR_NOT_READY) return "";
  std::vector<Difference> found;
  bool read = result == CUDA_SUCCESS;
  if (read && !reading_) read = driver_.cuStreamCreate_(&reading_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
  for (const Audited& audited : pending_) read = read && compare(audited, found);
  std::string text;
  if (read && !found.empty()) {
    // The earliest write is nearest to the cause.
    for (Difference& difference : found) blame(difference);
    std::stable_sort(found.begin(), found.end(),
                     [](const Difference& a, const Difference& b) { return a.writers < b.writers; });
    text = "an audit found that the schedule's order changes what the program computes: ";
    for (std::size_t i = 0; i < std::min(found.size(), kNamed); ++i) text += (i ? "; " : "") + describe(found[i]);
    if (found.size() > kNamed) text += fmt::format("; and {} more", found.size() - kNamed);
  }
  pending_.clear();
  if (!read) {
    ++counters_.audits_skipped["the copies could not be read"];
    return "";
  }
  ++counters_.steps_audited;
  counters_.audits_failed += !text.empty();
  return text;
}

bool Audit::compare(const Audited& audited, std::vector<Difference>& found) {
  one_.resize(kChunk);
  other_.resize(kChunk);
  const Copies& copies = copies_[audited.segment];
  std::uint64_t offset = 0;
  for (const Range& range : audited.ranges) {
    std::uint64_t first = 0, last = 0, count = 0;
    for (std::uint64_t at = 0; at < range.bytes; at += kChunk) {
      const std::uint64_t bytes = std::min(kChunk, range.bytes - at);
      CUresult result = driver_.cuMemcpyDtoHAsync_(one_.data(), copies.before + offset + at, bytes, reading_);
      if (result == CUDA_SUCCESS)
        result = driver_.cuMemcpyDtoHAsync_(other_.data(), copies.by_graph + offset + at, bytes, reading_);
      if (result == CUDA_SUCCESS) result = driver_.cuStreamSynchronize_(reading_);
      if (result != CUDA_SUCCESS) return false;
      if (std::memcmp(one_.data(), other_.data(), bytes) == 0) continue;
      for (std::uint64_t i = 0; i < bytes; ++i) {
        if (one_[i] == other_[i]) continue;
        if (count++ == 0) first = at + i;
        last = at + i;
      }
    }
    offset += aligned(range.bytes);
    if (count > 0)
      found.push_back({&audited, {range.address + first, last + 1 - first, range.object}, count, {}, false});
  }
  return true;
}

void Audit::blame(Difference& difference) const {
  const Range& range = difference.range;
  for (const bool believed : {false, true}) {
    if (!difference.writers.empty()) break;
    difference.believed = believed;
    for (const Touch& touch : difference.audited->touches) {
      if (touch.believed == believed && touch.address < range.address + range.bytes &&
          range.address < touch.address + touch.bytes)
        difference.writers.push_back(touch.op);
    }
  }
  std::vector<std::uint32_t>& ops = difference.writers;
  std::sort(ops.begin(), ops.end());
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
}

std::string Audit::describe(const Difference& difference) const {
  const ScheduleObject& object = schedule_.objects[difference.range.object];
  std::string text = fmt::format(
      "{} bytes of object {} ({}, {} bytes) differ, {}", difference.count, difference.range.object, name(object.memory),
      object.size, difference.believed ? "which nothing should have written; it is used by" : "written by");
  const char* separator = " ";
  for (const std::uint32_t index : difference.writers) {
    text += separator + op_text(schedule_, index);
    separator = ", ";
  }
  return text;
}

void Audit::abandon() {
  pending_.clear();
  stand_in_ = done_ = nullptr;
  reading_ = nullptr;
  copies_.assign(copies_.size(), {});
}

}  // namespace nimble
