// Evidence `declared`, from the user's rules. A rule speaks for the whole kernel, self-contained or not.
//
// Refers to the trace and the rules, which must outlive it; caches one rule per function. One thread.
#pragma once

#include <vector>

#include "analyzer/access.h"
#include "analyzer/rules.h"

namespace nimble::analyzer {

class RulesAccess : public AccessSource {
 public:
  RulesAccess(const Trace& trace, const Rules& rules);

  Evidence evidence() const override { return Evidence::declared; }
  std::string basis(const OpQuestion& op) override;
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
  std::vector<Cached> cached_;
};

}  // namespace nimble::analyzer
