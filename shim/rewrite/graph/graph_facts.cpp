#include "shim/rewrite/graph/graph_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace nimble::shim {

namespace {

constexpr std::size_t kMostOthers = 4;  // ranges named in the log that a graph writes to and the program did not list
constexpr const char* kLeadsSomewhere = "a word of its kernels' parameters that pointed nowhere points to memory now";

}  // namespace

void GraphFacts::describe(Nodes nodes) {
  nodes_ = nodes.count;
  streams_ = nodes.streams;
  images_ = std::move(nodes.images);
  memory_.name(std::move(nodes.memory));
  memory_.name_stray(std::move(nodes.nowhere), std::move(nodes.known));
}

void GraphFacts::writes(std::optional<std::vector<GraphSchedule::Written>> written) {
  const std::lock_guard lock(mutex_);
  writes_ = std::move(written);
}

bool GraphFacts::writes_only(const std::vector<TraceProbe::Range>& ranges, std::string& what_else) const {
  const std::lock_guard lock(mutex_);
  if (!writes_) what_else = "unknown memory";
  if (!writes_) return false;
  const auto is_named = [&](const GraphSchedule::Written& each) {
    const TraceProbe::Range& written = each.range;
    return !each.tells && std::ranges::any_of(ranges, [&](const TraceProbe::Range& range) {
      return written.address >= range.address && written.address - range.address <= range.bytes &&
             written.bytes <= range.bytes - (written.address - range.address);
    });
  };
  std::size_t others = 0;
  for (const GraphSchedule::Written& each : *writes_) {
    if (is_named(each)) continue;
    if (++others <= kMostOthers)
      what_else += fmt::format("{}{} bytes at {:#x}{}, by {}", others > 1 ? "; " : "", each.range.bytes,
                               each.range.address, each.tells ? ", which others can reach" : "", each.by);
  }
  if (others > kMostOthers) what_else += fmt::format("; and {} more", others - kMostOthers);
  return others == 0;
}

bool GraphFacts::code_goes(const ImageInfo* image) {
  any_memory_goes();  // its nodes may name variables of code other than its kernels'
  return std::ranges::any_of(images_, [&](const ImageInfo* one) { return !one || !image || one == image; });
}

void GraphFacts::memory_goes(const Call& call) {
  const std::lock_guard lock(mutex_);
  memory_.release(call);
}

void GraphFacts::any_memory_goes() {
  const std::lock_guard lock(mutex_);
  memory_.release_all();
}

const char* GraphFacts::memory_comes(const Call& call) const {
  const std::lock_guard lock(mutex_);
  if (memory_.brings_together(call)) return "its separate allocations may share one allocation now";
  return memory_.leads_to(call) ? kLeadsSomewhere : nullptr;
}

}  // namespace nimble::shim
