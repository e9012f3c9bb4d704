#include "replayer/bundle/saved/recorded_step.h"

#include <algorithm>
#include <utility>

#include "analyzer/base/errors.h"
#include "analyzer/report/describe.h"
#include "replayer/bundle/process/live_driver.h"

namespace nimble::bundle {

namespace {

analyzer::AnalysisOptions with_step(analyzer::AnalysisOptions options, const Bundle& bundle) {
  options.step = analyzer::StepPlace{bundle.first_seq, bundle.last_seq, bundle.ops};
  return options;
}

bool is_of_interest(CallKind kind) {
  return kind == CallKind::alloc || kind == CallKind::free || kind == CallKind::stream_synchronize ||
         kind == CallKind::event_synchronize || kind == CallKind::context_synchronize;
}

bool covers(const analyzer::ByteRect& region, std::uint64_t offset) {
  return analyzer::overlap(region, analyzer::ByteRect{offset, 1, 0, 1});
}

}  // namespace

RecordedStep::RecordedStep(const BundleFiles& files, analyzer::AnalysisOptions options)
    : options_(with_step(std::move(options), files.bundle())),
      reading_(std::move(analyzer::read_steps(analyzer::read_trace(files.trace_path()), options_).front())) {
  if (reading_.step.period == 0) throw analyzer::InputError(files.trace_path(), 0, "", reading_.step.why_none);
  const auto calls = reading_.step.calls();
  for (std::uint32_t index = calls.front(); index <= calls.back(); ++index) {
    const TraceCall& call = trace().calls[index];
    if (ops_.size() < calls.size() && calls[ops_.size()] == index) {
      moments_.push_back({ops(), &call});
      ops_.push_back(&call);
    } else if (is_of_interest(call.kind) && call.result == 0 && !call.query) {
      moments_.push_back({kNone, &call});
    }
  }
  for (std::uint32_t i = 0; i < ops(); ++i) check_op(i, files.bundle().images_of_ops[i]);
}

void RecordedStep::check_op(std::uint32_t index, std::uint32_t image) const {
  const TraceCall& call = op(index);
  const auto fail = [&](const std::string& why) {
    throw analyzer::InputError(reading_.input.file->path, 0, "op " + std::to_string(index), why);
  };
  const auto refuse = [&](const char* what) {
    throw Refused(describe(index) + " cannot be run without the program: " + what);
  };
  if (call.stream == kNone) fail("is on no stream");
  switch (call.kind) {
    case CallKind::launch: {
      const auto& params = trace().functions[call.function].params;
      if (image == kNone) fail("is a launch whose image is not in the bundle");
      if (!call.attributes.empty()) refuse("the bundle does not hold the attributes of launches");
      if (!params) return refuse("the layout of its parameters is not known");
      std::uint64_t bytes = 0;
      for (const ParamLayout& param : *params) bytes = std::max<std::uint64_t>(bytes, param.offset + param.size);
      if (call.params.size() != bytes) fail("does not have the parameters that its kernel takes");
      return;
    }
    case CallKind::event_record:
    case CallKind::event_wait:
      if (call.event == kNone) fail("names no event");
      [[fallthrough]];
    case CallKind::copy:
    case CallKind::set:
      if (!call.plain) refuse("it has flags that the bundle does not hold");
      if (call.kind == CallKind::set && call.element != 1 && call.element != 2 && call.element != 4)
        fail("sets elements of " + std::to_string(call.element) + " bytes");
      return;
    case CallKind::alloc_async:
    case CallKind::free_async:
      return;
    default:
      refuse("the bundle does not hold what it does");
  }
}

std::string RecordedStep::describe(std::uint32_t index) const {
  return "op " + std::to_string(index) + " (" + analyzer::describe_op(reading_, index, 60) + ")";
}

std::string RecordedStep::last_writer(std::uint64_t address) const {
  for (std::uint32_t index = ops(); index-- > 0;) {
    const TraceCall& call = op(index);
    if (call.kind == CallKind::copy || call.kind == CallKind::set) {
      const analyzer::ByteRect region{0, call.width, call.dst.pitch, call.height};
      if (call.width == 0 || call.height == 0 || address < call.dst.address) continue;
      if (covers(region, address - call.dst.address)) return describe(index);
      continue;
    }
    if (call.kind == CallKind::launch && reading_.evidence.accesses.ops[index].role == analyzer::OpRole::barrier)
      return describe(index) + ", whose writes are unknown";
    for (const analyzer::Access& access : reading_.evidence.accesses.of(index)) {
      const analyzer::Object& object = reading_.input.table->objects()[reading_.objects.objects[access.object].id];
      if (!access.writes || address - object.base >= object.size) continue;
      if (access.whole || covers(access.rect, address - object.base)) return describe(index);
    }
  }
  return {};
}

}  // namespace nimble::bundle
