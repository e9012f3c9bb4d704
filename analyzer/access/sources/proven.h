// What a kernel's code proves: through which words of its parameters it reads and writes (the trace's `proven`).
//
// Where the code is what ran, this is evidence `proven`. Where it is PTX of another architecture beside the machine
// code, the same source may have said something else there: then it is a declaration, and every pointer of which it
// knows nothing is taken to be read and written. Says no where the launch's parameters do not tell where memory is.
// What is touched under a condition alone (analyzer/kernel_code/ptx_flow/guards.h) is not where the launch's parameters
// exclude it, and these are pinned. Refers to the trace, which must outlive it. One thread.
#pragma once

#include <string>

#include "analyzer/access/access.h"

namespace nimble::analyzer {

class ProvenAccessSource : public AccessSource {
 public:
  // One source for each strength: of code that ran, or of another architecture's.
  ProvenAccessSource(const Trace& trace, bool same_code);

  Evidence evidence() const override { return same_code_ ? Evidence::proven : Evidence::declared; }
  bool from_code() const override { return true; }
  std::string basis(const OpQuestion&) override {
    return same_code_ ? "its code" : "its code for another architecture";
  }
  bool ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) override;
  // Words that the code that ran follows, and whatever points to memory: it may be handed on.
  bool is_pointer(const OpQuestion& op, std::uint32_t at) override;
  // Where the code makes an address, and no word leads anywhere: all that is no pointer was null, and has to be. And
  // what excludes an access.
  void pin(const OpQuestion& op, Pinned& pinned) override;

 private:
  std::string hidden_;  // what was created, by which kernels may reach unnamed memory
  bool same_code_;
};

}  // namespace nimble::analyzer
