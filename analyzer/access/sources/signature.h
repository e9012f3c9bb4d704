// Evidence `declared`, from the kernel's own signature: `T const*` is only read, any other pointer is read and written.
//
// If a parameter leads to pointers in memory, what these lead to counts as well, and the signature only speaks if it is
// known what they are (analyzer/pointers/pointer_flow.h): `T* const*` is a table of them, a class by value may lead to
// some, and `void*`, pointers to classes and to 8-byte integers must not. A launch that is a node of a graph may come
// again after the program has put something else there: then a class must lead to what the graph itself has filled,
// unless the kernel was seen to follow nothing.
//
// Where the code is known to follow addresses in memory, a signature that leads to none is not the whole truth, and
// does not speak.
//
// Speaks only for kernels whose code was read and is self-contained and whose parameter types account for every byte of
// the parameters, and only in traces without anything that lets a kernel reach memory that no parameter names. Caches
// one verdict per function; refers to the trace, which must outlive it. One thread.
#pragma once

#include <string>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/pointers/observations.h"
#include "analyzer/pointers/parameter_types.h"
#include "analyzer/pointers/pointer_flow.h"

namespace nimble::analyzer {

class SignatureAccess : public AccessSource {
 public:
  // `seen` may be null: then nothing that was seen is believed.
  SignatureAccess(const Trace& trace, PointersInMemory& in_memory, const Observations* seen = nullptr);

  Evidence evidence() const override { return Evidence::declared; }
  std::string basis(const OpQuestion&) override { return "its signature"; }
  bool ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) override;

 private:
  struct Verdict {
    bool asked = false;
    std::string why_not;  // empty if the signature speaks
    std::vector<ParamType> types;
  };
  static bool leads_on(const ParamType& type);
  Verdict judge(const TraceFunction& function) const;
  // Adds what a parameter leads to through pointers in memory.
  bool follow(const OpQuestion& op, std::size_t param, const ParamType& type, std::vector<Access>& found,
              std::string& why_not);

  const Trace& trace_;
  PointersInMemory& in_memory_;
  const Observations* const seen_;
  std::string hidden_;  // what was created that lets kernels reach unnamed memory
  std::vector<Verdict> verdicts_;
};

}  // namespace nimble::analyzer
