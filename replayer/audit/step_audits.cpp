#include "replayer/audit/step_audits.h"

#include <chrono>
#include <string>
#include <thread>

#include "nimble/internal/process/not_cancelled.h"
#include "replayer/driver/current_context.h"

namespace nimble {

void StepAudits::elsewhere(const Call& call) {
  if (!audit_) return;
  ++ops_elsewhere_;
  if (audit_->pending() && driver_.cuStreamWaitEvent_(call.stream.handle, audit_->done(), 0) != CUDA_SUCCESS)
    standing_.stand_aside("a stream cannot wait for an audit");
}

void StepAudits::judge() {
  // Captures forbid queries.
  if (!pending() || captures_.any()) return;
  const CurrentContext current(driver_, streams_.context());
  std::string text = audit_->judge();
  if (text.empty()) return;
  standing_.stand_aside(std::move(text));
}

void StepAudits::finish() {
  constexpr int kMostMilliseconds = 2000;
  const NotCancelled not_cancelled;
  for (int i = 0; i < kMostMilliseconds && pending() && !standing_.aside(); ++i) {
    judge();
    if (pending()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (pending()) ++counters_.audits_skipped["the program ended before it was over"];
}

}  // namespace nimble
