// Rules that several analyses share: the files that a user names, and after them those that come with the tool. They
// are read and compiled when they are first needed, because that would be most of a small analysis.
//
// Owns the rules; users of them may keep them as long as they like. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/rules/rules.h"

namespace nimble::analyzer {

class KeptRules {
 public:
  explicit KeptRules(std::vector<std::string> files) : files_(std::move(files)) {}

  // InputError if a file cannot be read: the next call tries again.
  std::shared_ptr<const Rules> get();

 private:
  const std::vector<std::string> files_;
  std::mutex mutex_;
  std::shared_ptr<const Rules> rules_;
};

}  // namespace nimble::analyzer
