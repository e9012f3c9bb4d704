// Memory touched by the program's ops that may still be running, stream by stream; and which works it launches in its
// own order.
//
// Guarded by the lock of Onlookers. Allocates nothing once built: whatever there is no room for may touch anything.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "replayer/onlookers/relaxed_work.h"
#include "replayer/onlookers/stream_clocks.h"
#include "replayer/onlookers/touched.h"

namespace nimble {

class TouchedByOps {
 public:
  // `clocks` must outlive it.
  explicit TouchedByOps(const StreamClocks& clocks);

  // The op is on its way to the driver, and touches this; or launches this work, null for none.
  void add(StreamClocks::Op op, const MemoryView& touched, const std::shared_ptr<RelaxedWork>& work);
  // An op about which nothing is known.
  void add_unknown() { crowded_ = true; }
  // The memory goes: who uses it next comes after this.
  void release(std::uint64_t address);
  // The work uses other memory from now on. What its launches in the program's order used is not kept.
  void forget(const RelaxedWork& work);

  // Whether there is any op that is not known to be through.
  bool any() const;
  // Whether an op that may run at the same time as what comes after what the clock has touches what this uses.
  bool meets(const StreamClocks::Clock& clock, const MemoryView& used) const;

 private:
  static constexpr std::size_t kMostParts = 96, kMostLaunched = 64;

  // Each with the number of the last op that touches it.
  struct Part {
    MemoryRange range;
    std::uint64_t number = 0;
  };
  struct OfStream {
    std::vector<Part> parts;
    std::uint64_t variables = 0, anything = 0;  // 0: none
  };
  struct Launched {
    StreamClocks::Op op;
    std::shared_ptr<RelaxedWork> work;
  };

  void add(StreamClocks::Op op, const MemoryRange& range);
  void add(StreamClocks::Op op, const std::shared_ptr<RelaxedWork>& work);

  const StreamClocks& clocks_;
  std::vector<OfStream> streams_;                                 // by slot
  std::array<std::uint64_t, StreamClocks::kMostStreams> last_{};  // by slot: of these ops the last one
  std::vector<Launched> launched_;
  bool crowded_ = false;  // there was an op about which nothing is known
};

}  // namespace nimble
