#include "shim/rewrite/memory/transient_memory.h"

#include <algorithm>

namespace nimble::shim {

TransientMemory::Held::~Held() {
  if (!part_) return;
  // After the launch: a wait that begins later covers it.
  part_->used_.store(of_->moments_.fetch_add(1) + 1, std::memory_order_release);
  let_go(*part_);
}

TransientMemory::Shared TransientMemory::add(std::vector<Backing::Piece> pieces, GraphReserve::Place place,
                                             std::uint64_t in_driver) {
  auto part = std::make_shared<Part>();
  for (const Backing::Piece& piece : pieces) part->bytes_ += piece.bytes;
  part->pieces_ = std::move(pieces);
  part->place_ = place;
  part->in_driver_ = in_driver;
  const std::lock_guard lock(mutex_);
  std::erase_if(parts_, [](const auto& each) { return each.expired(); });
  parts_.push_back(part);
  return part;
}

void TransientMemory::hold(Part& part) {
  while (part.held_.test_and_set(std::memory_order_acquire)) part.held_.wait(true, std::memory_order_relaxed);
}

void TransientMemory::let_go(Part& part) {
  part.held_.clear(std::memory_order_release);
  part.held_.notify_one();
}

// Called by its holder.
bool TransientMemory::fill(Part& part) {
  if (part.there_.load(std::memory_order_relaxed)) return true;
  const bool good = backing_.fill(part.pieces_);
  if (!good) backing_.empty(part.pieces_);  // partial backing is useless
  part.there_ = good;
  return good;
}

TransientMemory::Held TransientMemory::launch(Part& part) {
  hold(part);
  return {*this, part, fill(part)};
}

bool TransientMemory::keep(Part& part) {
  hold(part);
  part.stays_ = true;
  const bool good = fill(part);
  let_go(part);
  return good;
}

void TransientMemory::waited(CUcontext context, std::uint64_t moment) {
  const std::lock_guard lock(mutex_);
  if (parts_.empty()) return;
  std::uint64_t& last = waited_[context];
  last = std::max(last, moment);
}

TransientMemory::OfContext TransientMemory::parts(CUcontext context) const {
  OfContext found;
  const std::lock_guard lock(mutex_);
  if (const auto last = waited_.find(context); last != waited_.end()) found.waited = last->second;
  for (const auto& each : parts_)
    if (Shared part = each.lock(); part && part->place_.context == context) found.parts.push_back(std::move(part));
  return found;
}

bool TransientMemory::is_idle(const Part& part, std::uint64_t waited) {
  return part.there_.load(std::memory_order_acquire) && !part.stays_.load(std::memory_order_acquire) &&
         part.used_.load(std::memory_order_acquire) <= waited;
}

std::uint64_t TransientMemory::give_back(CUcontext context) {
  const OfContext all = parts(context);
  std::uint64_t bytes = 0;
  for (const Shared& part : all.parts) {
    if (!is_idle(*part, all.waited) || part->held_.test_and_set(std::memory_order_acquire)) continue;
    if (is_idle(*part, all.waited)) {
      part->there_ = false;
      bytes += backing_.empty(part->pieces_);
    }
    let_go(*part);
  }
  return bytes;
}

std::uint64_t TransientMemory::all(CUcontext context) const {
  std::uint64_t bytes = 0;
  for (const Shared& part : parts(context).parts)
    if (part->there_ && !part->stays_) bytes += part->bytes_;
  return bytes;
}

void TransientMemory::context_ends(CUcontext context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(parts_, [&](const auto& each) {
    const Shared part = each.lock();
    return !part || !context || part->place_.context == context;
  });
  context ? void(waited_.erase(context)) : waited_.clear();
}

}  // namespace nimble::shim
