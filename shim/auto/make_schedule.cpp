#include "shim/auto/make_schedule.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "analyzer/analysis.h"
#include "analyzer/checker.h"
#include "analyzer/errors.h"
#include "analyzer/rules/shipped_rules.h"
#include "analyzer/schedule_builder.h"
#include "analyzer/schedule_writer.h"
#include "analyzer/thread_order.h"
#include "analyzer/trace_reader.h"

namespace nimble::shim {

namespace {

constexpr const char* kName = "NIMBLE_MODE=auto";  // stands for the file in errors

analyzer::TraceFile read(const TraceStore::Text& text) {
  std::size_t chunk = 0, at = 0;
  return analyzer::read_trace(kName, [&](char* buffer, std::size_t size) {
    std::size_t got = 0;
    while (got < size && chunk < text.size()) {
      const std::size_t bytes = std::min(size - got, text[chunk]->size() - at);
      std::memcpy(buffer + got, text[chunk]->data() + at, bytes);
      got += bytes;
      at += bytes;
      if (at == text[chunk]->size()) ++chunk, at = 0;
    }
    return got;
  });
}

}  // namespace

struct Trial::Found {
  analyzer::TraceFile file;
  std::uint32_t ops = 0;
  std::size_t times = 0;
  bool marked = false;
};

Trial::Trial(TraceStore::Text text) : text_(std::move(text)) {}
Trial::~Trial() = default;

bool Trial::find_step() try {
  found_ = std::make_unique<Found>();
  found_->file = read(text_);
  Trace& trace = found_->file.trace;
  analyzer::order_threads(trace);
  const analyzer::ObjectTable table(trace);
  const analyzer::Step step = analyzer::find_step(trace, table);
  if (step.period == 0) {
    why_not_ = step.why_none;
    return false;
  }
  found_->ops = step.period;
  found_->times = step.begins.size();
  found_->marked = step.marked != 0;
  // What repeats while a program sets itself up is no step of it, and a step that it has left behind may not come
  // again.
  if (step.begins.size() < analyzer::kMinRepeats || step.epilogue() >= 2 * std::uint64_t{step.period}) {
    why_not_ = "a step of " + std::to_string(step.period) + " ops came " + std::to_string(step.begins.size()) +
               " times, and then other ops";
    return false;
  }
  return true;
} catch (const analyzer::InputError& error) {
  why_not_ = error.what();
  return false;
}

std::string Trial::schedule() try {
  analyzer::AnalysisOptions options;
  analyzer::add_shipped_rules(options.rules);
  const analyzer::Analysis analysis = analyzer::analyze(std::move(found_->file), options);
  if (analysis.status != analyzer::kExitOk) {
    why_not_ = analysis.why_no_schedule;
    return {};
  }
  if (analysis.segments.segments.empty()) {
    why_not_ = "no two ops of the step can be put into one graph";
    return {};
  }
  std::string text = analyzer::schedule_text(analyzer::build_schedule(analysis));
  if (analyzer::check_schedule(analysis, text, kName).unordered) {
    why_not_ = "a defect of the analyzer: its schedule leaves ops unordered that conflict";
    return {};
  }
  return text;
} catch (const analyzer::InputError& error) {
  why_not_ = error.what();
  return {};
}

std::string Trial::step_text() const {
  return "a step of " + std::to_string(found_->ops) + " ops, " + std::to_string(found_->times) +
         (found_->marked ? " times as marked" : " times");
}

}  // namespace nimble::shim
