#include "analyzer/access/sources/exact.h"

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
  access.rect = normalized({pointer.offset, call.width, region.pitch, call.height});
  access.reads = !writes;
  access.writes = writes;
  access.at = pointer.at;
  return access;
}

}  // namespace

bool add_listed(std::span<const PointerWord> pointers, const std::vector<TraceAccess>& list,
                std::vector<Access>& found) {
  std::size_t before = found.size();
  auto next = pointers.begin();
  for (std::uint32_t i = 0; i < list.size(); ++i) {
    while (next != pointers.end() && next->at < i) ++next;
    if (next == pointers.end() || next->at != i) {
      found.resize(before);
      return false;
    }
    Access access;
    access.object = next->object;
    access.whole = list[i].bytes == 0;
    access.rect = {next->offset, list[i].bytes, 0, 1};
    access.reads = list[i].reads;
    access.writes = list[i].writes;
    access.at = i;
    found.push_back(access);
  }
  return true;
}

bool ExactAccess::ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) {
  const TraceCall& call = op.call;
  switch (call.kind) {
    case CallKind::copy:
    case CallKind::set: {
      if (call.width == 0) return true;
      const PointerWord* dst = pointer_at(op.pointers, kAtDst);
      const PointerWord* src = call.kind == CallKind::copy ? pointer_at(op.pointers, kAtSrc) : nullptr;
      if (dst == nullptr) {
        why_not = "its destination is not in an allocation that the trace knows: pageable host memory?";
        return false;
      }
      if (call.kind == CallKind::copy && src == nullptr) {
        why_not = "its source is not in an allocation that the trace knows: pageable host memory?";
        return false;
      }
      found.push_back(region_of(*dst, call, call.dst, true));
      if (src != nullptr) found.push_back(region_of(*src, call, call.src, false));
      return true;
    }
    case CallKind::alloc_async:
    case CallKind::free_async:
      // The memory comes and goes: all other uses in the step are on one side or the other.
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
    case CallKind::opaque:
      if (!call.accesses) {
        why_not = "what this call touches is not recorded";
        return false;
      }
      if (add_listed(op.pointers, *call.accesses, found)) return true;
      why_not =
          "some of the memory that it touches is not in an allocation that the trace knows: pageable host memory?";
      return false;
    default:
      return false;
  }
}

}  // namespace nimble::analyzer
