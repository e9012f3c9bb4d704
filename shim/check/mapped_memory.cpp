#include "shim/check/mapped_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "shim/state/device_reader.h"

namespace nimble::shim {

namespace {

CUmemAccess_flags flags_of(Protection protection) {
  switch (protection) {
    case Protection::closed:
      return CU_MEM_ACCESS_FLAGS_PROT_NONE;
    case Protection::read_only:
      return CU_MEM_ACCESS_FLAGS_PROT_READ;
    case Protection::open:
      break;
  }
  return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

}  // namespace

// ---- allocations ----

// A block of this size that no one has: mapped or not. The end of the map if there are no addresses left.
MappedMemory::Blocks::iterator MappedMemory::take(std::uint64_t bytes, bool& mapped) {
  const std::lock_guard lock(mutex_);
  for (const State wanted : {State::unused, State::unmapped}) {
    const auto found = std::ranges::find_if(
        blocks_, [&](const auto& one) { return one.second.state == wanted && one.second.bytes == bytes; });
    if (found == blocks_.end()) continue;
    mapped = wanted == State::unused;
    found->second.state = State::busy;
    return found;
  }
  mapped = false;
  if (range_end_ - next_ < bytes) return blocks_.end();
  const auto made = blocks_.emplace(next_, Block{.bytes = bytes, .range = range_}).first;
  next_ += bytes;
  return made;
}

bool MappedMemory::fill(std::uint64_t address, std::uint64_t bytes, Physical& physical) const {
  const std::optional<Physical> made = mapping_.create(*device_, bytes);
  if (!made) return false;
  if (mapping_.map(address, bytes, *made)) {
    if (mapping_.allow(address, bytes, *device_)) {
      physical = *made;
      return true;
    }
    mapping_.unmap(address, bytes);
  }
  mapping_.release(*made);
  return false;
}

std::optional<std::uint64_t> MappedMemory::allocate(std::uint64_t size) {
  const std::uint64_t bytes = (size + Mapping::kGrain - 1) / Mapping::kGrain * Mapping::kGrain;
  if (size == 0 || bytes < size) return std::nullopt;
  const RelaxedCaptures relaxed(context_);
  {
    const std::optional<CUdevice> device = device_ ? device_ : mapping_.device();
    const std::lock_guard lock(mutex_);
    device_ = device;
  }
  if (!device_) return std::nullopt;
  bool mapped = false;
  Blocks::iterator block = take(bytes, mapped);
  if (block == blocks_.end()) {
    std::uint64_t reserved = std::max(bytes, kRange), range = mapping_.reserve(reserved);
    if (range == 0) range = mapping_.reserve(reserved = bytes);
    if (range == 0) return std::nullopt;
    {
      const std::lock_guard lock(mutex_);
      range_ = next_ = range;
      range_end_ = range + reserved;
    }
    block = take(bytes, mapped);
    if (block == blocks_.end()) return std::nullopt;  // another thread was faster
  }
  Physical physical = block->second.physical;
  bool good = mapped || fill(block->first, bytes, physical);
  if (!good && give_back()) good = fill(block->first, bytes, physical);
  const std::lock_guard lock(mutex_);
  Block& made = block->second;
  if (!good) {
    made.state = State::unmapped;
    return std::nullopt;
  }
  made.physical = physical;
  made.size = size;
  if (!mapped) made.now = Protection::open;
  made.state = State::live;
  return block->first;
}

bool MappedMemory::release(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.state != State::live) return false;
  found->second.state = State::released;
  found->second.released = ++moment_;
  released_ += found->second.bytes;
  return true;
}

std::uint64_t MappedMemory::now() const {
  const std::lock_guard lock(mutex_);
  return moment_;
}

void MappedMemory::settle(std::uint64_t moment) {
  {
    const std::lock_guard lock(mutex_);
    for (auto& [address, block] : blocks_) {
      if (block.state != State::released || block.released > moment) continue;
      block.state = State::unused;
      released_ -= block.bytes;
    }
  }
  bool any = false;
  unmap(kMostUnused, any);
}

std::uint64_t MappedMemory::released() const {
  const std::lock_guard lock(mutex_);
  return released_;
}

bool MappedMemory::give_back() {
  bool any = false;
  unmap(0, any);
  return any;
}

void MappedMemory::clear() {
  {
    const std::lock_guard lock(mutex_);
    for (auto& [address, block] : blocks_)
      if (block.state == State::live || block.state == State::released) block.state = State::unused;
    released_ = 0;
  }
  give_back();
}

// Unmaps unused memory until no more than that is left.
void MappedMemory::unmap(std::uint64_t most_kept, bool& any) {
  std::vector<Blocks::iterator> going;
  {
    const std::lock_guard lock(mutex_);
    std::uint64_t unused = 0;
    for (const auto& [address, block] : blocks_) unused += block.state == State::unused ? block.bytes : 0;
    for (auto at = blocks_.begin(); at != blocks_.end() && unused > most_kept; ++at) {
      if (at->second.state != State::unused) continue;
      unused -= at->second.bytes;
      at->second.state = State::busy;
      going.push_back(at);
    }
  }
  if (going.empty()) return;
  const RelaxedCaptures relaxed(context_);
  for (const Blocks::iterator& block : going) {
    const bool gone = mapping_.unmap(block->first, block->second.bytes);
    if (gone) mapping_.release(block->second.physical);
    any |= gone;
    const std::lock_guard lock(mutex_);
    block->second.state = gone ? State::unmapped : State::unused;
  }
}

bool MappedMemory::holds(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto after = blocks_.upper_bound(address);
  return after != blocks_.begin() && address - std::prev(after)->first < std::prev(after)->second.bytes;
}

std::optional<MappedMemory::Object> MappedMemory::find(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  auto found = blocks_.upper_bound(address);
  if (found == blocks_.begin()) return std::nullopt;
  --found;
  if (found->second.state != State::live || address - found->first >= found->second.size) return std::nullopt;
  return Object{found->first, found->second.size};
}

bool MappedMemory::empty() const {
  const std::lock_guard lock(mutex_);
  return blocks_.empty();
}

// ---- accesses ----

std::vector<ProtectedPiece> MappedMemory::pieces() const {
  std::vector<ProtectedPiece> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [address, block] : blocks_)
    if (block.state != State::busy && block.state != State::unmapped)
      all.push_back({address, block.bytes, block.range, block.now, block.now});
  return all;
}

