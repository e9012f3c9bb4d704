// Which words of a step's launches look like addresses and were taken to lead nowhere: what the step may do rests on
// that no memory comes there. Replay asks of each such word before it launches; nobody does before a graph's launch.
//
// A word at any byte counts: nobody was asked about one that does not stand where pointers are aligned. Not of ops that
// are ordered with everything, whatever they touch, nor where it is known that the word is no address.
//
// Pure; any thread. No errors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/pointers/observations.h"

namespace nimble::analyzer {

// Ascending, each once. `accesses` are of the step's calls.
std::vector<std::uint64_t> words_that_led_nowhere(const Trace& trace, const ObjectTable& table,
                                                  const Observations& seen, const StepAccesses& accesses,
                                                  std::span<const std::uint32_t> calls);

}  // namespace nimble::analyzer
