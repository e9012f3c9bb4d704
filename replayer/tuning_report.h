// Reports the decisions of tuning: in the log and the counters as they are made, and in the schedule's file at the end.
//
// Remembers what it has reported, and the absolute path of the schedule's file. Not synchronised: the replayer's lock
// guards it. Logs what could not be written.
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
  // For the schedule read from this path, with the file's facts from before.
  void begin(std::string place, const FileFacts& file) {
    place_ = std::move(place);
    file_ = file;
  }
  // Reports new decisions of the tuners, one for each kind of step.
  void say(const std::vector<Tuner>& tuners, Counters& counters, const ReplayOptions& options);
  // Saves them in the schedule's file, if anything was decided in this run.
  void save(const std::vector<Tuner>& tuners, const ReplayOptions& options) const;

 private:
  std::string place_;
  FileFacts file_;
  std::vector<std::uint32_t> said_;  // decisions reported, by kind of step
};

}  // namespace nimble
