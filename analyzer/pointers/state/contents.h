// The pointers that a step puts into memory, by object: where they lead, and which ops brought them.
//
// Owns what it holds. One thread. Objects are slots (PointerFacts::slot), ops indices into the step. No errors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <vector>

namespace nimble::analyzer {

// What lies in one object since the step began.
struct Contents {
  struct Place {
    std::uint32_t object;  // that the pointer there leads to
    bool old = false;      // it is from the repeat before
    bool operator==(const Place&) const = default;
  };

  std::map<std::uint64_t, Place> places;          // by offset, exactly there
  std::set<std::uint32_t> somewhere;              // bundles that may be anywhere in it
  std::map<std::uint64_t, std::uint64_t> filled;  // by the step: begin to end, disjoint
  bool old = false;                               // some of `somewhere` are from the repeat before
  std::set<std::uint32_t> fillers;                // copies and sets of the step that brought any of this
  bool unknown = false;                           // something else may be there: `why`
  std::string_view why;

  void become_unknown(std::string_view reason);
  bool empty() const { return places.empty() && somewhere.empty() && !unknown; }
  // Whether anything is from the repeat before.
  bool carried() const;
  // All objects that `places` lead to.
  std::vector<std::uint32_t> placed() const;
  // Whether it is too much to be kept track of.
  bool overflows() const;
  void fill(std::uint64_t begin, std::uint64_t end);
  // Forgets what is in these bytes.
  void erase_places(std::uint64_t begin, std::uint64_t end);
  // Adds what a copy has brought to these bytes.
  void merge(const Contents& arriving, std::uint64_t begin, std::uint64_t end);

  bool operator==(const Contents&) const = default;
};

class StepContents {
 public:
  // A set of objects that a kernel was given, or has moved, has one number: a bundle.
  std::uint32_t bundle(std::vector<std::uint32_t> objects);
  const std::vector<std::uint32_t>& objects_of(std::uint32_t bundle) const { return bundles_[bundle]; }

  Contents& at(std::uint32_t object) { return contents_[object]; }
  // Null if the step has put nothing there.
  const Contents* find(std::uint32_t object) const;
  bool holds_pointers(std::uint32_t object) const {
    const Contents* found = find(object);
    return found != nullptr && !found->empty();
  }
  bool any_pointers() const;

  // The step is over and begins again: what lasts is now from the repeat before. `born`: whether an object is allocated
  // by the step.
  void end_step(const std::function<bool(std::uint32_t)>& born);
  const std::map<std::uint32_t, Contents>& all() const { return contents_; }
  void forget() { contents_.clear(); }

 private:
  std::vector<std::vector<std::uint32_t>> bundles_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> bundle_of_;
  std::map<std::uint32_t, Contents> contents_;
};

}  // namespace nimble::analyzer
