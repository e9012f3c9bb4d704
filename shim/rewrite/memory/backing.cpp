#include "shim/rewrite/memory/backing.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "shim/state/device_reader.h"

namespace nimble::shim {

namespace {

// Up to this size a range has pieces of one grain, so that memory that lasts in it keeps no more than that; larger
// ranges usually hold a single allocation.
constexpr std::uint64_t kInGrains = std::uint64_t{8} << 20;

}  // namespace

bool Backing::fill(std::uint64_t address, std::uint64_t bytes, CUdevice device,
                   std::optional<Physical>& physical) const {
  const std::optional<Physical> made = mapping_.create(device, bytes);
  if (!made) return false;
  if (mapping_.map(address, bytes, *made)) {
    physical = made;
    return true;
  }
  mapping_.release(*made);
  return false;
}

Backing::Piece Backing::get(std::uint64_t wanted, CUcontext context) {
  const std::uint64_t bytes = (wanted + Mapping::kGrain - 1) / Mapping::kGrain * Mapping::kGrain;
  const RelaxedCaptures relaxed(context_);
  const std::optional<CUdevice> device = mapping_.device();
  const std::uint64_t base = device ? mapping_.reserve(bytes) : 0;
  if (base == 0) return {};
  Range range{bytes, *device, context, {}};
  const std::uint64_t each = bytes <= kInGrains ? Mapping::kGrain : bytes;
  bool good = true;
  for (std::uint64_t at = base; good && at < base + bytes; at += each) {
    Range::Held& held = range.pieces[at];
    held.bytes = each;
    good = fill(at, each, *device, held.physical);
  }
  if (!good || !mapping_.allow(base, bytes, *device)) {
    release(base, range);
    return {};
  }
  const std::lock_guard lock(mutex_);
  ranges_[base] = std::move(range);
  return {base, bytes};
}

// Unmaps and releases a range that nothing can touch any more.
void Backing::release(std::uint64_t address, const Range& range) const {
  const RelaxedCaptures relaxed(context_);
  for (const auto& [at, held] : range.pieces) {
    if (!held.physical) continue;
    mapping_.unmap(at, held.bytes);
    mapping_.release(*held.physical);
  }
  mapping_.give_back(address, range.bytes);
}

bool Backing::release(std::uint64_t address) {
  Range range;
  {
    const std::lock_guard lock(mutex_);
    const auto found = ranges_.find(address);
    if (found == ranges_.end()) return false;
    range = std::move(found->second);
    ranges_.erase(found);
  }
  release(address, range);
  return true;
}

void Backing::context_ends(CUcontext context) {
  const std::lock_guard lock(mutex_);
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    const auto next = std::next(at);
    if (!context || at->second.context == context) ending_.insert(ranges_.extract(at));
    at = next;
  }
}

void Backing::context_ended(CUcontext context, bool good) {
  std::map<std::uint64_t, Range> gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = ending_.begin(); at != ending_.end();) {
      const auto next = std::next(at);
      if (at->second.context == context) gone.insert(ending_.extract(at));
      at = next;
    }
  }
  if (!good) return;
  for (const auto& [address, range] : gone) release(address, range);
}

std::optional<std::uint64_t> Backing::held(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end()) return std::nullopt;
  std::uint64_t bytes = 0;
  for (const auto& [at, held] : found->second.pieces)
    if (held.physical) bytes += held.bytes;
  return bytes;
}

std::optional<CUdevice> Backing::device(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  return found != ranges_.end() ? std::optional(found->second.device) : std::nullopt;
}

std::vector<Backing::Piece> Backing::pieces(std::uint64_t begin, std::uint64_t end) const {
  std::vector<Piece> inside;
  const std::lock_guard lock(mutex_);
  auto range = ranges_.upper_bound(begin);
  if (range != ranges_.begin()) --range;
  for (; range != ranges_.end() && range->first < end; ++range)
    for (const auto& [at, held] : range->second.pieces)
      if (at >= begin && at + held.bytes <= end) inside.push_back({at, held.bytes});
  return inside;
}

// The range that holds it.
Backing::Range* Backing::find(std::uint64_t address) {
  auto range = ranges_.upper_bound(address);
  if (range == ranges_.begin()) return nullptr;
  --range;
  return address - range->first < range->second.bytes ? &range->second : nullptr;
}

bool Backing::fill(std::span<const Piece> pieces) {
  const RelaxedCaptures relaxed(context_);
  for (const Piece& piece : pieces) {
    CUdevice device = 0;
    {
      const std::lock_guard lock(mutex_);
      const Range* const range = find(piece.address);
      if (!range) return false;
      if (range->pieces.at(piece.address).physical) continue;
      device = range->device;
    }
    std::optional<Physical> made;
    if (!fill(piece.address, piece.bytes, device, made)) return false;
    if (!mapping_.allow(piece.address, piece.bytes, device)) {
      mapping_.unmap(piece.address, piece.bytes);
      mapping_.release(*made);
      return false;
    }
    const std::lock_guard lock(mutex_);
    if (Range* const range = find(piece.address)) range->pieces.at(piece.address).physical = made;
  }
  return true;
}

std::uint64_t Backing::empty(std::span<const Piece> pieces) {
  const RelaxedCaptures relaxed(context_);
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) {
    std::optional<Physical> there;
    {
      const std::lock_guard lock(mutex_);
      if (const Range* const range = find(piece.address)) there = range->pieces.at(piece.address).physical;
    }
    if (!there || !mapping_.unmap(piece.address, piece.bytes)) continue;
    {
      const std::lock_guard lock(mutex_);
      if (Range* const range = find(piece.address)) range->pieces.at(piece.address).physical.reset();
    }
    mapping_.release(*there);
    bytes += piece.bytes;
  }
  return bytes;
}

}  // namespace nimble::shim
