#include "analyzer/memory_plan.h"

#include <algorithm>

namespace nimble::analyzer {

MemoryPlan plan_memory(const StepObjects& objects, std::uint32_t ops) {
  MemoryPlan plan;
  plan.offset.assign(objects.objects.size(), 0);
  std::vector<std::uint32_t> allocated_by(ops, kNone), freed_by(ops, kNone);
  for (std::uint32_t i = 0; i < objects.objects.size(); ++i)
    if (objects.objects[i].step_local) {
      allocated_by[objects.objects[i].alloc] = i;
      freed_by[objects.objects[i].free] = i;
    }
  std::uint64_t live = 0;
  for (std::uint32_t op = 0; op < ops && plan.possible; ++op) {
    if (std::uint32_t object = allocated_by[op]; object != kNone) {
      std::uint64_t size = objects.objects[object].size;
      if (size > kMaxArenaBytes - plan.arena_bytes) {
        plan.possible = false;
        break;
      }
      plan.offset[object] = plan.arena_bytes;
      plan.arena_bytes += (size + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
      plan.possible = plan.arena_bytes <= kMaxArenaBytes;
      plan.program_peak_bytes = std::max(plan.program_peak_bytes, live += size);
    }
    if (freed_by[op] != kNone) live -= objects.objects[freed_by[op]].size;
  }
  return plan;
}

}  // namespace nimble::analyzer
