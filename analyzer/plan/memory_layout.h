// Gives every step-local object its place in one block of memory, the arena.
//
// Two objects share bytes only if the program frees the one before it allocates the other, so that an address means one
// object at any time; and if the order that the schedule enforces puts every use of the one before every use of the
// other, so that sharing costs no concurrency. On several streams the program's own order, too, must put the release of
// the one before the allocation of the other, because a step may still be submitted call by call, with ops in it that
// use what no op of the schedule uses. From step to step replay keeps that order.
//
// Packing: for up to kPairwise objects, greedy by size (the largest first, each into the smallest gap that it fits
// into), after Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020. For any number, a
// walk in program order that gives each object the smallest hole that it may have: near linear. The smaller plan wins.
// Bytes; offsets are multiples of kPlanAlignment. Pure; any thread. No errors: a plan beyond kMaxArenaBytes is marked
// as impossible.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "analyzer/access/access.h"
#include "analyzer/memory/step_objects.h"
#include "analyzer/plan/segments.h"
#include "analyzer/policies/segment_plan.h"
#include "nimble/internal/use_order.h"

namespace nimble::analyzer {

inline constexpr std::uint64_t kMaxArenaBytes = std::uint64_t{1} << 46;
inline constexpr std::size_t kPairwise = 4096;
// For a plan whose addresses are analyzed in turn. Without gaps the distance between objects is often a multiple of a
// size that a kernel has among its parameters, and so it seems that it may get there (analyzer/access/leaving.h).
inline constexpr std::uint64_t kPlanGap = kPlanAlignment;

struct MemoryPlan {
  std::vector<std::uint64_t> offset;  // per object of the step; 0 for those that are not step-local
  std::uint64_t arena_bytes = 0;
  std::uint64_t unpacked_bytes = 0;      // what it would be if no two objects shared a byte
  std::uint64_t program_peak_bytes = 0;  // the most that step-local objects took at one time in the program
  bool possible = true;
};

// Which objects each op names, whatever it does to them: those of op i are `objects` from first[i] to first[i + 1].
struct StepUses {
  std::vector<std::uint32_t> first, objects;
};

StepUses uses_of_step(const ObjectTable& table, std::span<const std::uint32_t> calls, const StepObjects& objects,
                      const StepAccesses& accesses);

// Where objects have to be, because other kinds of step have them there: by object of the step. All of them are
// allocated before any other.
using PlacesOfObjects = std::map<std::uint32_t, std::uint64_t>;

// `plans`: one for each segment. `streams`: the program's own order. `gap`: bytes that stay free after each object, but
// for small ones. `pairwise`: up to how many objects all pairs are compared.
MemoryPlan plan_memory(const StepObjects& objects, const StepUses& uses, const Segmentation& segments,
                       std::span<const SegmentPlan> plans, const StreamPaths& streams,
                       const PlacesOfObjects& places = {}, std::uint64_t gap = 0, std::size_t pairwise = kPairwise);

}  // namespace nimble::analyzer
