#include "shim/record/observers/probe/probe_observer.h"

namespace nimble::shim {

namespace {

thread_local bool t_probe __attribute__((tls_model("initial-exec"))) = false;  // see probe_this_thread()

ProbeOptions options_of(std::uint64_t limit_bytes, std::uint64_t first, bool on_request) {
  ProbeOptions options;
  options.limit_bytes = limit_bytes;
  options.launches = first;
  options.wanted = on_request ? +[] { return t_probe; } : nullptr;
  return options;
}

}  // namespace

ProbeObserver::ProbeObserver(std::uint64_t limit_bytes, std::uint64_t first, bool on_request, CallContext& context)
    : options_(options_of(limit_bytes, first, on_request)), context_(context) {}

void ProbeObserver::probe_this_thread(bool probe) { t_probe = probe; }
bool ProbeObserver::probes_this_thread() { return t_probe; }

bool ProbeObserver::start(const Times&) {
  probe_ = std::make_unique<Probe>(options_, context_);
  ready_.store(probe_.get(), std::memory_order_release);
  return false;
}

void ProbeObserver::before(const Call& call, std::uint64_t, const std::atomic<bool>& any_captures) {
  if (Probe* const probe = ready()) probe->before(call, any_captures);
}

void ProbeObserver::after(const Call& call, CUresult result, std::uint64_t, Observed& observed) {
  if (Probe* const probe = ready()) observed.accesses = probe->after(call, result);
}

void ProbeObserver::kept(const Call& call, CUresult result, std::uint64_t) {
  Probe* const probe = ready();
  if (probe && result == CUDA_SUCCESS && is_allocation(call.kind)) probe->allocated(call);
}

// The recording may end in the middle of a call: calls of other threads wait for a launch that is compared.
void ProbeObserver::leave() noexcept {
  if (Probe* const probe = ready()) probe->leave();
}

void ProbeObserver::sum_up(Summary& summary) const {
  if (const Probe* const probe = ready()) summary.probe = probe->totals();
}

}  // namespace nimble::shim
