// See tracking.h.
#include "tests/simcuda/observe/tracking.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace simcuda {
namespace {

KernelRecorder* active_recorder;

constexpr std::size_t kMaxRecorded = 1 << 20;
constexpr std::size_t kMaxReported = 1000;

void append_runs(const std::uint64_t* bits, std::size_t words, std::uint64_t base, std::vector<SimcudaRange>& out) {
  for (std::size_t word = 0; word < words; ++word) {
    std::uint64_t rest = bits[word];
    const std::uint64_t at = base + word * 64;
    while (rest != 0) {
      const int first = __builtin_ctzll(rest);
      const std::uint64_t shifted = ~(rest >> first);
      const int length = shifted == 0 ? 64 : std::min(__builtin_ctzll(shifted), 64 - first);
      const std::uint64_t begin = at + static_cast<std::uint64_t>(first),
                          end = begin + static_cast<std::uint64_t>(length);
      if (!out.empty() && out.back().end == begin) {
        out.back().end = end;
      } else {
        out.push_back({begin, end});
      }
      if (first + length >= 64) break;
      rest &= ~std::uint64_t{0} << (first + length);
    }
  }
}

}  // namespace

void merge(std::vector<SimcudaRange>& ranges) {
  if (ranges.size() < 2) return;
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::size_t last = 0;
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin <= ranges[last].end) {
      ranges[last].end = std::max(ranges[last].end, ranges[i].end);
    } else {
      ranges[++last] = ranges[i];
    }
  }
  ranges.resize(last + 1);
}

void KernelRecorder::begin() {
  pages_.clear();
  std::fill(std::begin(recent_), std::end(recent_), nullptr);
  active_recorder = this;
}

Ranges KernelRecorder::finish() {
  active_recorder = nullptr;
  std::vector<Page*> pages;
  pages.reserve(pages_.size());
  for (const auto& entry : pages_) pages.push_back(entry.second.get());
  std::sort(pages.begin(), pages.end(), [](const Page* a, const Page* b) { return a->number < b->number; });
  Ranges ranges;
  for (const Page* page : pages) {
    append_runs(page->read, kPageBytes / 64, page->number * kPageBytes, ranges.reads);
    append_runs(page->written, kPageBytes / 64, page->number * kPageBytes, ranges.writes);
  }
  pages_.clear();
  return ranges;
}

const SimHooks& KernelRecorder::hooks() {
  static const SimHooks hooks{&KernelRecorder::access};
  return hooks;
}

void KernelRecorder::access(const void* address, std::uint64_t bytes, bool write) {
  if (active_recorder != nullptr) active_recorder->mark(reinterpret_cast<std::uint64_t>(address), bytes, write);
}

KernelRecorder::Page& KernelRecorder::page(std::uint64_t number) {
  Page*& recent = recent_[number % std::size(recent_)];
  if (recent != nullptr && recent->number == number) return *recent;
  std::unique_ptr<Page>& slot = pages_[number];
  if (slot == nullptr) {
    slot = std::make_unique<Page>();
    slot->number = number;
  }
  recent = slot.get();
  return *recent;
}

