#include "replayer/bundle/saved/payloads.h"

#include <string>

#include "analyzer/base/errors.h"
#include "replayer/bundle/process/live_driver.h"

namespace nimble::bundle {

std::uint64_t extent_of(const TraceRegion& region, const TraceCall& call) {
  if (call.width == 0 || call.height == 0) return 0;
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(call.height - 1, call.height > 1 ? region.pitch : 0, &bytes) ||
      __builtin_add_overflow(bytes, call.width, &bytes))
    return ~std::uint64_t{0};
  return bytes;
}

Payloads::Payloads(const BundleFiles& files, const RecordedStep& step) : sources_(step.ops()), results_(step.ops()) {
  take(files, step, files.bundle().sources, "sources", &TraceCall::src, sources_);
  take(files, step, files.bundle().results, "results", &TraceCall::dst, results_);
}

void Payloads::take(const BundleFiles& files, const RecordedStep& step, const std::vector<BundlePayload>& payloads,
                    const char* name, TraceRegion TraceCall::*side, ByOp& by_op) {
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    const BundlePayload& payload = payloads[i];
    const auto fail = [&](const std::string& why) {
      throw analyzer::InputError(files.manifest_path(), 0, name, "[" + std::to_string(i) + "] " + why);
    };
    const TraceCall& call = step.op(payload.op);
    if (call.kind != CallKind::copy || (call.*side).address != payload.address ||
        extent_of(call.*side, call) != payload.bytes)
      fail("is not what " + step.describe(payload.op) + " copies");
    if (by_op[payload.op]) fail("is the second of " + step.describe(payload.op));
    by_op[payload.op] = &payload;
    // Zeros take no room in a file, but their full size here.
    if (__builtin_add_overflow(bytes_, payload.bytes, &bytes_) || bytes_ > memory_of_machine())
      throw Refused("what the step copies from and to the host takes more memory than there is");
  }
}

}  // namespace nimble::bundle
