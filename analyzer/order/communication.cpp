#include "analyzer/order/communication.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "analyzer/access/kernel_params.h"
#include "analyzer/base/demangle.h"

namespace nimble::analyzer {
namespace {

class Finder {
 public:
  Finder(const Trace& trace, const StepObjects& objects, std::span<const std::uint8_t> watched, const Rules& rules,
         Evidence trust, StepAccesses& accesses)
      : trace_(trace),
        objects_(objects),
        watched_(watched),
        rules_(rules),
        trust_(trust),
        accesses_(accesses),
        hidden_(hidden_memory(trace, false)),
        has_hidden_(!hidden_memory(trace).empty()),
        rule_of_(trace.functions.size()) {
    for (std::uint32_t i = 0; i < accesses.reasons.size(); ++i) reasons_.emplace(accesses.reasons[i], i);
  }

  void look_at(std::uint32_t op, const TraceCall& call) {
    OpAccesses& entry = accesses_.ops[op];
    if (entry.role != OpRole::accesses && entry.role != OpRole::barrier) return;
    const std::string why = why_shared(op, call, [](const Access&) { return true; });
    entry.shares = !why.empty();
    entry.blocks_wait = blocks_wait(call);
    const Rule* rule = rule_for(call);
    const bool by_rule = rule != nullptr;  // the rule knows whether the kernel communicates, and about what
    entry.tells = !by_rule && !why_shared(op, call, [](const Access& access) { return access.writes; }).empty();
    if (rule != nullptr && *rule->communicates) {
      entry.communicates = Communicates::by_rule;
      entry.communicates_why = reason("the rule \"" + rule->text + "\" says so");
    } else if (rule == nullptr && entry.shares && call.kind != CallKind::copy && call.kind != CallKind::set) {
      entry.communicates = Communicates::by_memory;
      entry.communicates_why = reason(why);
      entry.hears = !why_shared(op, call, [](const Access& access) { return access.reads; }).empty();
    }
    // An onlooker on another stream may see any two ops change places.
    for (const Access& access : accesses_.of(op)) {
      if (!is_watched(access.object)) continue;
      entry.tells = entry.tells || access.writes;
      entry.hears = entry.hears || access.reads;
    }
  }

 private:
  bool is_watched(std::uint32_t object) const { return !watched_.empty() && watched_[object] != 0; }

  // Why others may see what these accesses of the op touch; empty if they may not, or if that is not known and the op
  // is ordered with everything.
  template <class Which>
  std::string why_shared(std::uint32_t op, const TraceCall& call, Which which) const {
    switch (call.kind) {
      case CallKind::launch:
      case CallKind::graph_launch:
      case CallKind::opaque:
      case CallKind::copy:
      case CallKind::set:
        break;
      default:
        return {};
    }
    for (const Access& access : accesses_.of(op)) {
      if (!which(access)) continue;
      const MemoryKind memory = objects_.objects[access.object].memory;
      if (!hidden_.empty()) return "the program created " + hidden_ + ", through which others may reach its memory";
      if (is_watched(access.object))
        return "it touches memory that ops of other streams touch, unordered with the step's";
      if (reached_by_others(memory))
        return "it touches " + std::string(name(memory)) + " memory, which others can reach";
    }
    return {};
  }

  // The rule that says whether it communicates, or null. For a graph: that of a kernel of it that does.
  const Rule* rule_for(const TraceCall& call) {
    if (call.kind == CallKind::launch) return rule_of(call.function);
    if (call.kind != CallKind::graph_launch || call.graph == kNone) return nullptr;
    for (const TraceGraph::Kernel& kernel : trace_.graphs[call.graph].kernels)
      if (const Rule* rule = rule_of(kernel.function); rule != nullptr && *rule->communicates) return rule;
    return nullptr;
  }

  bool blocks_wait(const TraceCall& call) {
    if (call.kind == CallKind::launch) return cached(call.function).blocks_wait;
    if (call.kind != CallKind::graph_launch || call.graph == kNone) return false;
    return std::ranges::any_of(trace_.graphs[call.graph].kernels,
                               [&](const TraceGraph::Kernel& kernel) { return cached(kernel.function).blocks_wait; });
  }

  const Rule* rule_of(std::uint32_t function) { return cached(function).rule; }

  struct Cached;
  const Cached& cached(std::uint32_t function) {
    Cached& cached = rule_of_[function];
    if (cached.asked) return cached;
    cached.asked = true;
    const TraceFunction& kernel = trace_.functions[function];
    cached.blocks_wait = rules_.blocks_wait(kernel.name, demangle(kernel.name));
    cached.rule = rules_.of_communication(kernel.name, demangle(kernel.name), kernel.params,
                                          kernel.self_contained && !has_hidden_);
    if (cached.rule != nullptr && !*cached.rule->communicates && trust_ < Evidence::declared) cached.rule = nullptr;
    return cached;
  }

  std::uint32_t reason(const std::string& text) {
    const auto [entry, is_new] = reasons_.emplace(text, static_cast<std::uint32_t>(accesses_.reasons.size()));
    if (is_new) accesses_.reasons.push_back(text);
    return entry->second;
  }

  struct Cached {
    bool asked = false, blocks_wait = false;
    const Rule* rule = nullptr;
  };
  const Trace& trace_;
  const StepObjects& objects_;
  const std::span<const std::uint8_t> watched_;
  const Rules& rules_;
  Evidence trust_;
  StepAccesses& accesses_;
  std::string hidden_;  // what was created through which others may reach any memory
  bool has_hidden_;     // that, or textures
  std::vector<Cached> rule_of_;
  std::unordered_map<std::string, std::uint32_t> reasons_;
};

}  // namespace

bool reached_by_others(MemoryKind memory) {
  switch (memory) {
    case MemoryKind::device:
    case MemoryKind::stream_ordered:
    case MemoryKind::global:
      return false;
    default:
      return true;
  }
}

void find_communication(const Trace& trace, const StepObjects& objects, std::span<const std::uint8_t> watched,
                        std::span<const std::uint32_t> calls, const Rules& rules, Evidence trust,
                        StepAccesses& accesses) {
  Finder finder(trace, objects, watched, rules, trust, accesses);
  for (std::uint32_t op = 0; op < calls.size(); ++op) finder.look_at(op, trace.calls[calls[op]]);
}

}  // namespace nimble::analyzer
