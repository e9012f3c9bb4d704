#include "analyzer/pointers/state/contents.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace nimble::analyzer {

void Contents::become_unknown(std::string_view reason) {
  *this = {};
  unknown = true;
  why = reason;
}

bool Contents::carried() const {
  return old || std::any_of(places.begin(), places.end(), [](const auto& place) { return place.second.old; });
}

std::vector<std::uint32_t> Contents::placed() const {
  std::set<std::uint32_t> objects;
  for (const auto& [at, place] : places) objects.insert(place.object);
  return {objects.begin(), objects.end()};
}

bool Contents::overflows() const {
  constexpr std::size_t kMostPlaces = 1 << 16, kMostBundles = 16, kMostFillers = 256;
  return places.size() > kMostPlaces || somewhere.size() > kMostBundles || fillers.size() > kMostFillers;
}

void Contents::fill(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  auto at = filled.upper_bound(begin);
  if (at != filled.begin() && std::prev(at)->second >= begin) --at;
  while (at != filled.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = filled.erase(at);
  }
  filled[begin] = end;
}

void Contents::erase_places(std::uint64_t begin, std::uint64_t end) {
  places.erase(places.lower_bound(begin), places.lower_bound(end));
}

void Contents::merge(const Contents& arriving, std::uint64_t begin, std::uint64_t end) {
  erase_places(begin, end);
  places.insert(arriving.places.begin(), arriving.places.end());
  somewhere.insert(arriving.somewhere.begin(), arriving.somewhere.end());
  old |= arriving.old;
  fillers.insert(arriving.fillers.begin(), arriving.fillers.end());
  for (const auto& [first, last] : arriving.filled) fill(first, last);
}

std::uint32_t StepContents::bundle(std::vector<std::uint32_t> objects) {
  std::sort(objects.begin(), objects.end());
  objects.erase(std::unique(objects.begin(), objects.end()), objects.end());
  const auto [at, is_new] = bundle_of_.emplace(std::move(objects), static_cast<std::uint32_t>(bundles_.size()));
  if (is_new) bundles_.push_back(at->first);
  return at->second;
}

const Contents* StepContents::find(std::uint32_t object) const {
  const auto found = contents_.find(object);
  return found == contents_.end() ? nullptr : &found->second;
}

bool StepContents::any_pointers() const {
  return std::ranges::any_of(contents_, [](const auto& each) { return !each.second.empty(); });
}

void StepContents::end_step(const std::function<bool(std::uint32_t)>& born) {
  for (auto at = contents_.begin(); at != contents_.end();) {
    Contents& left = at->second;
    left.filled.clear();
    std::erase_if(left.places, [&](const auto& place) { return born(place.second.object); });
    for (auto& [offset, place] : left.places) place.old = true;
    std::set<std::uint32_t> lasting;
    for (const std::uint32_t id : left.somewhere) {
      std::vector<std::uint32_t> objects = bundles_[id];
      std::erase_if(objects, born);
      if (!objects.empty()) lasting.insert(bundle(std::move(objects)));
    }
    left.somewhere = std::move(lasting);
    left.old = !left.somewhere.empty();
    at = born(at->first) || (left.empty() && left.fillers.empty()) ? contents_.erase(at) : std::next(at);
  }
}

}  // namespace nimble::analyzer
