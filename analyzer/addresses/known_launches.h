// How far from its pointers each launch gets (analyzer/addresses/evaluate.h), computed once for launches that are
// alike.
//
// That depends on the kernel's expressions, on the launch's shape and its numbers, and on which words are pointers, but
// not on where these point: a network launches the same kernel in the same way for each of its layers, and again for
// each of its captures. Answers are those of evaluate.h. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analyzer/addresses/evaluate.h"
#include "nimble/internal/address_expressions.h"

namespace nimble::analyzer {

class KnownKernel;

// All launches of a kernel with the same values, but for addresses.
class KnownLaunch {
 public:
  KnownLaunch(KnownKernel& kernel, const LaunchValues& launch);

  KnownKernel& kernel() const { return kernel_; }
  // Of a group by its place in AddressExtents::groups.
  const std::optional<std::vector<Reach>>& reach(std::size_t group, std::uint32_t pointer);
  const std::optional<std::vector<Reach>>& reach_without_pointer(std::size_t group);
  // Whether the launch may make an address of the group of this word, wherever it then leads to.
  bool may_take(std::size_t group, std::uint32_t word);
  // Whether it seems so, by an answer for all words: it may be that of a pointer that has to be asked for itself.
  bool seems_to_take(std::size_t group, std::uint32_t word);
  // Of a doubt by its place in AddressExtents::doubts.
  bool may_happen(std::size_t doubt);
  // Whether an answer for the group may be another one if this word of the parameters were another pointer, or none.
  bool rests_on(std::size_t group, std::uint32_t word);
  // Those of evaluate.h; and what this launch takes from the parameters by an index, as far as answers so far rest on
  // it.
  std::vector<NumberAt> numbers_added(std::size_t group);
  Sources sources(std::size_t group);
  Sources sources_of_doubt(std::size_t doubt);

 private:
  LaunchValues values() const;
  const WordsTaken& words_taken(std::size_t group, std::uint32_t focus);

  KnownKernel& kernel_;
  std::vector<std::uint8_t> params_;  // zeros where pointers are
  std::vector<std::uint32_t> pointers_;
  std::array<std::uint32_t, 3> grid_, block_;
  std::map<std::pair<std::size_t, std::uint32_t>, std::optional<std::vector<Reach>>> reaches_;
  std::map<std::size_t, std::optional<std::vector<Reach>>> without_pointer_;
  std::map<std::pair<std::size_t, std::uint32_t>, WordsTaken> takes_;
  std::map<std::size_t, bool> happens_;
  std::map<std::size_t, Trail> trails_, trails_of_doubts_;
};

class KnownKernel {
 public:
  // `extents` must outlive it, and stay as they are.
  explicit KnownKernel(const AddressExtents& extents);

  const AddressExtents& extents() const { return extents_; }
  // References stay valid as long as the kernel is there.
  KnownLaunch& launch(const LaunchValues& launch);
  // Of every launch.
  const std::vector<NumberAt>& numbers_added(std::size_t group);
  const Sources& sources(std::size_t group);
  const Sources& sources_of_doubt(std::size_t doubt);
  bool is_told(std::size_t group);

  std::size_t bytes() const { return bytes_; }  // about how much memory it takes

 private:
  struct Group {
    std::optional<std::vector<NumberAt>> numbers;
    std::optional<Sources> sources;
    std::optional<bool> is_told;
  };

  const AddressExtents& extents_;
  std::vector<Group> groups_;
  std::vector<std::optional<Sources>> doubts_;
  std::unordered_map<std::string, std::unique_ptr<KnownLaunch>> launches_;
  std::size_t bytes_ = 0;
};

// The kernels of several analyses, by what their expressions are.
class KnownKernels {
 public:
  // Valid until the next begin().
  KnownKernel& of(const AddressExtents& extents);
  // An analysis begins. Forgets everything if it has become too much.
  void begin();

 private:
  struct Kept {
    explicit Kept(const AddressExtents& of) : extents(of), kernel(extents) {}
    const AddressExtents extents;
    KnownKernel kernel;
  };

  std::unordered_multimap<std::uint64_t, std::unique_ptr<Kept>> kernels_;  // by a hash of the expressions
};

}  // namespace nimble::analyzer
