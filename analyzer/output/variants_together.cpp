#include "analyzer/output/variants_together.h"

#include <algorithm>
#include <utility>

#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_variants.h"
#include "analyzer/report/describe.h"
#include "analyzer/stages/plan_step.h"

namespace nimble::analyzer {
namespace {

// Why no schedule may serve steps of this kind beside others; empty where one may.
std::string why_alone(const Analysis& kind) {
  if (kind.accesses.carries) return "it rests on what the step before has left in memory";
  if (kind.streams.streams.size() > 1) return "it uses several streams";
  return {};
}

std::string why_not(const Analysis& kind) {
  if (kind.status != kExitOk) return kind.why_no_schedule;
  if (kind.segments.segments.empty()) return "no two of its ops can be put into one graph";
  return why_alone(kind);
}

void leave_out(Analysis& analysis, const Analysis& other, const std::string& why) {
  analysis.kinds_left_out.push_back(plural(other.step.period, "op") + ", " + plural(other.step.begins.size(), "time") +
                                    ": " + why);
}

std::vector<std::uint32_t> cuts_of(const Analysis& kind) {
  std::vector<std::uint32_t> cuts;
  for (const Segment& segment : kind.segments.segments) cuts.push_back(segment.ops.front());
  return cuts;
}

// Plans all kinds anew, cut where any of them is cut, as far as they are alike, and where they part.
void plan_alike(const std::vector<Analysis*>& kinds, const AnalysisOptions& options) {
  std::vector<KindSchedule> alone;
  for (const Analysis* kind : kinds) alone.push_back(build_kind_schedule(*kind));
  std::vector<PlanBounds> bounds(kinds.size());
  bool any = false;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    std::vector<std::uint32_t>& cuts = bounds[k].cuts;
    cuts = cuts_of(*kinds[k]);
    for (std::size_t other = 0; other < kinds.size(); ++other) {
      if (other == k) continue;
      const std::uint32_t shared = shared_beginning(alone[k].schedule, alone[other].schedule).ops;
      if (shared == 0) continue;
      any = true;
      for (const std::uint32_t cut : cuts_of(*kinds[other]))
        if (cut < shared) cuts.push_back(cut);
      if (shared < kinds[k]->step.period) cuts.push_back(shared);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  }
  if (!any) return;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    SharedBeginning most;
    const Schedule* with = nullptr;
    for (std::size_t other = 0; other < k; ++other) {
      SharedBeginning shared = shared_beginning(alone[k].schedule, alone[other].schedule);
      if (shared.ops <= most.ops) continue;
      most = std::move(shared);
      with = &alone[other].schedule;
    }
    for (std::uint32_t i = 0; with && i < most.object.size(); ++i)
      if (most.object[i] != kNone && with->objects[most.object[i]].step_local)
        bounds[k].places[i] = with->objects[most.object[i]].plan_offset;
    plan_step(*kinds[k], options, bounds[k]);
    alone[k] = build_kind_schedule(*kinds[k]);
  }
}

}  // namespace

void fit_kinds_together(Analysis& analysis, const AnalysisOptions& options) {
  const std::string alone = analysis.status == kExitOk ? why_alone(analysis) : "the first kind has no schedule";
  std::vector<Analysis> all = std::exchange(analysis.others, {}), some;
  for (Analysis& other : all) {
    const std::string why = alone.empty() ? why_not(other) : "of the first kind: " + alone;
    why.empty() ? some.push_back(std::move(other)) : leave_out(analysis, other, why);
  }
  if (some.empty()) return;
  std::vector<Analysis*> kinds{&analysis};
  for (Analysis& other : some) kinds.push_back(&other);
  plan_alike(kinds, options);
  KindMerger merger;
  merger.add(build_kind_schedule(analysis));
  for (Analysis& other : some) {
    std::string why = why_not(other);
    if (why.empty()) why = merger.add(build_kind_schedule(other));
    why.empty() ? analysis.others.push_back(std::move(other)) : leave_out(analysis, other, why);
  }
}

}  // namespace nimble::analyzer
