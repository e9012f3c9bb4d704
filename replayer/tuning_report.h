// What tuning has decided, told: in the log and the counters as it is decided, and in the schedule's file at the end.
//
// Remembers what it has said, and which file the schedule was read from, wherever the program goes since. Not
// synchronised: the replayer's lock guards it. Errors: what could not be written is said in the log.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nimble/internal/files/file_facts.h"
#include "replayer/replayer.h"
#include "replayer/stats/counters.h"
#include "replayer/tune/tuner.h"

namespace nimble {

class TuningReport {
 public:
  // Of the schedule that was read from this place, where this file was before.
  void begin(std::string place, const FileFacts& file) {
    place_ = std::move(place);
    file_ = file;
  }
  // Says what the tuners have decided since, one for each kind of step.
  void say(const std::vector<Tuner>& tuners, Counters& counters, const ReplayOptions& options);
  // Keeps it in the schedule's file, where anything was decided in this run.
  void save(const std::vector<Tuner>& tuners, const ReplayOptions& options) const;

 private:
  std::string place_;
  FileFacts file_;
  std::vector<std::uint32_t> said_;  // decisions, by kind of step
};

}  // namespace nimble
