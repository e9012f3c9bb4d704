#include "analyzer/output/variants_together.h"

#include <algorithm>
#include <utility>

#include "analyzer/base/text.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_variants.h"

namespace nimble::analyzer {
namespace {

// Why no schedule may serve steps of this kind together with others; empty if one may.
std::string why_alone(const StepAnalysis& kind) {
  if (kind.evidence.accesses.carries) return "it relies on what the previous step has left in memory";
  if (kind.cut.streams.streams.size() > 1) return "it uses several streams";
  return {};
}

std::string why_not(const StepAnalysis& kind) {
  if (kind.plan.status != kExitOk) return kind.plan.why_no_schedule;
  if (kind.cut.segments.segments.empty()) return "no two of its ops can be put into one graph";
  return why_alone(kind);
}

std::string left_out(const StepAnalysis& kind, const std::string& why) {
  return plural(kind.step.period, "op") + ", " + plural(kind.step.begins.size(), "time") + ": " + why;
}

std::vector<std::uint32_t> cuts_of(const StepAnalysis& kind) {
  std::vector<std::uint32_t> cuts;
  for (const Segment& segment : kind.cut.segments.segments) cuts.push_back(segment.ops.front());
  return cuts;
}

// Per kind: the ops before which it must be cut because another kind is cut there while the two are alike, or because
// they part there. Empty if no two kinds begin alike.
std::vector<std::vector<std::uint32_t>> shared_cuts(const std::vector<StepAnalysis>& kinds,
                                                    const std::vector<KindSchedule>& alone) {
  std::vector<std::vector<std::uint32_t>> result(kinds.size());
  bool any = false;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    std::vector<std::uint32_t>& cuts = result[k];
    cuts = cuts_of(kinds[k]);
    for (std::size_t other = 0; other < kinds.size(); ++other) {
      if (other == k) continue;
      const std::uint32_t shared = shared_beginning(alone[k].schedule, alone[other].schedule).ops;
      if (shared == 0) continue;
      any = true;
      for (const std::uint32_t cut : cuts_of(kinds[other]))
        if (cut < shared) cuts.push_back(cut);
      if (shared < kinds[k].step.period) cuts.push_back(shared);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  }
  if (!any) result.clear();
  return result;
}

// Where kind `k` must put memory that it shares with one of the kinds before it.
PlacesOfObjects shared_places(const std::vector<KindSchedule>& alone, std::size_t k) {
  SharedBeginning most;
  const Schedule* with = nullptr;
  for (std::size_t other = 0; other < k; ++other) {
    SharedBeginning shared = shared_beginning(alone[k].schedule, alone[other].schedule);
    if (shared.ops <= most.ops) continue;
    most = std::move(shared);
    with = &alone[other].schedule;
  }
  PlacesOfObjects places;
  for (std::uint32_t i = 0; with && i < most.object.size(); ++i)
    if (most.object[i] != kNone && with->objects[most.object[i]].step_local)
      places[i] = with->objects[most.object[i]].plan_offset;
  return places;
}

// Plans all kinds again, cut where any of them is cut while they are alike, and where they part.
void plan_alike(std::vector<StepAnalysis>& kinds, const AnalysisOptions& options) {
  std::vector<KindSchedule> alone;
  for (const StepAnalysis& kind : kinds) alone.push_back(build_kind_schedule(kind));
  const std::vector<std::vector<std::uint32_t>> cuts = shared_cuts(kinds, alone);
  if (cuts.empty()) return;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    StepAnalysis& kind = kinds[k];
    kind.cut = cuts[k].empty() ? cut_step(kind, kind.order, kind.times, options)
                               : cut_step_at(kind, kind.order, kind.times, kind.cut, cuts[k]);
    kind.plan = plan_step(kind, kind.order, kind.times, kind.cut, options, shared_places(alone, k));
    alone[k] = build_kind_schedule(kind);
  }
}

}  // namespace

Analysis fit_kinds_together(std::vector<StepAnalysis> kinds, const AnalysisOptions& options) {
  Analysis result;
  const StepAnalysis& first = kinds.front();
  const std::string alone = first.plan.status == kExitOk ? why_alone(first) : "the first kind has no schedule";
  std::vector<StepAnalysis> candidates;
  for (StepAnalysis& kind : kinds) {
    std::string why;
    if (!candidates.empty()) why = alone.empty() ? why_not(kind) : "of the first kind: " + alone;
    why.empty() ? candidates.push_back(std::move(kind)) : result.kinds_left_out.push_back(left_out(kind, why));
  }
  if (candidates.size() > 1) plan_alike(candidates, options);
  KindMerger merger;
  for (std::size_t k = 0; k < candidates.size() && candidates.size() > 1; ++k) {
    StepAnalysis& kind = candidates[k];
    std::string why = k == 0 ? std::string() : why_not(kind);
    if (why.empty()) why = merger.add(build_kind_schedule(kind));
    if (k == 0) continue;
    why.empty() ? result.others.push_back(std::move(kind)) : result.kinds_left_out.push_back(left_out(kind, why));
  }
  static_cast<StepAnalysis&>(result) = std::move(candidates.front());
  return result;
}

}  // namespace nimble::analyzer
