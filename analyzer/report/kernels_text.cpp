// The kernels of a trace as text and as JSON.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

#include "analyzer/base/demangle.h"
#include "analyzer/base/json_text.h"
#include "analyzer/base/text.h"
#include "analyzer/memory/objects.h"
#include "analyzer/report/kernels.h"

namespace nimble::analyzer {
namespace {

constexpr std::size_t kMostNameChars = 2000;
constexpr std::size_t kMostReasons = 4;  // of one kernel

using Known = std::array<std::uint64_t, kEvidences>;

std::string_view mode_text(const KernelUse::Word& word) {
  if (word.reads != 0 && word.writes != 0) return "read and written";
  if (word.writes != 0) return "written";
  return word.reads != 0 ? "read" : "not touched";
}

// "parameter 2, bytes 8-15", or the name of a variable.
std::string place_text(const KernelUse& use, std::uint32_t at) {
  if (at >= kAtGlobals) {
    const std::uint32_t number = at - kAtGlobals;
    return "variable " + (number < use.variables.size() ? demangle(use.variables[number]) : std::to_string(number));
  }
  const std::string bytes = "bytes " + std::to_string(at) + "-" + std::to_string(at + 7);
  for (std::size_t i = 0; i < use.params.size(); ++i)
    if (at - use.params[i].offset < use.params[i].size) return "parameter " + std::to_string(i) + ", " + bytes;
  return bytes;
}

std::string launches_text(std::uint64_t launches) {
  return std::to_string(launches) + (launches == 1 ? " launch" : " launches");
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

// "proven", or "proven 12, assumed 3".
std::string evidence_text(const Known& known, std::uint64_t launches, bool shares) {
  std::string text;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (known[i] == 0) continue;
    text += text.empty() ? "" : ", ";
    text += name(static_cast<Evidence>(i));
    if (shares)
      text += " " + percent(known[i], launches);
    else if (known[i] != launches)
      text += " " + std::to_string(known[i]);
  }
  return text;
}

void add_words(const KernelUse& use, std::string& text) {
  const auto assumed = use.known[static_cast<std::size_t>(Evidence::assumed)];
  const std::uint64_t known = use.launches - assumed;
  const auto times = [&](std::uint64_t launches) {
    return launches == known ? std::string() : ", in " + std::to_string(launches) + " of " + launches_text(known);
  };
  for (const auto& [at, word] : use.words) {
    const std::uint64_t launches = std::max(word.reads, word.writes);
    text += "  " + shortened(place_text(use, at), kMostNameChars) + ": ";
    if (launches != 0) text.append(mode_text(word)).append(times(launches));
    if (word.by_chance != 0)
      text += std::string(launches == 0 ? "" : "; ") + "a number may lead to another object" + times(word.by_chance);
    text += '\n';
  }
  if (use.words.empty() && known != 0) text += "  no memory that the trace knows\n";
}

void add_reasons(const KernelUse& use, std::string& text) {
  std::vector<std::pair<std::uint64_t, std::string>> reasons;
  for (const auto& [why, launches] : use.why) reasons.emplace_back(launches, why);
  std::ranges::stable_sort(reasons, std::greater(), [](const auto& each) { return each.first; });
  if (reasons.size() > kMostReasons) reasons.resize(kMostReasons);
  for (const auto& [launches, why] : reasons)
    text += "  not known in " + launches_text(launches) + ": " + shortened(why, 400) + "\n";
}

Known known_of(const KernelUses& uses, std::uint64_t& launches) {
  Known all{};
  for (const KernelUse& use : uses.kernels) {
    launches += use.launches;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += use.known[i];
  }
  return all;
}

void known_json(JsonText& out, const Known& known) {
  out.key("known").open('{');
  for (std::size_t i = 0; i < known.size(); ++i) out.key(name(static_cast<Evidence>(i))).number(known[i]);
  out.close('}');
}

void kernel_json(JsonText& out, const KernelUse& use) {
  out.newline().open('{').key("name").text(use.name).key("readable").text(demangle(use.name));
  out.key("launches").number(use.launches).key("timed").number(use.timed).key("gpu_us").real(use.gpu_us);
  known_json(out, use.known);
  out.key("words").open('[');
  for (const auto& [at, word] : use.words) {
    out.open('{');
    if (at >= kAtGlobals)
      out.key("variable").text(at - kAtGlobals < use.variables.size() ? use.variables[at - kAtGlobals] : "");
    else
      out.key("byte").number(at);
    out.key("reads").number(word.reads).key("writes").number(word.writes);
    out.key("by_chance").number(word.by_chance).close('}');
  }
  out.close(']').key("why_not").open('[');
  for (const auto& [why, launches] : use.why) {
    out.open('{').key("why").text(why).key("launches").number(launches).close('}');
  }
  out.close(']').close('}');
}

}  // namespace

std::string kernels_text(const Recording& recording, const KernelUses& uses, Evidence trust, bool unknown_only) {
  const Trace& trace = recording.trace();
  std::uint64_t launches = 0;
  const Known known = known_of(uses, launches);
  std::string text = "program         " + shortened(trace.program, kMostNameChars) + "\n";
  text += "device          " + shortened(trace.device, kMostNameChars) + "\n";
  text += "kernels         " + std::to_string(uses.kernels.size()) + ", " + launches_text(launches) + "\n";
  if (launches != 0)
    text += "known           " + evidence_text(known, launches, true) + " of the launches (--trust " +
            std::string(name(trust)) + ")\n";
  if (uses.graph_launches != 0)
    text += "graphs          " + launches_text(uses.graph_launches) + ", whose kernels are not among these\n";
  for (const KernelUse& use : uses.kernels) {
    if (unknown_only && use.known[static_cast<std::size_t>(Evidence::assumed)] == 0) continue;
    const std::string readable = demangle(use.name);
    text += "\n" + shortened(readable, kMostNameChars) + "\n";
    if (readable != use.name) text += "  " + shortened(use.name, kMostNameChars) + "\n";
    text += "  " + launches_text(use.launches) + (use.timed != 0 ? ", " + us_text(use.gpu_us) + " on the GPU" : "") +
            ", " + evidence_text(use.known, use.launches, false) + "\n";
    add_words(use, text);
    add_reasons(use, text);
  }
  return text;
}

std::string kernels_json(const Recording& recording, const KernelUses& uses, Evidence trust) {
  const Trace& trace = recording.trace();
  std::uint64_t launches = 0;
  const Known known = known_of(uses, launches);
  JsonText out;
  out.open('{').key("nimble_kernels").number(1).key("program").text(trace.program).key("device").text(trace.device);
  out.key("trust").text(name(trust)).key("launches").number(launches).key("graph_launches").number(uses.graph_launches);
  known_json(out, known);
  out.newline().key("kernels").open('[');
  for (const KernelUse& use : uses.kernels) kernel_json(out, use);
  out.close(']').close('}').newline();
  return out.take();
}

}  // namespace nimble::analyzer
