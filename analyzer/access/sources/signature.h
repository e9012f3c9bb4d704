// Evidence `declared`, from the kernel's own signature: `T const*` is only read, any other pointer is read and written.
//
// Where a parameter leads to pointers in memory, what these lead to counts as well, and the signature speaks only where
// it is known what they are (analyzer/pointers/pointer_flow.h): `T* const*` is a table of them, a class by value may
// lead to some, and `void*`, pointers to classes and to 8-byte integers must not. Where the launch is a node of a
// graph, which comes again when the program may have put something else there, a class must lead to what the graph
// itself has filled, unless the kernel was seen to follow nothing.
//
// Speaks only for kernels whose code was read and is self-contained, in a trace in which nothing was created through
// which a kernel reaches memory that no parameter names, and whose parameter types account for every byte of the
// parameters. Caches one verdict per function; refers to the trace, which must outlive it. One thread.
#pragma once

#include <string>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/pointers/observations.h"
#include "analyzer/pointers/pointer_flow.h"
#include "analyzer/pointers/signature.h"

namespace nimble::analyzer {

class SignatureAccess : public AccessSource {
 public:
  // `seen` may be null: then nothing that was seen is believed.
  SignatureAccess(const Trace& trace, HeldPointers& held, const Observations* seen = nullptr);

  Evidence evidence() const override { return Evidence::declared; }
  std::string basis(const OpQuestion&) override { return "its signature"; }
  bool ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) override;

 private:
  struct Verdict {
    bool asked = false;
    std::string why_not;  // empty where the signature speaks
    std::vector<ParamType> types;
  };
  Verdict judge(const TraceFunction& function) const;
  // Adds what a parameter leads to over pointers in memory.
  bool follow(const OpQuestion& op, std::size_t param, const ParamType& type, std::vector<Access>& found,
              std::string& why_not);

  const Trace& trace_;
  HeldPointers& held_;
  const Observations* const seen_;
  std::string hidden_;  // what was created, by which kernels may reach unnamed memory
  std::vector<Verdict> verdicts_;
};

}  // namespace nimble::analyzer
