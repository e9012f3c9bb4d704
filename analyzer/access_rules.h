// Evidence `declared`, from the user's rules. A rule speaks for the whole kernel, self-contained or not. What a table
// of pointers leads to has to be known (analyzer/held_pointers.h).
//
// Refers to the trace and the rules, which must outlive it; caches one rule per function. One thread.
#pragma once

#include <vector>

#include "analyzer/access.h"
#include "analyzer/held_pointers.h"
#include "analyzer/rules.h"

namespace nimble::analyzer {

class RulesAccess : public AccessSource {
 public:
  RulesAccess(const Trace& trace, const Rules& rules, HeldPointers& held);

  Evidence evidence() const override { return Evidence::declared; }
  bool ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) override;
  bool is_pointer(const OpQuestion& op, std::uint32_t at) override;

 private:
  const Rule* rule_of(std::uint32_t function);

  struct Cached {
    bool asked = false;
    const Rule* rule = nullptr;
  };
  const Trace& trace_;
  const Rules& rules_;
  HeldPointers& held_;
  std::vector<Cached> cached_;
};

}  // namespace nimble::analyzer
