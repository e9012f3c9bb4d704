#include "shim/record/trace/trace_definitions.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "shim/record/trace/trace_text.h"

namespace nimble::shim {

namespace {

// The kernel's readable name: demangled, without its parameter list.
std::string spoken(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                    std::free);
  if (status != 0) return name;
  std::string result = text.get();
  if (result.starts_with("void ")) result.erase(0, 5);
  // The parameter list is the last balanced pair of parentheses.
  int depth = 0;
  for (std::size_t i = result.size(); i-- > 0;) {
    if (result[i] == ')') ++depth;
    if (result[i] == '(' && --depth == 0) return result.substr(0, i);
  }
  return result;
}

// How far a kernel's accesses get; nothing where that is not known.
void append_extents(std::string& out, const AddressExtents& extents) {
  if (extents.groups.empty() && extents.doubts.empty()) return;
  out += R"(,"extents":{"expressions":[)";
  const char* separator = "";
  for (const Expression& each : extents.expressions) {
    append(out, R"({}["{}",{},{},{},{}])", separator, kExpressionNames[static_cast<std::size_t>(each.op)], each.bits,
           each.a, each.b, each.value);
    separator = ",";
  }
  append(out, R"(],"counters":[{}],"groups":[)", fmt::join(extents.counters, ","));
  separator = "";
  for (const AddressGroup& group : extents.groups) {
    append(out, R"({}[[{}],"{}{}",[)", separator, fmt::join(group.at, ","), group.reads ? "r" : "",
           group.writes ? "w" : "");
    for (const AddressUse& use : group.uses)
      append(out, "{}[{},{}]", &use == group.uses.data() ? "" : ",", use.address, use.bytes);
    append(out, "],{},[{}]]", group.complete, fmt::join(group.numbers, ","));
    separator = ",";
  }
  out += ']';
  separator = R"(,"doubts":[)";
  for (const AddressDoubt& doubt : extents.doubts) {
    append(out, "{}[{},{},{}]", separator, doubt.happens, json_text(doubt.why), doubt.follows_memory);
    separator = ",";
  }
  if (!extents.doubts.empty()) out += ']';
  out += extents.of_accesses ? R"(,"of_accesses":true})" : "}";
}

// Facts about a kernel's code: `,"self_contained":...` and so on.
void append_code(std::string& out, const FunctionInfo& function) {
  append(out, R"(,"self_contained":{})", function.self_contained);
  if (function.constants) out += R"(,"constants":true)";
  if (!function.why.empty()) append(out, R"(,"why":{})", json_text(function.why));
  if (function.code) append(out, R"(,"code":"{:016x}")", function.code);
  if (!function.proof) {
    if (!function.why_not_proven.empty()) append(out, R"(,"why_not_proven":{})", json_text(function.why_not_proven));
    if (function.follows_memory) out += R"(,"follows_memory":true)";
    return;
  }
  // Whoever does not know of doubts has no proof.
  out += function.proof->extents.doubts.empty() ? R"(,"proven":[)" : R"(,"proven_by_launch":[)";
  const char* separator = "";
  for (const ProvenAccess& access : function.proof->accesses) {
    append(out, R"({}[[{}],"{}{}")", separator, fmt::join(access.at, ","), access.reads ? "r" : "",
           access.writes ? "w" : "");
    for (const ParamCondition& each : access.when)
      append(out, R"({}[{},{},"{}",{}])", &each == access.when.data() ? ",[" : ",", each.at, each.bytes,
             each.equal ? "==" : "!=", each.value);
    out += access.when.empty() ? "]" : "]]";
    separator = ",";
  }
  if (!function.proof->globals.empty()) {
    out += R"(],"globals":[)";
    separator = "";
    for (const ProvenGlobal& global : function.proof->globals) {
      append(out, R"({}[{},{},{},"{}{}"])", separator, json_text(global.name), global.address, global.bytes,
             global.reads ? "r" : "", global.writes ? "w" : "");
      separator = ",";
    }
  }
  append(out, R"(],"stored":[{}],"same_code":{})", fmt::join(function.proof->stored, ","), function.proof->same_code);
  append_extents(out, function.proof->extents);
}

void mark(std::vector<bool>& done, std::uint32_t id) {
  if (done.size() <= id) done.resize(id + 1);
  done[id] = true;
}

bool marked(const std::vector<bool>& done, std::uint32_t id) { return id < done.size() && done[id]; }

}  // namespace

void TraceDefinitions::line(std::string_view event) {
  out_ += event;
  out_ += ",\n";
}

void TraceDefinitions::thread(std::uint32_t thread) {
  if (marked(threads_, thread)) return;
  mark(threads_, thread);
  line(fmt::format(R"json({{"ph":"M","pid":1,"tid":{0},"name":"thread_name","args":{{"name":"thread {0}"}}}})json",
                   thread));
}

std::uint32_t TraceDefinitions::context(CUcontext context) {
  return contexts_.try_emplace(context, static_cast<std::uint32_t>(contexts_.size())).first->second;
}

std::optional<std::uint32_t> TraceDefinitions::stream_of(std::uint64_t key) const {
  const auto found = streams_.find(key);
  return found == streams_.end() ? std::nullopt : std::optional(found->second.id);
}

