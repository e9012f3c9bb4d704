#include "analyzer/rules/kept_rules.h"

#include "analyzer/rules/shipped_rules.h"

namespace nimble::analyzer {

std::shared_ptr<const Rules> KeptRules::get() {
  const std::lock_guard lock(mutex_);
  if (rules_) return rules_;
  Rules rules;
  for (const std::string& file : files_) rules.read(file);
  add_shipped_rules(rules);
  rules_ = std::make_shared<const Rules>(std::move(rules));
  return rules_;
}

}  // namespace nimble::analyzer
