#include "analyzer/code_survey/survey_text.h"

#include <algorithm>
#include <string_view>

#include "analyzer/base/demangle.h"
#include "analyzer/base/text.h"
#include "analyzer/code_survey/deciding.h"
#include "analyzer/code_survey/param_uses.h"

namespace nimble::analyzer {
namespace {

constexpr std::size_t kMostNameChars = 2000;

// "sm_75, sm_80 (machine code), compute_90 (PTX)".
std::string targets_text(const Finding& finding) {
  std::string machine, ptx;
  for (const FindingTarget& each : finding.targets) {
    std::string& list = each.target.is_ptx ? ptx : machine;
    const std::string text = each.target.text();
    if (list.ends_with(text)) continue;  // once more, in another part of the image
    list += (list.empty() ? "" : ", ") + text;
  }
  if (!machine.empty()) machine += " (machine code)";
  if (!ptx.empty()) ptx += " (PTX)";
  return machine + (machine.empty() || ptx.empty() ? "" : ", ") + ptx;
}

// " at byte 0x30 in sm_75, 0x40 in sm_80".
std::string places_text(const Finding& finding) {
  std::string text;
  for (const FindingTarget& each : finding.targets)
    if (!each.place.empty())
      text += (text.empty() ? ", at byte " : ", ") + each.place +
              (finding.targets.size() > 1 ? " in " + each.target.text() : "");
  return text;
}

void add_parameters(std::string& text, const code::PtxProof& proof) {
  std::size_t number = 0;
  for (const ParamUse& param : param_uses(proof)) {
    text += "    " + (proof.params.empty() ? std::string("parameters") : "parameter " + std::to_string(number)) + ", " +
            bytes_range(param.offset, param.offset + param.size) + ":";
    for (const PieceUse& piece : param.pieces) {
      if (param.pieces.size() > 1) text += "\n      " + bytes_range(piece.begin, piece.end) + ":";
      text += " " + spoken(piece);
    }
    text += '\n';
    ++number;
  }
}

void add_finding(std::string& text, const Finding& finding) {
  text += "  " + targets_text(finding) + ":\n";
  if (!finding.proof.understood) {
    text += "    not understood: " + shortened(finding.cause, 300) + places_text(finding) + "\n";
    return;
  }
  for (const Decided& each : decided_by_launch(finding.proof))
    text +=
        "    only for launches that exclude it by " + spoken_numbers(each) + ": " + shortened(each.cause, 300) + "\n";
  add_parameters(text, finding.proof);
  for (const code::PtxGlobal& each : finding.proof.globals)
    text += "    variable " + shortened(demangle(each.name), kMostNameChars) + ": " +
            spoken_mode(each.reads, each.writes) + "\n";
  if (finding.proof.params.empty() && finding.proof.accesses.empty() && finding.proof.globals.empty())
    text += "    no parameters, and no memory but its own\n";
}

}  // namespace

std::string kernel_text(const KernelFindings& kernel) {
  const std::string readable = demangle(kernel.name);
  std::string text = shortened(readable, kMostNameChars) + "\n";
  if (readable != kernel.name) text += "  " + shortened(kernel.name, kMostNameChars) + "\n";
  for (const Finding& finding : kernel.findings) add_finding(text, finding);
  for_each_pair(kernel, [&](const CodeTarget& ptx, const CodeTarget& machine, Agreement agreement) {
    if (agreement != Agreement::same && agreement != Agreement::neither)
      text += "  " + machine.text() + " and " + ptx.text() +
              " differ: " + std::string(kAgreementNames[static_cast<std::size_t>(agreement)]) + "\n";
  });
  return text;
}

void kernel_json(JsonText& out, const KernelFindings& kernel, std::uint64_t image_at) {
  out.newline().open('{').key("name").text(kernel.name).key("image").number(image_at).key("findings").open('[');
  for (const Finding& finding : kernel.findings) {
    const code::PtxProof& proof = finding.proof;
    out.open('{').key("targets").open('[');
    for (const FindingTarget& each : finding.targets) {
      out.open('{').key("name").text(each.target.text());
      if (!each.place.empty()) out.key("place").text(each.place);
      out.close('}');
    }
    out.close(']').key("params").open('[');
    for (const code::PtxParam& param : proof.params) out.open('[').number(param.offset).number(param.size).close(']');
    out.close(']').key("understood").boolean(proof.understood);
    if (!proof.understood) {
      out.key("cause").text(finding.cause).close('}');
      continue;
    }
    out.key("accesses").open('[');
    for (const code::PtxAccess& access : proof.accesses) {
      out.open('{').key("at").open('[');
      for (const std::uint32_t at : access.at) out.number(at);
      out.close(']').key("reads").boolean(access.reads).key("writes").boolean(access.writes).key("when").open('[');
      for (const code::PtxCondition& each : access.when) {
        out.open('{').key("at").number(each.at).key("bytes").number(each.bytes).key("value").number(each.value);
        out.key("equal").boolean(each.equal).close('}');
      }
      out.close(']').close('}');
    }
    out.close(']').key("variables").open('[');
    for (const code::PtxGlobal& each : proof.globals)
      out.open('{')
          .key("name")
          .text(each.name)
          .key("reads")
          .boolean(each.reads)
          .key("writes")
          .boolean(each.writes)
          .close('}');
    out.close(']').key("stored").open('[');
    for (const std::uint32_t at : proof.stored) out.number(at);
    out.close(']').key("by_launch").open('[');
    for (const Decided& each : decided_by_launch(proof)) {
      out.open('{').key("cause").text(each.cause).key("bytes").open('[');
      for (const auto& [begin, end] : each.bytes) out.open('[').number(begin).number(end).close(']');
      out.close(']').key("shape").boolean(each.shape).close('}');
    }
    out.close(']').close('}');
  }
  out.close(']').close('}');
}

}  // namespace nimble::analyzer
