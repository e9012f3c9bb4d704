// Times Algorithm 1 of Nimble on the op graphs: minimum equivalent graph, maximum matching, lanes. Prints one JSON
// object, for bench/host/run_benchmarks.py: per graph the median of many repeats, in milliseconds.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "analyzer/base/json_text.h"
#include "analyzer/graph/transitive_reduction.h"
#include "analyzer/policies/policy.h"
#include "bench/policies/graphs.h"

int main() {
  using namespace nimble::analyzer;
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t kRepeats = 201;
  auto policy = make_policy("nimble");
  JsonText out;
  out.open('{').key("repeats").number(kRepeats).key("graphs").open('[');
  for (const nimble::bench::OpGraph& graph : nimble::bench::all_graphs()) {
    std::vector<double> reduced_ms, all_ms;
    std::uint32_t lanes = 0;
    for (std::size_t i = 0; i < kRepeats; ++i) {
      Clock::time_point begin = Clock::now();
      Dag reduced = transitive_reduction(graph.reads);
      Clock::time_point between = Clock::now();
      lanes = policy->assign(reduced).lanes;
      Clock::time_point end = Clock::now();
      reduced_ms.push_back(std::chrono::duration<double, std::milli>(between - begin).count());
      all_ms.push_back(std::chrono::duration<double, std::milli>(end - begin).count());
    }
    for (std::vector<double>* times : {&reduced_ms, &all_ms})
      std::nth_element(times->begin(), times->begin() + kRepeats / 2, times->end());
    out.newline().open('{').key("graph").text(graph.name).key("ops").number(graph.reads.nodes());
    out.key("edges").number(graph.reads.edges().size()).key("streams").number(lanes);
    out.key("reduction_ms").real(reduced_ms[kRepeats / 2]).key("ms").real(all_ms[kRepeats / 2]).close('}');
  }
  out.close(']').close('}');
  std::printf("%s\n", out.take().c_str());
  return 0;
}
