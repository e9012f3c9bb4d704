// Keeps ops in the program's order that may communicate, that touch memory which others can reach, or whose blocks wait
// for each other (analyzer/order/communication.h).
//
// Refers to its arguments, which must outlive it. One thread; ops come in program order. No errors.
#pragma once

#include <cstdint>
#include <vector>

#include "analyzer/order/dependencies.h"
#include "analyzer/order/dependency_list.h"

namespace nimble::analyzer {

class CommunicationOrder {
 public:
  CommunicationOrder(const DependencyInput& input, DependencyList& list);

  void add(std::uint32_t op);

 private:
  using OpsByStream = std::vector<std::vector<std::uint32_t>>;  // in order

  std::size_t count_before(std::uint32_t op, const std::vector<std::uint32_t>& ops, std::uint32_t s) const {
    return analyzer::count_before(input_.order, op, ops, s);
  }
  void add_after_last(std::uint32_t op, const std::vector<std::uint32_t>& ops, std::uint32_t s);
  void add_order(std::uint32_t from, std::uint32_t to);

  const DependencyInput& input_;
  DependencyList& list_;
  OpsByStream communicating_;
  OpsByStream waiting_;      // these, and those whose blocks wait for each other
  OpsByStream over_shared_;  // of those that may communicate: those that touch memory which others can reach
  OpsByStream sharing_;      // further ops that touch such memory
};

}  // namespace nimble::analyzer
