#include "analyzer/addresses/known_launches.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

namespace nimble::analyzer {
namespace {

constexpr std::uint32_t kNoWord = Range::kNoBase - 1;  // of any parameters
constexpr std::size_t kMostBytes = std::size_t{64} << 20;

template <class T>
void append(std::string& key, std::span<const T> values) {
  key.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

std::vector<std::uint8_t> without_addresses(const LaunchValues& launch) {
  std::vector<std::uint8_t> params(launch.params.begin(), launch.params.end());
  for (const std::uint32_t pointer : launch.pointers) {
    const std::size_t first = std::min<std::size_t>(pointer, params.size()),
                      last = std::min<std::size_t>(first + 8, params.size());
    std::fill(params.begin() + static_cast<std::ptrdiff_t>(first), params.begin() + static_cast<std::ptrdiff_t>(last),
              std::uint8_t{0});
  }
  return params;
}

// FNV-1a, over what the expressions of different kernels differ in.
std::uint64_t hash_of(const AddressExtents& extents) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3u; };
  for (const Expression& each : extents.expressions) {
    add(static_cast<std::uint64_t>(each.op) << 8 | each.bits);
    add(std::uint64_t{each.a} << 32 | each.b);
    add(static_cast<std::uint64_t>(each.value));
  }
  add(extents.groups.size());
  add(extents.doubts.size());
  return hash;
}

// And those numbers, by their 4-byte pieces.
Sources with(Sources sources, const std::set<NumberAt>& taken) {
  for (const NumberAt& number : taken)
    for (std::uint32_t at = number.at & ~3u; at < number.at + number.bytes; at += 4) sources.params.push_back(at);
  std::ranges::sort(sources.params);
  const auto rest = std::ranges::unique(sources.params);
  sources.params.erase(rest.begin(), rest.end());
  return sources;
}

}  // namespace

KnownLaunch::KnownLaunch(KnownKernel& kernel, const LaunchValues& launch)
    : kernel_(kernel),
      params_(without_addresses(launch)),
      pointers_(launch.pointers.begin(), launch.pointers.end()),
      grid_(launch.grid),
      block_(launch.block) {}

LaunchValues KnownLaunch::values() const { return {params_, pointers_, grid_, block_}; }

const std::optional<std::vector<Reach>>& KnownLaunch::reach(std::size_t group, std::uint32_t pointer) {
  // By a pointer that is not taken the same is reached as by one that there is not.
  if (pointer != kNoWord && !rests_on(group, pointer)) return reach(group, kNoWord);
  const auto [found, is_new] = reaches_.try_emplace({group, pointer});
  const AddressExtents& extents = kernel_.extents();
  if (is_new) found->second = analyzer::reach(extents, extents.groups[group], pointer, values(), &trails_[group]);
  return found->second;
}

const std::optional<std::vector<Reach>>& KnownLaunch::reach_without_pointer(std::size_t group) {
  const auto [found, is_new] = without_pointer_.try_emplace(group);
  const AddressExtents& extents = kernel_.extents();
  if (is_new)
    found->second = analyzer::reach_without_pointer(extents, extents.groups[group], values(), &trails_[group]);
  return found->second;
}

const WordsTaken& KnownLaunch::words_taken(std::size_t group, std::uint32_t focus) {
  const auto [found, is_new] = takes_.try_emplace({group, focus});
  const AddressExtents& extents = kernel_.extents();
  if (is_new) found->second = analyzer::words_taken(extents, extents.groups[group], focus, values(), &trails_[group]);
  return found->second;
}

bool KnownLaunch::seems_to_take(std::size_t group, std::uint32_t word) {
  return words_taken(group, kNoWord).names(word);
}

bool KnownLaunch::may_take(std::size_t group, std::uint32_t word) {
  const WordsTaken& taken = words_taken(group, rests_on(group, word) ? word : kNoWord);
  return taken.anything || taken.names(word);
}

