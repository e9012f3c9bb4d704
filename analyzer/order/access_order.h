// Orders ops by the memory that they touch: read after write, write after write, write after read.
//
// Refers to its arguments, which must outlive it. One thread; ops come in program order. No errors.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/order/dependencies.h"
#include "analyzer/order/dependency_list.h"
#include "analyzer/order/object_history.h"

namespace nimble::analyzer {

class AccessOrder {
 public:
  AccessOrder(const DependencyInput& input, DependencyList& list);

  void add(std::uint32_t op);
  // Everything later comes after everything up to here: earlier accesses need no further comparison.
  void close() { ++now_; }

 private:
  void add(std::uint32_t op, const Access& access, std::uint32_t index);

  const DependencyInput& input_;
  DependencyList& list_;
  std::vector<std::uint32_t> alias_;  // per object: the one under which its accesses are compared
  std::vector<ObjectHistory> histories_;
  std::vector<std::uint64_t> epoch_;  // per object: the value of now_ for which its history holds
  std::uint64_t now_ = 0;             // counts calls of close()
  std::vector<AccessConflict> conflicts_;
};

}  // namespace nimble::analyzer
