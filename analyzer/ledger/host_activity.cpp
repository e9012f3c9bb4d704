#include "analyzer/ledger/host_activity.h"

#include <algorithm>

#include "analyzer/step/step_finder.h"

namespace nimble::analyzer {
namespace {

double end_of(const TraceCall& call) { return call.host_begin_us + call.host_duration_us; }

// Puts what is left of a loss, until `end_us`, down to this.
void add(Loss& rest, double end_us, LossCause cause, std::uint32_t call, std::vector<Loss>& out) {
  if (end_us <= rest.begin_us) return;
  Loss part = rest;
  part.end_us = end_us;
  part.cause = cause;
  part.call = call;
  out.push_back(part);
  rest.begin_us = end_us;
}

}  // namespace

HostActivity::HostActivity(const Trace& trace, double from_us, double until_us) : trace_(trace) {
  for (std::uint32_t index = 0; index < trace.calls.size(); ++index) {
    const TraceCall& call = trace.calls[index];
    if (end_of(call) > from_us && call.host_begin_us < until_us) threads_[call.thread].calls.push_back(index);
  }
  for (auto& [id, thread] : threads_) {
    std::ranges::stable_sort(thread.calls, {}, [&](std::uint32_t index) { return trace.calls[index].host_begin_us; });
    for (const std::uint32_t call : thread.calls)
      thread.until_us.push_back(
          std::max(end_of(trace.calls[call]), thread.until_us.empty() ? 0 : thread.until_us.back()));
  }
}

void HostActivity::split(const Loss& loss, std::uint32_t target, std::vector<Loss>& out) const {
  Loss rest = loss;
  if (const auto found = threads_.find(trace_.calls[target].thread); found != threads_.end()) {
    const Thread& thread = found->second;
    const auto first = std::ranges::upper_bound(thread.until_us, loss.begin_us) - thread.until_us.begin();
    for (auto at = static_cast<std::size_t>(first); at < thread.calls.size() && rest.begin_us < loss.end_us; ++at) {
      const TraceCall& call = trace_.calls[thread.calls[at]];
      if (call.host_begin_us >= loss.end_us) break;
      add(rest, call.host_begin_us, LossCause::host_code, target, out);
      add(rest, std::min(end_of(call), loss.end_us),
          observes(call) && !call.query ? LossCause::host_wait : LossCause::host_call, thread.calls[at], out);
    }
  }
  add(rest, loss.end_us, LossCause::host_code, target, out);
}

}  // namespace nimble::analyzer
