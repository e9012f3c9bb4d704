// Orders ops by the memory that they touch: read after write, write after write, write after read.
//
// Refers to its arguments, which must outlive it. One thread; ops come in program order. No errors.
#pragma once

#include <cstdint>
#include <utility>
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
  void add_order(std::uint32_t earlier, std::uint32_t op, const Access& access, const AccessConflict& conflict);

  const DependencyInput& input_;
  DependencyList& list_;
  std::vector<std::uint32_t> alias_;  // per object: the one under which its accesses are compared
  std::vector<ObjectHistory> histories_;
  std::vector<std::uint64_t> epoch_;  // per object: the value of now_ for which its history holds
  std::uint64_t now_ = 0;             // counts calls of close()
  std::vector<AccessConflict> conflicts_;
  // Accesses up to here, per object, if any is by chance. Such a one is compared with each of the others, for it may be
  // in conflict with ops that the program leaves unordered, and so cannot stand for what was before it.
  struct Earlier {
    std::uint32_t op = 0, access = 0;
    ByteRect rect;
  };
  bool has_chance_ = false;
  std::vector<std::vector<Earlier>> earlier_;
};

}  // namespace nimble::analyzer
