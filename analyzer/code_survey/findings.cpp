#include "analyzer/code_survey/findings.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "analyzer/code_survey/deciding.h"

namespace nimble::analyzer {
namespace {

bool same(const Finding& finding, const code::PtxProof& proof, const std::string& cause) {
  const auto layout = [](const code::PtxParam& a, const code::PtxParam& b) {
    return a.offset == b.offset && a.size == b.size;
  };
  const code::PtxProof& one = finding.proof;
  return one.understood == proof.understood && finding.cause == cause && one.accesses == proof.accesses &&
         one.globals == proof.globals && one.stored == proof.stored &&
         decided_by_launch(one) == decided_by_launch(proof) && std::ranges::equal(one.params, proof.params, layout);
}

struct Mode {
  bool reads = false, writes = false;
};

// What is touched: by variable, and by word, which has the number of its parameter and its offset in it.
struct Touched {
  std::map<std::string, Mode> variables;
  std::map<std::pair<std::size_t, std::uint32_t>, Mode> words;

  explicit Touched(const code::PtxProof& proof) {
    for (const code::PtxGlobal& each : proof.globals) variables[each.name] = {each.reads, each.writes};
    for (const code::PtxAccess& access : proof.accesses) {
      for (const std::uint32_t at : access.at) {
        Mode& mode = words[place(proof, at)];
        mode.reads |= access.reads;
        mode.writes |= access.writes;
      }
    }
  }

  static std::pair<std::size_t, std::uint32_t> place(const code::PtxProof& proof, std::uint32_t at) {
    std::size_t i = proof.params.size();
    while (i > 0 && proof.params[i - 1].offset > at) --i;
    return i == 0 ? std::pair(std::size_t{0}, at) : std::pair(i, at - proof.params[i - 1].offset);
  }

  // Whether an access of that proof may be one of these. An address may come from one of its words, and from no other.
  bool explains(const code::PtxProof& proof) const {
    return std::ranges::all_of(proof.accesses, [&](const code::PtxAccess& access) {
      return std::ranges::any_of(access.at, [&](std::uint32_t at) {
        const auto found = words.find(place(proof, at));
        return found != words.end() && found->second.reads >= access.reads && found->second.writes >= access.writes;
      });
    });
  }
  bool within(const Touched& other) const {
    return is_within(words, other.words) && is_within(variables, other.variables);
  }
  template <typename Key>
  static bool is_within(const std::map<Key, Mode>& some, const std::map<Key, Mode>& all) {
    return std::ranges::all_of(some, [&](const auto& each) {
      const auto found = all.find(each.first);
      return found != all.end() && found->second.reads >= each.second.reads &&
             found->second.writes >= each.second.writes;
    });
  }
};

}  // namespace

std::string CodeTarget::text() const {
  std::string text = (is_ptx ? "compute_" : "sm_") + std::to_string(arch);
  if (variant != '\0') text += variant;
  return text;
}

std::optional<TargetFilter> TargetFilter::of(std::string_view text) {
  TargetFilter filter;
  for (const auto& [prefix, is_ptx] : {std::pair("sm_", false), std::pair("compute_", true)}) {
    if (!text.starts_with(prefix)) continue;
    text.remove_prefix(std::string_view(prefix).size());
    filter.is_ptx_ = is_ptx;
    break;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), filter.arch_);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text == "a" || text == "f") filter.variant_ = text[0];
  if (text.size() > (filter.variant_ == '\0' ? 0u : 1u)) return std::nullopt;
  return filter;
}

bool TargetFilter::takes(const CodeTarget& target) const {
  return arch_ == target.arch && (variant_ == '\0' || variant_ == target.variant) &&
         is_ptx_.value_or(target.is_ptx) == target.is_ptx;
}

Reason reason_of(const std::string& why) {
  constexpr std::string_view kPlace = ", at byte ";
  const std::size_t at = why.find(kPlace);
  if (at == why.npos) return {why, {}};
  const std::size_t begin = at + kPlace.size(), end = std::min(why.find_first_of(":, ", begin), why.size());
  return {why.substr(0, at) + why.substr(end), why.substr(begin, end - begin)};
}

std::string kind_of_cause(const std::string& cause) {
  for (const std::string_view before : {" variable ", " table ", " texture "})
    if (const std::size_t at = cause.find(before); at != cause.npos) return cause.substr(0, at + before.size() - 1);
  return cause.substr(0, cause.find(": 0x"));  // the words of an instruction
}

void KernelFindings::add(const CodeTarget& target, code::PtxProof proof) {
  for (code::PtxParam& param : proof.params) param.name = {};  // of a text that goes
  Reason reason = reason_of(proof.why);
  if (proof.understood) reason = {};
  auto found = std::ranges::find_if(findings, [&](const Finding& each) { return same(each, proof, reason.cause); });
  if (found == findings.end())
    found = findings.insert(findings.end(), Finding{{}, std::move(proof), std::move(reason.cause)});
  auto& targets = found->targets;
  const auto place =
      std::ranges::lower_bound(targets, target, std::less(), [](const FindingTarget& each) { return each.target; });
  if (place == targets.end() || place->target != target || place->place != reason.place)
    targets.insert(place, {target, std::move(reason.place)});
}

Agreement compare(const code::PtxProof& ptx, const code::PtxProof& machine) {
  if (ptx.understood != machine.understood) return ptx.understood ? Agreement::only_ptx : Agreement::only_machine;
  if (!ptx.understood) return Agreement::neither;
  const Touched one(ptx), other(machine);
  if (!Touched::is_within(other.variables, one.variables) || !one.explains(machine)) return Agreement::machine_more;
  if (!other.within(one)) return Agreement::machine_vague;
  return one.within(other) ? Agreement::same : Agreement::machine_less;
}

void for_each_pair(const KernelFindings& kernel,
                   const std::function<void(const CodeTarget&, const CodeTarget&, Agreement)>& each) {
  for (const Finding& one : kernel.findings)
    for (const Finding& other : kernel.findings)
      for (const FindingTarget& ptx : one.targets)
        for (const FindingTarget& machine : other.targets)
          if (ptx.target.is_ptx && !machine.target.is_ptx && ptx.target.arch == machine.target.arch)
            each(ptx.target, machine.target, compare(one.proof, other.proof));
}

}  // namespace nimble::analyzer
