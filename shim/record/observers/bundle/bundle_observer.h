// The observer of a recording that saves a step of the program (shim/record/observers/bundle/step_saver.h).
#pragma once

#include <memory>
#include <string>

#include "shim/record/observer.h"
#include "shim/record/observers/bundle/step_saver.h"

namespace nimble::shim {

class BundleObserver final : public RecordObserver {
 public:
  // `context` must outlive it.
  BundleObserver(StepSaverOptions options, CallContext& context);

  bool start(const Times&) override;
  void before(const Call& call, std::uint64_t, const std::atomic<bool>& any_captures) override;
  void kept(const Call& call, CUresult result, std::uint64_t seq) override;
  void ends(const Call& call, const std::atomic<bool>& any_captures) override;
  void finish(const std::string& trace) noexcept override;
  void forked() noexcept override;

 private:
  StepSaver* ready() const { return ready_.load(std::memory_order_acquire); }

  const StepSaverOptions options_;
  CallContext& context_;
  std::unique_ptr<StepSaver> capture_;
  std::atomic<StepSaver*> ready_{nullptr};  // capture_ once it has begun
};

}  // namespace nimble::shim