std::uint32_t TraceDefinitions::stream(const Record& record) {
  const StreamRef& stream = record.call.stream;
  if (const auto known = stream_of(stream.key)) return *known;
  const std::uint32_t id = next_stream_++;
  streams_[stream.key] = {id, record.context};
  line(fmt::format(
      R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.stream","args":{{"id":{},"context":{},"kind":"{}"{}}}}})json",
      id, context(record.context), name(record.stream_kind),
      stream.is_per_thread() ? fmt::format(R"(,"thread":{})", record.call.thread) : ""));
  line(
      fmt::format(R"json({{"ph":"M","pid":2,"tid":{0},"name":"thread_name","args":{{"name":"stream {0} ({1})"}}}})json",
                  id, name(record.stream_kind)));
  return id;
}

// Its streams are gone with it, and their handles may be reused. We do not know which context an event belongs to; a
// new id for one that lives on only loses precision.
void TraceDefinitions::context_ends(CUcontext context) {
  std::erase_if(streams_, [&](const auto& entry) { return !context || entry.second.context == context; });
  events_.clear();
}

std::uint32_t TraceDefinitions::event(CUevent event) {
  const auto [found, is_new] = events_.try_emplace(event, next_event_);
  if (is_new) ++next_event_;
  return found->second;
}

std::uint32_t TraceDefinitions::image(const ImageInfo& image) {
  const auto [found, is_new] = images_.try_emplace(&image, static_cast<std::uint32_t>(images_.size()));
  if (!is_new) return found->second;
  line(fmt::format(
      R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.image","args":{{"id":{},"self_contained":{},"why":{}}}}})json",
      found->second, image.self_contained, json_text(image.why)));
  return found->second;
}

// Its definition, except for the id.
std::string TraceDefinitions::describe(const FunctionInfo& function) {
  const std::string image_id = function.image ? fmt::format("{}", image(*function.image)) : "null";
  std::string params;
  if (function.params) {
    const char* separator = "[";
    for (const ParamLayout& p : *function.params) {
      append(params, "{}[{},{}]", separator, p.offset, p.size);
      separator = ",";
    }
    if (function.params->empty()) params.push_back('[');
    params.push_back(']');
  } else {
    params = "null";
  }
  std::string code;
  if (function.image) append_code(code, function);
  return fmt::format(R"("name":{},"image":{},"params":{}{})", json_text(function.name), image_id, params, code);
}

std::uint32_t TraceDefinitions::function(const FunctionInfo& function) {
  const auto [found, is_new] = functions_.try_emplace(&function, 0);
  std::uint32_t& id = found->second;
  if (!is_new) return id;
  const std::string known = describe(function);
  // A kernel has several handles: graph nodes name it by another than the launches that they were captured from. All
  // share one id.
  id = static_cast<std::uint32_t>(names_.size());
  if (function.image) {
    const auto [same, is_first] = known_functions_.try_emplace(known, id);
    id = same->second;
    if (!is_first) return id;
  }
  names_.push_back(json_text(spoken(function.name)));
  line(
      fmt::format(R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.function","args":{{"id":{},{}}}}})json", id, known));
  return id;
}

// Written once. In parts, so that no line exceeds what readers accept.
std::uint32_t TraceDefinitions::graph(GraphInfo& graph) {
  if (graph.id != kNone) return graph.id;
  graph.id = next_graph_++;
  for (const GraphKernel& kernel : graph.kernels) function(*kernel.function);
  line(fmt::format(
      R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.graph","args":{{"id":{},"known":{},"why":{}}}}})json", graph.id,
      graph.known, json_text(graph.why)));
  graph_accesses(graph);
  graph_kernels(graph);
  graph.accesses = {};
  graph.kernels = {};
  return graph.id;
}

void TraceDefinitions::graph_accesses(const GraphInfo& graph) {
  constexpr std::size_t kPart = 4096;
  for (std::size_t at = 0; at < graph.accesses.size(); at += kPart) {
    std::string list;
    const std::size_t count = std::min(kPart, graph.accesses.size() - at);
    append_accesses(list, graph.accesses.data() + at, count);
    line(fmt::format(
        R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.graph_nodes","args":{{"graph":{},"accesses":{}}}}})json",
        graph.id, list));
  }
}

void TraceDefinitions::graph_kernels(const GraphInfo& graph) {
  constexpr std::size_t kPartBytes = std::size_t{128} << 10;
  for (std::size_t at = 0; at < graph.kernels.size();) {
    std::string list;
    for (; at < graph.kernels.size() && list.size() < kPartBytes; ++at) {
      const GraphKernel& kernel = graph.kernels[at];
      append(list, R"({}[{},")", list.empty() ? "" : ",", functions_.at(kernel.function));
      append_hex(list, kernel.params.data(), kernel.params.size());
      list += "\"]";
    }
    line(fmt::format(
        R"json({{"ph":"M","pid":1,"tid":0,"name":"nimble.graph_nodes","args":{{"graph":{},"kernels":[{}]}}}})json",
        graph.id, list));
  }
}

}  // namespace nimble::shim
