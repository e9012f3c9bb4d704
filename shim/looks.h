// Who looks at the memory of graphs in an order of ours from other streams while they run: rewritten graphs, and
// regions. As replayer/step_onlookers.cpp has it of steps.
//
// An op that may touch what such a graph touches, on a stream that has not been put in order with the graph's launch,
// does not reach the driver before the graph is through, and from then on the graph has the program's order. And while
// such an op may be running, so has what is launched.
//
// One lock guards what is known of streams; under it the driver is asked whether somebody else's op is through. Any
// thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "nimble/call.h"
#include "replayer/driver_api.h"
#include "replayer/onlookers.h"

namespace nimble::shim {

// A graph that may be launched in an order of ours.
class LookedAt {
 public:
  LookedAt() = default;
  LookedAt(const LookedAt&) = delete;
  LookedAt& operator=(const LookedAt&) = delete;
  virtual ~LookedAt() = default;

  // Its context.
  virtual CUcontext made_in() const = 0;
  // Whether it is launched in the program's order alone from now on.
  virtual bool is_kept() const = 0;
  // Whether the driver says that all that was launched is through. Not while a launch is being made.
  virtual bool is_through() noexcept = 0;

 private:
  friend class Looks;

  // Guarded by the lock of Looks.
  std::uint32_t begun_ = 0;  // launches that are being made
  bool running_ = false;     // the last one may be, as far as the driver has not been asked
  bool was_launched_ = false;
  StreamRef stream_;          // of the last one
  std::uint64_t launch_ = 0;  // its number among all such launches
};

class Looks {
 public:
  explicit Looks(CallContext& context) : context_(context) {}

  // --- Of ops that are none of a graph's.

  // The op is on its way from now on, until it has landed. Whether it may be one that looks.
  bool arrives(Call& call);
  void landed(const Call& call) { onlookers_.landed(call); }
  // It may touch memory of this graph's. Whether it must not reach the driver before that is through.
  bool meets(Call& call, LookedAt& graph);
  // Whether it is through, which it is not while it is being launched.
  bool is_through(LookedAt& graph);
  // Whether there were such launches.
  bool any() const { return any_.load(std::memory_order_acquire); }

  // --- Of launches.

  // Whether it may be launched in our order now. launched() has to follow, which is told so (`alone`), whether the
  // driver took the launch (`good`), and whether it was in our order.
  bool may_launch(const DriverApi& driver, LookedAt& graph, const StreamRef& stream, bool may_ask);
  void launched(LookedAt& graph, const StreamRef& stream, bool alone, bool good, bool in_our_order);

  // --- Of order.

  // The driver has taken the call. `records`: a graph launch that may record events.
  void ordered(const Call& call, bool records);
  // The call is about to end a stream, an event or a context.
  void ends(const DriverApi* driver, const Call& call);

 private:
  static constexpr std::uint64_t kSeveral = ~std::uint64_t{0};
  bool is_of_launches(const StreamRef& stream) const;
  void of_launches(const StreamRef& stream);

  CallContext& context_;
  std::atomic<bool> any_{false};               // there were such launches
  std::atomic<std::uint64_t> only_stream_{0};  // the key of the stream that all were launched on, or kSeveral
  Onlookers onlookers_;
  mutable std::mutex mutex_;                // guards what follows, and what onlookers_ has under a lock, and LookedAt
  std::array<std::uint64_t, 8> streams_{};  // keys of those that launches were on; 0: none
  std::uint64_t launches_ = 0;
};

}  // namespace nimble::shim
