// Evidence against evidence: what a source says is only read, or not touched at all, and was seen to be written.
//
// The conservative one wins: such an access becomes a read and a write, in all launches of the kernel; but for those of
// which the source itself says that they do less than the ones that were seen to write. Refers to the trace and the
// observations, which must outlive it. One thread. No errors: conflicts are results.
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
  std::uint32_t at = 0;         // byte of the packed parameters where the pointer stands
  std::uint32_t parameter = 0;  // that this byte belongs to
  Evidence evidence = Evidence::declared;
  std::string basis;           // what said so: "its signature"
  bool touched = true;         // whether that said anything of the word at all
  std::uint32_t launches = 0;  // in which the write was seen, of those that were compared
  std::uint32_t compared = 0;
  std::uint64_t first_seq = 0;  // the first of them
};

class ConflictFinder {
 public:
  ConflictFinder(const Trace& trace, const Observations& seen) : trace_(trace), seen_(seen) {}

  // Corrects what `speaker` has appended to `found`, from `first` on, for a launch. Access::object is an index into
  // the trace's ObjectTable.
  void correct(const OpQuestion& op, AccessSource& speaker, std::vector<Access>& found, std::size_t first);

  // Whether an access through this word of the launch that was corrected last was added.
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
