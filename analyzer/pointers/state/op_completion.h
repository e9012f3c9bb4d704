// Which ops before a step were over when another of them began, as far as the program's own order and waits show it.
//
// Refers to the trace, which must outlive it. One thread; calls are noted in their order. No errors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "analyzer/step/happens_before.h"
#include "nimble/internal/trace.h"

namespace nimble::analyzer {

class OpCompletion {
 public:
  explicit OpCompletion(const Trace& trace) : trace_(trace) {}

  // Orders the ops before call `end`. Until then only those of one stream are in order.
  void order_before(std::uint32_t end);
  // The host has waited for a context: earlier unrecorded work is over.
  void note_wait(const TraceCall& wait);
  // Something that was not recorded may have been submitted.
  void note_unrecorded() { waited_.clear(); }

  bool is_over(std::uint32_t call, std::uint32_t before) const;

 private:
  static constexpr std::size_t kMostStreams = 32;  // with more, nothing is ordered

  const Trace& trace_;
  std::optional<HappensBefore> order_;
  std::vector<std::uint32_t> place_;  // per call: its place in order_
  // By context: when the host had first waited for all of it since something was not recorded, in microseconds.
  std::map<std::uint32_t, double> waited_;
};

}  // namespace nimble::analyzer
