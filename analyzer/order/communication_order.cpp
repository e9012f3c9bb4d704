#include "analyzer/order/communication_order.h"

namespace nimble::analyzer {

CommunicationOrder::CommunicationOrder(const DependencyInput& input, DependencyList& list)
    : input_(input),
      list_(list),
      communicating_(input.order.streams()),
      waiting_(input.order.streams()),
      over_shared_(input.order.streams()),
      sharing_(input.order.streams()) {}

// An op that may communicate comes after the last such op on each stream. If it touches memory that others can reach,
// its message may be about any such memory.
void CommunicationOrder::add(std::uint32_t op) {
  const OpAccesses& mine = input_.accesses.ops[op];
  const bool communicates = mine.communicates != Communicates::no;
  const std::uint32_t own = input_.order.stream(op);
  if (communicates || mine.blocks_wait) {
    for (std::uint32_t s = 0; s < input_.order.streams(); ++s) add_after_last(op, waiting_[s], s);
    waiting_[own].push_back(op);
  }
  if (!communicates && !mine.shares) return;
  for (std::uint32_t s = 0; s < input_.order.streams(); ++s) {
    if (!communicates) {
      add_after_last(op, over_shared_[s], s);
      continue;
    }
    const auto& others = communicating_[s];
    const std::size_t before = count_before(op, others, s);
    if (before < others.size()) {
      list_.add_race(others[before], op, kNone, true);
      list_.count_races(others.size() - before - 1);
    }
    if (!mine.shares) continue;
    // What the last such op on its own stream comes after already is implied.
    const std::size_t from = over_shared_[own].empty() ? 0 : count_before(over_shared_[own].back(), sharing_[s], s);
    for (std::size_t i = from; i < count_before(op, sharing_[s], s); ++i) add_order(sharing_[s][i], op);
  }
  if (communicates) communicating_[own].push_back(op);
  if (mine.shares) (communicates ? over_shared_ : sharing_)[own].push_back(op);
}

void CommunicationOrder::add_after_last(std::uint32_t op, const std::vector<std::uint32_t>& ops, std::uint32_t s) {
  if (const std::size_t before = count_before(op, ops, s); before > 0) add_order(ops[before - 1], op);
}

// The evidence is that of their communicating, or waiting.
void CommunicationOrder::add_order(std::uint32_t from, std::uint32_t to) {
  Evidence evidence = Evidence::exact;
  for (std::uint32_t op : {from, to}) {
    const Communicates communicates = input_.accesses.ops[op].communicates;
    if (input_.accesses.ops[op].blocks_wait) evidence = weaker(evidence, Evidence::declared);
    if (communicates == Communicates::by_rule) evidence = weaker(evidence, Evidence::declared);
    if (communicates == Communicates::by_memory) evidence = Evidence::assumed;
  }
  list_.add_order(from, to, evidence);
}

}  // namespace nimble::analyzer
