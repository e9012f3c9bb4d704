#include "analyzer/access/sources/graph.h"

#include <algorithm>

#include "analyzer/access/sources/exact.h"

namespace nimble::analyzer {

bool GraphAccess::ask_kernel(const OpQuestion& kernel, std::vector<Access>& found, std::string& why_not) {
  std::string all;
  for (AccessSource* source : for_kernels_) {
    std::string why;
    if (source->ask(kernel, found, why)) {
      evidence_ = weaker(evidence_, source->evidence());
      return true;
    }
    if (!why.empty()) all += (all.empty() ? "" : "; ") + why;
  }
  why_not = "one of its kernels: " + (all.empty() ? "what it touches cannot be known" : all);
  return false;
}

bool GraphAccess::ask(const OpQuestion& op, std::vector<Access>& found, std::string& why_not) {
  if (op.call.kind != CallKind::graph_launch) return false;
  if (op.call.graph == kNone) {
    why_not = "the graph's nodes are not in the trace";
    return false;
  }
  const TraceGraph& graph = op.trace.graphs[op.call.graph];
  if (!graph.known) {
    why_not = graph.why.empty() ? "what the graph does could not be read" : graph.why;
    return false;
  }
  std::size_t before = found.size();
  evidence_ = Evidence::exact;
  if (!add_listed(op.pointers, graph.accesses, found)) {
    why_not =
        "one of its nodes touches memory that is not in an allocation that the trace knows: pageable host memory?";
    return false;
  }
  auto first = static_cast<std::uint32_t>(graph.accesses.size());
  auto precedes = [](const PointerWord& pointer, std::uint32_t at) { return pointer.at < at; };
  for (const TraceGraph::Kernel& kernel : graph.kernels) {
    auto end = first + static_cast<std::uint32_t>(kernel.params.size());
    auto begin_at = std::lower_bound(op.pointers.begin(), op.pointers.end(), first, precedes);
    auto end_at = std::lower_bound(begin_at, op.pointers.end(), end, precedes);
    std::vector<PointerWord> pointers(begin_at, end_at);
    for (PointerWord& pointer : pointers) pointer.at -= first;
    std::vector<PointerWord> unsure;
    for (PointerWord word : op.unsure)
      if (word.at >= first && word.at < end) {
        word.at -= first;
        unsure.push_back(word);
      }
    TraceCall launch;
    launch.kind = CallKind::launch;
    launch.function = kernel.function;
    launch.params = kernel.params;
    if (!ask_kernel({op.trace, launch, pointers, op.objects, unsure}, found, why_not)) {
      found.resize(before);
      return false;
    }
    first = end;
  }
  return true;
}

}  // namespace nimble::analyzer
