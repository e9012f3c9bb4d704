#include "shim/rewrite/memory/graph_reserve.h"

#include <algorithm>

namespace nimble::shim {

std::uint64_t GraphReserve::needed(CUdevice device) const {
  std::uint64_t sum = 0;
  for (const auto& [place, of] : places_) {
    if (place.device != device) continue;
    sum += of.left;
    for (const auto& [stream, on] : of.running) sum += on.bytes;
  }
  return sum;
}

void GraphReserve::grow(CUdevice device) {
  std::uint64_t& reserved = reserved_[device];
  reserved = std::max(reserved, needed(device));
}

void GraphReserve::launched(Place place, std::uint64_t stream, std::uint64_t bytes, std::uint64_t moment) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  OnStream& on = places_[place].running[stream];
  on = {std::max(on.bytes, bytes), moment};
  grow(place.device);
  any_runs_.store(true, std::memory_order_relaxed);
}

void GraphReserve::left(Place place, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0 && !places_.contains(place)) return;
  places_[place].left = bytes;
  grow(place.device);
}

void GraphReserve::waited(CUcontext context, std::uint64_t moment) {
  const std::lock_guard lock(mutex_);
  for (auto& [place, of] : places_)
    if (place.context == context)
      std::erase_if(of.running, [&](const auto& one) { return one.second.moment <= moment; });
}

void GraphReserve::waited_for_stream(std::uint64_t stream, std::uint64_t moment) {
  if (!any_runs_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  bool any = false;
  for (auto& [place, of] : places_) {
    if (const auto on = of.running.find(stream); on != of.running.end() && on->second.moment <= moment)
      of.running.erase(on);
    any = any || !of.running.empty();
  }
  any_runs_.store(any, std::memory_order_relaxed);
}

void GraphReserve::trim(CUdevice device) {
  const std::lock_guard lock(mutex_);
  if (const auto found = reserved_.find(device); found != reserved_.end()) found->second = needed(device);
}

void GraphReserve::context_ends(CUcontext context) {
  const std::lock_guard lock(mutex_);
  std::erase_if(places_, [&](const auto& one) { return !context || one.first.context == context; });
}

std::uint64_t GraphReserve::bytes(CUdevice device) const {
  const std::lock_guard lock(mutex_);
  const auto found = reserved_.find(device);
  return found != reserved_.end() ? found->second : 0;
}

}  // namespace nimble::shim
