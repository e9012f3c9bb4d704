// The observer of a recording that finds what kernels write (shim/record/observers/probe/probe.h).
#pragma once

#include <memory>

#include "shim/record/observer.h"
#include "shim/record/observers/probe/probe.h"

namespace nimble::shim {

class ProbeObserver final : public RecordObserver {
 public:
  // `first`: how many launches to compare; 0: all. `on_request`: only those of threads that ask for it. `context` must
  // outlive it.
  ProbeObserver(std::uint64_t limit_bytes, std::uint64_t first, bool on_request, CallContext& context);

  // Sets whether this thread's launches are compared, if that is on request. For one recorder at a time.
  static void probe_this_thread(bool probe);
  static bool probes_this_thread();

  bool start(const Times&) override;
  void before(const Call& call, std::uint64_t, const std::atomic<bool>& any_captures) override;
  void after(const Call& call, CUresult result, std::uint64_t, Observed& observed) override;
  void kept(const Call& call, CUresult result, std::uint64_t) override;
  void leave() noexcept override;
  void sum_up(Summary& summary) const override;

 private:
  Probe* ready() const { return ready_.load(std::memory_order_acquire); }

  const ProbeOptions options_;
  CallContext& context_;
  std::unique_ptr<Probe> probe_;
  std::atomic<Probe*> ready_{nullptr};  // probe_ once it has begun
};

}  // namespace nimble::shim
