// Rules that one analysis after another goes by: the files that a user names, and behind them those that come with the
// tool. They are read and compiled when they are asked for the first time, since most of a small analysis would be
// that.
//
// Owns the rules; whoever has got them may use them for as long as they like. Any thread.
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

  // InputError where a file cannot be read: whoever asks next has it read anew.
  std::shared_ptr<const Rules> get();

 private:
  const std::vector<std::string> files_;
  std::mutex mutex_;
  std::shared_ptr<const Rules> rules_;
};

}  // namespace nimble::analyzer
