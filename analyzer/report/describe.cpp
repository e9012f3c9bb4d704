#include "analyzer/report/describe.h"

#include <cstdio>

#include "analyzer/pointers/signature.h"

namespace nimble::analyzer {
namespace {

std::string memory_at(const Analysis& analysis, std::uint32_t call, std::uint32_t at) {
  for (const PointerWord& pointer : analysis.table->pointers(call))
    if (pointer.at == at) return std::string(name(analysis.table->objects()[pointer.object].memory));
  return "unknown";
}

}  // namespace

std::string shortened(std::string text, std::size_t width) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  if (text.size() <= width) return text;
  text.resize(width > 3 ? width - 3 : 0);
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xc0) == 0x80) text.pop_back();
  if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xc0) text.pop_back();
  return text + "...";
}

std::string kernel_name(const TraceFunction& function) {
  std::string readable = demangle(function.name);
  std::size_t end = readable.size();
  int depth = 0;
  // The parameter list is the last group in parentheses, as parameter_types() reads it.
  if (!readable.empty() && readable.back() == ')')
    for (std::size_t i = readable.size(); i-- > 0;) {
      if (readable[i] == ')') ++depth;
      if (readable[i] == '(' && --depth == 0) {
        end = i;
        break;
      }
    }
  readable.resize(end == 0 ? readable.size() : end);
  // Templates are spelled with their return type.
  if (readable.rfind("void ", 0) == 0) readable.erase(0, 5);
  return readable;
}

std::string races_text(const Dependencies& dependencies) {
  return (dependencies.complete ? "" : "more than ") + plural(dependencies.race_count, "pair");
}

std::string plural(std::uint64_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

std::string bytes_text(std::uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 6) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

std::string us_text(double us) {
  char text[48];
  if (us < 1e4)
    std::snprintf(text, sizeof text, "%.1f us", us);
  else if (us < 1e7)
    std::snprintf(text, sizeof text, "%.2f ms", us / 1e3);
  else
    std::snprintf(text, sizeof text, "%.2f s", us / 1e6);
  return text;
}

std::string describe_op(const Analysis& analysis, std::uint32_t op, std::size_t width) {
  std::uint32_t index = analysis.step.calls()[op];
  const TraceCall& call = analysis.file->trace.calls[index];
  std::string text(name(call.kind));
  switch (call.kind) {
    case CallKind::launch:
      text += " " + kernel_name(analysis.file->trace.functions[call.function]);
      break;
    case CallKind::copy:
      text += " " + bytes_text(call.width * call.height) + " " + memory_at(analysis, index, kAtSrc) + " -> " +
              memory_at(analysis, index, kAtDst);
      break;
    case CallKind::set:
      text += " " + bytes_text(call.width * call.height) + " of " + memory_at(analysis, index, kAtDst);
      break;
    case CallKind::alloc_async:
      text += " " + bytes_text(call.size);
      break;
    default:
      break;
  }
  return shortened(text, width);
}

std::string describe_object(const Analysis& analysis, std::uint32_t object) {
  const StepObject& known = analysis.objects.objects[object];
  return "object " + std::to_string(object) + " (" + std::string(name(known.memory)) + ", " + bytes_text(known.size) +
         (known.step_local ? ", step-local)" : ")");
}

}  // namespace nimble::analyzer
