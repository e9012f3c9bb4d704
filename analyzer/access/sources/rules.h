// Evidence `declared`, from rules: the user's, and those that come with the tool. A rule speaks for the whole kernel,
// self-contained or not, unless it says that the code must be self-contained. It has to be known what the pointers of a
// table lead to (analyzer/pointers/pointer_flow.h).
//
// Refers to the trace and the rules, which must outlive it; caches one rule per function. One thread.
#pragma once

#include <string>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/pointers/pointer_flow.h"
#include "analyzer/rules/rules.h"

namespace nimble::analyzer {

class RulesAccess : public AccessSource {
 public:
  RulesAccess(const Trace& trace, const Rules& rules, PointersInMemory& in_memory);

  Evidence evidence() const override { return Evidence::declared; }
  std::string basis(const OpQuestion& op) override;
  bool ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) override;
  bool is_pointer(const OpQuestion& op, std::uint32_t at) override;
  void pin(const OpQuestion& op, Pinned& pinned) override;

 private:
  const Rule* rule_of(std::uint32_t function);
  void ask_param(const OpQuestion& op, const Rule& rule, std::size_t index, std::vector<Access>& found,
                 std::string& why_not) const;

  void ask_table(const OpQuestion& op, const Rule& rule, std::size_t index, std::vector<Access>& found,
                 std::string& why_not) const;

  struct Cached {
    bool asked = false;
    const Rule* rule = nullptr;
  };
  const Trace& trace_;
  const Rules& rules_;
  PointersInMemory& in_memory_;
  std::string hidden_;  // what was created that lets kernels reach unnamed memory
  std::vector<Cached> cached_;
};

}  // namespace nimble::analyzer
