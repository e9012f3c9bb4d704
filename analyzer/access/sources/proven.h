// What a kernel's code proves: through which words of its parameters it reads and writes (the trace's `proven`).
//
// If it is the code that ran, this is evidence `proven`. If it is PTX for another architecture that came with the
// machine code, the same source may have said something else there: then it is a declaration, and every pointer that it
// knows nothing about is assumed to be read and written. Gives no answer if the launch's parameters do not tell where
// memory is. What is only touched under a condition (analyzer/kernel_code/ptx_flow/guards.h) is left out if the
// launch's parameters exclude it, and these are pinned. Nor does it answer for a launch that may do what proves nothing
// (analyzer/access/doubts.h). Refers to the trace, which must outlive it. One thread.
#pragma once

#include <string>

#include "analyzer/access/access.h"

namespace nimble::analyzer {

class ProvenAccessSource : public AccessSource {
 public:
  // One source for each strength: for code that ran, and for code of another architecture.
  ProvenAccessSource(const Trace& trace, bool same_code);

  Evidence evidence() const override { return same_code_ ? Evidence::proven : Evidence::declared; }
  bool from_code() const override { return true; }
  std::string basis(const OpQuestion&) override {
    return same_code_ ? "its code" : "its code for another architecture";
  }
  bool ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) override;
  // Words that the code follows, and all that point to memory: the pointer may be passed on.
  bool is_pointer(const OpQuestion& op, std::uint32_t at) override;
  // If the code makes an address and no word leads anywhere: all words that are not pointers were null, and have to be.
  // And what excludes an access.
  void pin(const OpQuestion& op, Pinned& pinned) override;

 private:
  // Why it is not known which memory a launch touches by this access; empty if it is.
  static std::string why_not_found(const OpQuestion& op, const ProvenAccess& access);
  // `told`: the words whose use the code tells, ascending.
  void add_accesses(const OpQuestion& op, const std::vector<std::uint32_t>& told, std::vector<Access>& found) const;

  std::string hidden_;  // what was created that lets kernels reach unnamed memory
  bool same_code_;
};

}  // namespace nimble::analyzer
