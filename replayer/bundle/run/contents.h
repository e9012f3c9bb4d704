// The contents of the step's memory: restores them to the recorded start, and compares them with the recorded end.
//
// Memory that the step allocates is filled with a pattern, so that leftovers of the previous run do not pass for this
// one's results. Host sources of copies have the content of the program's call: the program may have written them in
// the middle of the step, so they are not compared.
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

// How memory at the end of a run differs from the recording.
struct Difference {
  std::string what;          // the object, in words
  std::uint64_t offset = 0;  // of the first differing byte, in it
  std::uint8_t recorded = 0, found = 0;
  std::uint64_t bytes = 0;    // that differ, in all objects
  std::uint64_t objects = 0;  // in which some do
  std::string last_writer;    // the last writer of that first byte, in words
};

class Contents {
 public:
  Contents(LiveDriver& driver, const BundleFiles& files, const RecordedStep& step, const Payloads& payloads,
           const Placement& placement, LiveOps& ops);

  // Restores memory. Memory that the step does not change is restored only if `all` is set: the first time, and
  // whenever something else may have run since.
  void restore(bool all);
  // Nothing if everything is as recorded. `all` as above; addresses of moved memory are compared by what they point to.
  std::optional<Difference> compare(bool all, const Run& run);
  // What holds the address of such memory before the step runs, in words; empty if nothing does. It may be stale, or be
  // followed.
  std::string leads_elsewhere(const Run& run) const;

 private:
  using Bytes = std::vector<std::uint8_t>;

  // The first word, described, for which `wanted` holds, among the objects' contents at the start and the host sources
  // of copies.
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
  std::map<std::uint64_t, Bytes> sources_;  // by recorded address: in memory that a device can reach; disjoint
  Bytes buffer_, expected_;
};

}  // namespace nimble::bundle
