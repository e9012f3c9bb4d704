#include "analyzer/report/describe.h"
#include "analyzer/base/kernel_name.h"

#include "analyzer/base/text.h"

namespace nimble::analyzer {
namespace {

std::string memory_at(const StepReading& step, std::uint32_t call, std::uint32_t at) {
  for (const PointerWord& pointer : step.input.table->pointers(call))
    if (pointer.at == at) return std::string(name(step.input.table->objects()[pointer.object].memory));
  return "unknown";
}

}  // namespace

std::string describe_op(const StepReading& step, std::uint32_t op, std::size_t width) {
  std::uint32_t index = step.step.calls()[op];
  const TraceCall& call = step.input.trace().calls[index];
  std::string text(name(call.kind));
  switch (call.kind) {
    case CallKind::launch:
      text += " " + kernel_name(step.input.trace().functions[call.function].name);
      break;
    case CallKind::copy:
      text += " " + bytes_text(call.width * call.height) + " " + memory_at(step, index, kAtSrc) + " -> " +
              memory_at(step, index, kAtDst);
      break;
    case CallKind::set:
      text += " " + bytes_text(call.width * call.height) + " of " + memory_at(step, index, kAtDst);
      break;
    case CallKind::alloc_async:
      text += " " + bytes_text(call.size);
      break;
    default:
      break;
  }
  return shortened(text, width);
}

std::string describe_object(const StepReading& step, std::uint32_t object) {
  const StepObject& known = step.objects.objects[object];
  return "object " + std::to_string(object) + " (" + std::string(name(known.memory)) + ", " + bytes_text(known.size) +
         (known.step_local ? ", step-local)" : ")");
}

}  // namespace nimble::analyzer
