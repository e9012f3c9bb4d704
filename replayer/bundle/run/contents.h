// What the step's memory holds: put back to how it was recorded at the step's start, and compared with its end.
//
// Memory that the step allocates is filled with a pattern, so that a result which was left by the run before does not
// pass for this one's. Of the host's memory, what copies take from it is what was there when the program made the call:
// the program may have written it in the midst of the step; that is not compared.
//
// One thread, with the driver's context current and nothing in flight. Errors: InputError for a damaged file,
// DriverError, Refused.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "replayer/bundle/process/live_driver.h"
#include "replayer/bundle/process/placement.h"
#include "replayer/bundle/run/live_ops.h"
#include "replayer/bundle/run/runs.h"
#include "replayer/bundle/saved/bundle_reader.h"
#include "replayer/bundle/saved/recorded_step.h"

namespace nimble::bundle {

// Where memory at the end of a run is not what was recorded.
struct Difference {
  std::string what;          // the object, in words
  std::uint64_t offset = 0;  // of the first byte that differs, in it
  std::uint8_t recorded = 0, found = 0;
  std::uint64_t bytes = 0;    // that differ, of all objects
  std::uint64_t objects = 0;  // in which some do
  std::string last_writer;    // what wrote that first byte last, in words
};

class Contents {
 public:
  Contents(LiveDriver& driver, const BundleFiles& files, const RecordedStep& step, const Payloads& payloads,
           const Placement& placement, LiveOps& ops);

  // Puts memory back. What the step leaves as it is only needs that where `all` is set: the first time, and wherever
  // something else may have run since.
  void restore(bool all);
  // Nothing where all is as recorded. `all` as above; addresses of memory that the run puts elsewhere are compared by
  // what they lead to.
  std::optional<Difference> compare(bool all, const Run& run);
  // What holds the address of such memory before the step runs, in words; empty where nothing does. It may be left over
  // from the step before, or be followed.
  std::string leads_elsewhere(const Run& run) const;

 private:
  using Bytes = std::vector<std::uint8_t>;

  // Asks of every word of what objects hold at the start, and of what copies take from the host; the first of which it
  // is true, in words.
  std::string find_word(const std::function<bool(std::uint64_t)>& wanted,
                        const std::function<bool(std::uint32_t)>& skipped) const;
  void check_addresses() const;
  void gather_sources();
  bool changes(const BundleObject& object) const;
  void write(std::uint64_t here, bool on_host, std::uint64_t size, const BundleContent& content);
  void fill(std::uint64_t here, bool on_host, std::uint64_t size);
  void read_back(std::uint64_t here, bool on_host, std::uint64_t bytes, std::uint8_t* out);
  bool written_by_host(std::uint64_t address) const;
  bool same_word(const Run& run, const std::uint8_t* recorded, const std::uint8_t* found, std::uint32_t byte,
                 std::uint32_t size) const;
  void compare_object(std::size_t index, const Run& run, std::optional<Difference>& first);
  void gather_source(const BundlePayload& source, std::uint64_t done, Bytes bytes);
  void compare_result(const BundlePayload& payload, const Run& run, std::optional<Difference>& first);

  LiveDriver& driver_;
  const BundleFiles& files_;
  const RecordedStep& step_;
  const Payloads& payloads_;
  const Placement& placement_;
  LiveOps& ops_;
  std::map<std::uint64_t, Bytes> sources_;  // by recorded address: in memory that a device can reach; apart
  Bytes buffer_, expected_;
};

}  // namespace nimble::bundle
