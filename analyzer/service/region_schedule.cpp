#include "analyzer/service/region_schedule.h"

#include <unordered_set>
#include <utility>

#include "analyzer/base/errors.h"
#include "analyzer/check/checker.h"
#include "analyzer/check/range_ends.h"
#include "analyzer/input/trace_reader.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/pipeline.h"
#include "analyzer/report/describe.h"
#include "analyzer/service/in_process.h"

namespace nimble::shim {

namespace {

// Turns allocations of the step that outlive it into allocations outside of it. Their place in the trace stays: the
// program may have released other memory at the same address before. So the last one at an address is the one that
// lasts.
void take_out(Trace& trace, const std::vector<std::uint64_t>& lasting) {
  std::unordered_set<std::uint64_t> left(lasting.begin(), lasting.end());
  for (auto call = trace.calls.rbegin(); call != trace.calls.rend() && call->kind != CallKind::step_begin; ++call) {
    if (call->kind != CallKind::alloc_async || call->result != 0 || left.erase(call->address) == 0) continue;
    call->kind = CallKind::alloc;
    call->memory = MemoryKind::stream_ordered;
    call->stream = kNone;
  }
}

// Why the region must not move its memory: it copies an address of that from the host. A kernel need not follow it to
// use it: it may compare its own pointers with it. Empty if there is none.
std::string moved_address(const analyzer::StepAnalysis& step) {
  const auto calls = step.step.calls();
  for (std::uint32_t op = 0; op < calls.size(); ++op) {
    const TraceCall& call = step.input.trace().calls[calls[op]];
    if (call.kind != CallKind::copy || !call.words) continue;
    for (const analyzer::StepObject& object : step.objects.objects) {
      if (!object.step_local) continue;
      const analyzer::Object& memory = step.input.table->objects()[object.id];
      for (const TraceWord& word : *call.words)
        if (word.value - memory.base <= memory.size)
          return "op " + std::to_string(op) + " (" + analyzer::describe_op(step, op, 100) +
                 ") copies an address of memory that the region allocates and releases";
    }
  }
  return {};
}

}  // namespace

RegionSchedule region_schedule(const TraceStore::Text& text, const std::vector<std::uint64_t>& lasting,
                               analyzer::KeptRules& rules, Evidence trust) try {
  const auto no = [](std::string why) { return RegionSchedule{{}, std::move(why), {}}; };
  analyzer::TraceFile file = analyzer::read_trace(kTraceName, source_of(text));
  take_out(file.trace, lasting);
  analyzer::AnalysisOptions options = analysis_options(rules, trust);
  options.start_early = false;  // it is submitted all at once
  const analyzer::Analysis analysis = analyzer::analyze(std::move(file), options);
  if (analysis.step.marked == 0) return no("it has no op");
  if (analysis.plan.status != analyzer::kExitOk) return no(analysis.plan.why_no_schedule);
  if (std::string why = why_not_one_graph(analysis); !why.empty()) return no(std::move(why));
  if (std::string why = moved_address(analysis); !why.empty()) return no(std::move(why));
  if (std::string why = doubtful_end(analysis, options.rules); !why.empty()) return no(std::move(why));
  std::string schedule = analyzer::schedule_text(analyzer::build_schedule(analysis));
  if (analyzer::check_schedule(analysis, schedule, kTraceName).unordered)
    return no("a defect of the analyzer: its schedule leaves ops unordered that conflict");
  return {std::move(schedule), {}, beliefs_for_log(analysis)};
} catch (const analyzer::InputError& error) {
  return {{}, error.what(), {}};
}

}  // namespace nimble::shim
