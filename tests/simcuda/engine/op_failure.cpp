// See op_failure.h.
#include "tests/simcuda/engine/op_failure.h"

#include <cstring>

#include "tests/simcuda/driver/inject.h"
#include "tests/simcuda/engine/op.h"
#include "tests/simcuda/simcuda.h"

namespace simcuda {
namespace {

struct Failure {
  int kind = SIMCUDA_KERNEL;
  std::uint64_t what = 0;
  CUresult result = CUDA_SUCCESS;  // none is asked for
  bool runs = false;               // it fails when it runs, not when it is submitted
};
Failure failure;

bool has_word(const Bytes& parameters, std::uint32_t word) {
  for (std::size_t at = 0; at + sizeof word <= parameters.size(); at += sizeof word) {
    if (std::memcmp(parameters.data() + at, &word, sizeof word) == 0) return true;
  }
  return false;
}

bool is_meant(const Work& work) {
  if (failure.result == CUDA_SUCCESS) return false;
  switch (failure.kind) {
    case SIMCUDA_KERNEL:
      return work.kind == WorkKind::kKernel && has_word(work.parameters, static_cast<std::uint32_t>(failure.what));
    case SIMCUDA_COPY:
      return work.kind == WorkKind::kCopy && work.copy.width * work.copy.height == failure.what;
    case SIMCUDA_SET:
      return work.kind == WorkKind::kSet && work.set.width * work.set.element_bytes * work.set.height == failure.what;
    case SIMCUDA_EVENT_RECORD:
      return work.kind == WorkKind::kEventRecord && reinterpret_cast<std::uint64_t>(work.event.event) == failure.what;
    case SIMCUDA_EVENT_WAIT:
      return work.kind == WorkKind::kEventWait && reinterpret_cast<std::uint64_t>(work.event.event) == failure.what;
  }
  return false;
}

CUresult use_up() {
  ++driver().counters.failures;
  return std::exchange(failure.result, CUDA_SUCCESS);
}

}  // namespace

CUresult refusal(Call& call, const Work& work, bool in_graph) {
  if (failure.runs || !is_meant(work)) return CUDA_SUCCESS;
  if (in_graph) return failure.result;
  const CUresult result = use_up();
  if (is_fault(result)) call.context->fault = result;
  return result;
}

bool faults(const Op& op) {
  if (!failure.runs || !is_meant(op.work)) return false;
  op.context->fault = use_up();
  return true;
}

void clear_op_failure() { failure = {}; }

}  // namespace simcuda

using namespace simcuda;

extern "C" SIM_EXPORT void simcuda_fail_op(int kind, uint64_t what, int result, int runs) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  failure = {kind, what, static_cast<CUresult>(result), runs != 0};
}

extern "C" SIM_EXPORT uint64_t simcuda_failures(void) {
  std::lock_guard<std::mutex> lock(driver().mutex);
  return driver().counters.failures;
}