void KernelRecorder::mark(std::uint64_t address, std::uint64_t bytes, bool write) {
  while (bytes != 0) {
    Page& at = page(address / kPageBytes);
    std::uint64_t* bits = write ? at.written : at.read;
    std::uint64_t offset = address % kPageBytes;
    const std::uint64_t here = std::min(bytes, kPageBytes - offset);
    for (std::uint64_t left = here; left != 0;) {
      const std::uint64_t bit = offset % 64, count = std::min(left, 64 - bit);
      bits[offset / 64] |= (count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << bit;
      offset += count;
      left -= count;
    }
    address += here;
    bytes -= here;
  }
}

VectorClock Tracking::step(std::uint32_t chain, Ticks before, std::uint32_t& tick) {
  if (before.size() <= chain) before.resize(chain + 1);
  tick = ++next_tick_[chain];
  before[chain] = tick;
  return std::make_shared<const Ticks>(std::move(before));
}

void Tracking::join(Ticks& into, const VectorClock& other) {
  if (other == nullptr) return;
  if (into.size() < other->size()) into.resize(other->size());
  for (std::size_t i = 0; i < other->size(); ++i) into[i] = std::max(into[i], (*other)[i]);
}

void Tracking::executed(const Actor& actor, Ranges&& ranges) {
  merge(ranges.reads);
  merge(ranges.writes);
  if (races) {
    for (const SimcudaRange& range : ranges.reads) check(actor, range, false);
    for (const SimcudaRange& range : ranges.writes) check(actor, range, true);
  }
  if (accesses) {
    if (recorded.size() == kMaxRecorded) {
      recorded.pop_front();
      if (++recorded_dropped == 1) std::fprintf(stderr, "simcuda: too many recorded ops, dropping the oldest\n");
    }
    recorded.push_back({actor.op, actor.stream, actor.name, std::move(ranges), actor.caller});
  }
}

void Tracking::illegal(const Actor& actor, std::uint64_t address, bool write) {
  if (illegal_accesses.size() >= kMaxReported) return;
  std::fprintf(stderr, "simcuda: illegal access: %s (op %" PRIu64 ") %s 0x%" PRIx64 ", which is not allocated\n",
               actor.name, actor.op, write ? "writes" : "reads", address);
  illegal_accesses.push_back({actor.op, address, actor.name, write});
}

// The cell that begins at this address, cut out of the one around it; end() or a later one where nothing lies here.
Tracking::Shadow::iterator Tracking::split(std::uint64_t address) {
  auto next = shadow_.lower_bound(address);
  if (next != shadow_.end() && next->first == address) return next;
  if (next == shadow_.begin()) return next;
  auto around = std::prev(next);
  if (around->second.end <= address) return next;
  Cell rest = around->second;
  around->second.end = address;
  return shadow_.emplace_hint(next, address, std::move(rest));
}

void Tracking::check(const Actor& actor, SimcudaRange range, bool write) {
  auto next = mapped_.upper_bound(range.begin);
  if (next != mapped_.begin() && std::prev(next)->second.first > range.begin) --next;
  for (; next != mapped_.end() && next->first < range.end; ++next) {
    const auto [begin, to] = *next;
    if (range.begin < begin) check_plain(actor, {range.begin, begin}, write);
    const std::uint64_t from = std::max(range.begin, begin), end = std::min(range.end, to.first);
    check_plain(actor, {to.second + (from - begin), to.second + (end - begin)}, write);
    range.begin = end;
  }
  if (range.begin < range.end) check_plain(actor, range, write);
}

void Tracking::check_plain(const Actor& actor, const SimcudaRange& range, bool write) {
  const auto before = [&](const Touch& touch) {
    if (touch.tick == 0 || touch.op == actor.op) return true;
    return actor.clock != nullptr && touch.chain < actor.clock->size() && touch.tick <= (*actor.clock)[touch.chain];
  };
  const Touch self{actor.chain, actor.tick, actor.op, actor.name};
  split(range.end);
  auto cell = split(range.begin);
  std::uint64_t at = range.begin;
  while (at < range.end) {
    if (cell == shadow_.end() || cell->first > at) {
      const std::uint64_t end = cell == shadow_.end() ? range.end : std::min(range.end, cell->first);
      Cell fresh;
      fresh.end = end;
      if (write) {
        fresh.writer = self;
      } else {
        fresh.readers.push_back(self);
      }
      shadow_.emplace_hint(cell, at, std::move(fresh));
      at = end;
      continue;
    }
    Cell& touched = cell->second;
    const SimcudaRange here{cell->first, touched.end};
    if (!before(touched.writer)) report(touched.writer, true, actor, write, here);
    if (write) {
      for (const Touch& reader : touched.readers) {
        if (!before(reader)) report(reader, false, actor, true, here);
      }
      touched.writer = self;
      touched.readers.clear();
    } else {
      const auto same = std::find_if(touched.readers.begin(), touched.readers.end(),
                                     [&](const Touch& reader) { return reader.chain == self.chain; });
      if (same != touched.readers.end()) {
        *same = self;
      } else {
        touched.readers.push_back(self);
      }
    }
    at = touched.end;
    ++cell;
  }
}

void Tracking::report(const Touch& first, bool first_writes, const Actor& second, bool second_writes,
                      SimcudaRange range) {
  if (found_races.size() >= kMaxReported || !reported_.insert({first.op, second.op}).second) return;
  std::fprintf(stderr,
               "simcuda: race: %s (op %" PRIu64 ") %s and %s (op %" PRIu64 ") %s [0x%" PRIx64 ", 0x%" PRIx64
               "), and nothing orders them\n",
               first.name, first.op, first_writes ? "writes" : "reads", second.name, second.op,
               second_writes ? "writes" : "reads", range.begin, range.end);
  SimcudaRace race{first.op, second.op, first.name, second.name, first_writes, second_writes, range};
  if (race.first_op > race.second_op) {  // in program order, whatever the order in which they ran
    std::swap(race.first_op, race.second_op);
    std::swap(race.first_name, race.second_name);
    std::swap(race.first_writes, race.second_writes);
  }
  found_races.push_back(race);
}

void Tracking::forget(std::uint64_t begin, std::uint64_t end) {
  if (shadow_.empty()) return;
  split(end);
  auto first = split(begin);
  shadow_.erase(first, shadow_.lower_bound(end));
}

void Tracking::reset() {
  recorded.clear();
  recorded_dropped = 0;
  found_races.clear();
  illegal_accesses.clear();
  reported_.clear();
}

}  // namespace simcuda
