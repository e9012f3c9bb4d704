// Evidence against evidence: accesses that a source calls read-only, or does not mention, and that were seen to write.
//
// The conservative one wins: such an access becomes a read and a write in all launches of the kernel, except launches
// that, by the source itself, do less than the ones that were seen to write. Refers to the trace and the observations,
// which must outlive it. One thread. No errors: conflicts are results.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/pointers/observations.h"

namespace nimble::analyzer {

struct EvidenceConflict {
  std::uint32_t function = kNone;
  std::uint32_t at = 0;         // byte of the packed parameters where the pointer is
  std::uint32_t parameter = 0;  // the one that this byte belongs to
  Evidence evidence = Evidence::declared;
  std::string basis;           // what said so: "its signature"
  bool touched = true;         // whether that mentioned the word at all
  std::uint32_t launches = 0;  // in which the write was seen, among those that were compared
  std::uint32_t compared = 0;
  std::uint64_t first_seq = 0;  // the first of them
};

class ConflictFinder {
 public:
  ConflictFinder(const Trace& trace, const Observations& seen) : trace_(trace), seen_(seen) {}

  // Corrects what `speaker` has appended to `found`, from `first` on, for a launch. Access::object is an index into
  // the trace's ObjectTable.
  void correct(const OpQuestion& op, AccessSource& speaker, std::vector<Access>& found, std::size_t first);

  // Whether an access through this word was added to the launch that was corrected last.
  bool added(std::uint32_t at) const { return added_.count(at) != 0; }

  // In the order in which they were found.
  std::vector<EvidenceConflict> take() { return std::move(conflicts_); }

 private:
  bool explains_all(const OpQuestion& op, AccessSource& speaker);
  void note(const OpQuestion& op, AccessSource& speaker, const WrittenWords& written, std::uint32_t at, bool touched);

  const Trace& trace_;
  const Observations& seen_;
  std::set<std::uint32_t> added_;
  std::map<std::pair<std::uint32_t, const AccessSource*>, bool> explains_all_;  // by function
  std::set<std::pair<std::uint32_t, std::uint32_t>> known_;                     // function and byte
  std::vector<EvidenceConflict> conflicts_;
};

}  // namespace nimble::analyzer