bool KnownLaunch::may_happen(std::size_t doubt) {
  const auto [found, is_new] = happens_.try_emplace(doubt);
  const AddressExtents& extents = kernel_.extents();
  if (is_new)
    found->second = analyzer::may_happen(extents, extents.doubts[doubt].happens, values(), &trails_of_doubts_[doubt]);
  return found->second;
}

bool KnownLaunch::rests_on(std::size_t group, std::uint32_t word) {
  if (!kernel_.sources(group).looks_up) return true;
  reach(group, kNoWord);
  return trails_[group].rests_on(word, 8);
}

std::vector<NumberAt> KnownLaunch::numbers_added(std::size_t group) {
  const std::vector<NumberAt>& added = kernel_.numbers_added(group);
  if (!kernel_.sources(group).looks_up) return added;
  std::set<NumberAt> all = trails_[group].taken();
  all.insert(added.begin(), added.end());
  return {all.begin(), all.end()};
}

Sources KnownLaunch::sources(std::size_t group) {
  const Sources& of_all = kernel_.sources(group);
  return of_all.looks_up ? with(of_all, trails_[group].taken()) : of_all;
}

Sources KnownLaunch::sources_of_doubt(std::size_t doubt) {
  const Sources& of_all = kernel_.sources_of_doubt(doubt);
  may_happen(doubt);
  return of_all.looks_up ? with(of_all, trails_of_doubts_[doubt].taken()) : of_all;
}

KnownKernel::KnownKernel(const AddressExtents& extents)
    : extents_(extents), groups_(extents.groups.size()), doubts_(extents.doubts.size()) {
  bytes_ = extents.expressions.size() * sizeof(Expression);
}

KnownLaunch& KnownKernel::launch(const LaunchValues& launch) {
  std::string key;
  append(key, std::span<const std::uint32_t>(launch.grid));
  append(key, std::span<const std::uint32_t>(launch.block));
  const std::array<std::uint64_t, 1> pointers{launch.pointers.size()};
  append(key, std::span<const std::uint64_t>(pointers));
  append(key, launch.pointers);
  append(key, std::span<const std::uint8_t>(without_addresses(launch)));
  const auto [found, is_new] = launches_.try_emplace(std::move(key));
  if (is_new) {
    found->second = std::make_unique<KnownLaunch>(*this, launch);
    constexpr std::size_t kAnswers = 1024;  // about
    bytes_ += 2 * found->first.size() + kAnswers;
  }
  return *found->second;
}

const std::vector<NumberAt>& KnownKernel::numbers_added(std::size_t group) {
  auto& known = groups_[group].numbers;
  if (!known) known = analyzer::numbers_added(extents_, extents_.groups[group]);
  return *known;
}

const Sources& KnownKernel::sources(std::size_t group) {
  auto& known = groups_[group].sources;
  if (!known) known = sources_of(extents_, extents_.groups[group]);
  return *known;
}

const Sources& KnownKernel::sources_of_doubt(std::size_t doubt) {
  auto& known = doubts_[doubt];
  if (!known) known = sources_of(extents_, extents_.doubts[doubt].happens);
  return *known;
}

bool KnownKernel::is_told(std::size_t group) {
  auto& known = groups_[group].is_told;
  if (!known) known = analyzer::is_told(extents_, extents_.groups[group]);
  return *known;
}

KnownKernel& KnownKernels::of(const AddressExtents& extents) {
  const std::uint64_t hash = hash_of(extents);
  const auto [first, last] = kernels_.equal_range(hash);
  const auto found = std::find_if(first, last, [&](const auto& each) { return each.second->extents == extents; });
  return found != last ? found->second->kernel
                       : kernels_.emplace(hash, std::make_unique<Kept>(extents))->second->kernel;
}

void KnownKernels::begin() {
  const std::size_t bytes = std::transform_reduce(kernels_.begin(), kernels_.end(), std::size_t{0}, std::plus<>(),
                                                  [](const auto& each) { return each.second->kernel.bytes(); });
  if (bytes > kMostBytes) kernels_.clear();
}

}  // namespace nimble::analyzer
