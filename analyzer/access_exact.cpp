#include "analyzer/access_exact.h"

namespace nimble::analyzer {
namespace {

const PointerWord* pointer_at(std::span<const PointerWord> pointers, std::uint32_t at) {
  for (const PointerWord& pointer : pointers)
    if (pointer.at == at) return &pointer;
  return nullptr;
}

Access region_of(const PointerWord& pointer, const TraceCall& call, const TraceRegion& region, bool writes) {
  Access access;
  access.object = pointer.object;
  access.region = normalized({pointer.offset, call.width, region.pitch, call.height});
  access.reads = !writes;
  access.writes = writes;
  access.at = pointer.at;
  return access;
}

}  // namespace

bool ExactAccess::ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) {
  const TraceCall& call = op.call;
  switch (call.kind) {
    case CallKind::copy:
    case CallKind::set: {
      if (call.width == 0) return true;
      const PointerWord* dst = pointer_at(op.pointers, kAtDst);
      const PointerWord* src = call.kind == CallKind::copy ? pointer_at(op.pointers, kAtSrc) : nullptr;
      if (dst == nullptr) {
        why_not = "its destination lies in no allocation that the trace knows: pageable host memory?";
        return false;
      }
      if (call.kind == CallKind::copy && src == nullptr) {
        why_not = "its source lies in no allocation that the trace knows: pageable host memory?";
        return false;
      }
      found.push_back(region_of(*dst, call, call.dst, true));
      if (src != nullptr) found.push_back(region_of(*src, call, call.src, false));
      return true;
    }
    case CallKind::alloc_async:
    case CallKind::free_async:
      // The memory comes and goes: whatever else the step does with it stands on one side or the other.
      for (const PointerWord& pointer : op.pointers) {
        Access access;
        access.object = pointer.object;
        access.whole = access.writes = true;
        access.at = pointer.at;
        found.push_back(access);
      }
      if (op.pointers.empty()) why_not = "it frees memory whose allocation the trace does not hold";
      return !op.pointers.empty();
    case CallKind::host_function:
      why_not = "the host's own function may touch anything";
      return false;
    case CallKind::graph_launch:
      why_not = "the graph's nodes are not in the trace";
      return false;
    case CallKind::opaque:
      why_not = "what this call touches is not recorded";
      return false;
    default:
      return false;
  }
}

}  // namespace nimble::analyzer