bool MappedMemory::change(std::span<const ProtectedPiece> pieces) {
  const RelaxedCaptures relaxed(context_);
  bool good = true;
  for (const ProtectionChange& change : protection_changes(pieces)) {
    const bool done = mapping_.allow(change.address, change.bytes, *device_, flags_of(change.to));
    good &= done;
    if (!done) continue;
    const std::lock_guard lock(mutex_);
    for (auto at = blocks_.find(change.address); at != blocks_.end() && at->first < change.address + change.bytes; ++at)
      at->second.now = change.to;
  }
  return good;
}

MappedMemory::Restriction MappedMemory::restrict_to(std::span<const Allowed> allowed) {
  Restriction done;
  std::vector<ProtectedPiece> all = pieces();
  {
    const std::lock_guard lock(mutex_);
    for (ProtectedPiece& piece : all) {
      const Block& block = blocks_.at(piece.address);
      const auto touched = std::ranges::find(allowed, piece.address, &Allowed::address);
      const bool is_live = block.state == State::live;
      piece.wanted = !is_live || touched == allowed.end() ? Protection::closed
                     : touched->writes                    ? Protection::open
                                                          : Protection::read_only;
      if (!is_live || piece.wanted == Protection::open) continue;
      (piece.wanted == Protection::closed ? done.closed : done.read_only).push_back({piece.address, block.size});
    }
  }
  restricted_.store(true, std::memory_order_release);
  done.good = change(all);
  return done;
}

// Takes no memory of the host: whatever else fails, this must not.
bool MappedMemory::open() {
  const RelaxedCaptures relaxed(context_);
  bool good = true;
  for (std::uint64_t next = 0;;) {
    std::uint64_t begin = 0, end = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto is_restricted = [](const auto& one) {
        return one.second.now != Protection::open && one.second.state != State::unmapped &&
               one.second.state != State::busy;
      };
      const auto first = std::find_if(blocks_.lower_bound(next), blocks_.end(), is_restricted);
      if (first == blocks_.end()) break;
      begin = end = first->first;
      for (auto at = first;
           at != blocks_.end() && at->first == end && is_restricted(*at) && at->second.range == first->second.range;
           ++at)
        end += at->second.bytes;
    }
    const bool done = mapping_.allow(begin, end - begin, *device_);
    good &= done;
    const std::lock_guard lock(mutex_);
    for (auto at = blocks_.find(begin); done && at != blocks_.end() && at->first < end; ++at)
      at->second.now = Protection::open;
    next = end;
  }
  restricted_.store(false, std::memory_order_release);
  return good;
}

}  // namespace nimble::shim
