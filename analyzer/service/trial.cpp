#include "analyzer/service/trial.h"

#include <algorithm>
#include <utility>

#include "analyzer/base/errors.h"
#include "analyzer/check/checker.h"
#include "analyzer/input/trace_reader.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/pipeline.h"
#include "analyzer/service/in_process.h"
#include "analyzer/step/step_variants.h"
#include "analyzer/step/thread_order.h"

namespace nimble::shim {

struct Trial::Found {
  analyzer::TraceFile file;
  std::uint32_t ops = 0;
  std::size_t times = 0;
  std::size_t kinds = 0;
  bool marked = false;
  double explained = 0;
};

Trial::Trial(TraceStore::Text text, analyzer::KeptRules* rules, Evidence trust)
    : text_(source_of(std::move(text))), rules_(rules), trust_(trust) {}
Trial::Trial(Source text) : text_(std::move(text)), rules_(nullptr) {}
Trial::~Trial() = default;

bool Trial::find_step() try {
  found_ = std::make_unique<Found>();
  found_->file = analyzer::read_trace(kTraceName, text_);
  Trace& trace = found_->file.trace;
  analyzer::order_threads(trace);
  const analyzer::ObjectTable table(trace);
  const std::vector<analyzer::Step> kinds = analyzer::find_kinds(trace, table);
  const analyzer::Step& step = kinds.front();
  if (step.period == 0) {
    why_not_ = step.why_none;
    return false;
  }
  found_->ops = step.period;
  found_->times = step.begins.size();
  found_->marked = step.marked != 0;
  found_->kinds = kinds.size();
  std::uint64_t longest = 0, begin = step.ops.size(), end = 0;  // of the first step of any kind, and of the last
  std::uint64_t work = 0, explained = 0;
  for (const analyzer::Step& kind : kinds) {
    longest = std::max<std::uint64_t>(longest, kind.period);
    begin = std::min<std::uint64_t>(begin, kind.begins.front());
    end = std::max(end, kind.begins.back() + std::uint64_t{kind.period});
    for (const std::uint32_t call : kind.calls())
      explained += analyzer::does_work(trace.calls[call].kind) ? kind.begins.size() : 0;
  }
  for (std::uint64_t op = begin; op < step.ops.size(); ++op)
    work += analyzer::does_work(trace.calls[step.ops[op]].kind) ? 1 : 0;
  found_->explained = static_cast<double>(explained) / static_cast<double>(std::max<std::uint64_t>(work, 1));
  // What repeats while a program sets itself up is not its step, and a step that the program has finished with may not
  // come again.
  if (step.begins.size() < analyzer::kMinRepeats || step.ops.size() - end >= 2 * longest) {
    why_not_ = step_text() + ", followed by other ops";
    return false;
  }
  return true;
} catch (const analyzer::InputError& error) {
  why_not_ = error.what();
  return false;
}

std::string Trial::schedule() try {
  analyzer::KeptRules shipped({});
  const analyzer::Analysis analysis =
      analyzer::analyze(std::move(found_->file), analysis_options(rules_ ? *rules_ : shipped, trust_));
  if (analysis.plan.status != analyzer::kExitOk) {
    why_not_ = analysis.plan.why_no_schedule;
    return {};
  }
  if (analysis.cut.segments.segments.empty()) {
    why_not_ = "no two ops of the step can be put into one graph";
    return {};
  }
  std::string text = analyzer::schedule_text(analyzer::build_schedule(analysis));
  if (analyzer::check_schedule(analysis, text, kTraceName).unordered) {
    why_not_ = "a defect of the analyzer: its schedule leaves ops unordered that conflict";
    return {};
  }
  beliefs_ = beliefs_for_log(analysis);
  return text;
} catch (const analyzer::InputError& error) {
  why_not_ = error.what();
  return {};
}

double Trial::explained() const { return found_->marked ? 1 : found_->explained; }

std::uint64_t Trial::times() const { return found_->times; }

std::string Trial::step_text() const {
  return "a step of " + std::to_string(found_->ops) + " ops, " + std::to_string(found_->times) +
         (found_->marked ? " times as marked" : " times") +
         (found_->kinds > 1 ? ", and steps of " + std::to_string(found_->kinds - 1) + " other kinds" : "");
}

}  // namespace nimble::shim
