// The trace reader's definitions: images, functions with what their code is known to do, streams, and graphs.
// shim/record/trace/trace_definitions.cpp writes them.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/addresses/evaluate.h"
#include "analyzer/base/json_fields.h"
#include "analyzer/input/trace_fields.h"
#include "analyzer/input/trace_reader.h"
#include "analyzer/input/trace_reader_parts.h"

namespace nimble::analyzer {
namespace {

using nlohmann::json;

void next_id(const Fields& args, std::size_t expected) {
  if (args.number("id") != expected)
    args.fail("id", "must be " + std::to_string(expected) + ": ids count from 0 in the order of definition");
}

std::vector<ParamLayout> layout(const Fields& args) {
  std::vector<ParamLayout> params;
  std::uint64_t end = 0;
  for (const json& pair : args.list("params")) {
    if (!pair.is_array() || pair.size() != 2) args.fail("params", "must be a list of [offset, size]");
    ParamLayout param;
    param.offset = static_cast<std::uint32_t>(args.number_of(pair[0], "params", kMaxParamBytes));
    param.size = static_cast<std::uint32_t>(args.number_of(pair[1], "params", kMaxParamBytes));
    if (param.offset < end) args.fail("params", "parameters overlap");
    end = std::uint64_t{param.offset} + param.size;
    if (param.size == 0 || end > kMaxParamBytes)
      args.fail("params", "a parameter must have 1 to " + std::to_string(kMaxParamBytes) + " bytes");
    params.push_back(param);
  }
  return params;
}

std::uint32_t word_of(const Fields& args, const char* name, const json& word, std::uint32_t end,
                      std::uint32_t unit = 8) {
  const std::uint64_t at = args.number_of(word, name, kMaxId);
  if (at % unit != 0 || at >= end) args.fail(name, std::to_string(at) + " is not a word of the parameters");
  return static_cast<std::uint32_t>(at);
}

// [byte, size, "==" or "!=", value]
ParamCondition condition(const Fields& args, const json& item, std::uint32_t end) {
  if (!item.is_array() || item.size() != 4) args.fail("proven", "a condition must be [byte, size, relation, value]");
  ParamCondition result;
  result.at = static_cast<std::uint32_t>(args.number_of(item[0], "proven", kMaxId));
  result.bytes = static_cast<std::uint32_t>(args.number_of(item[1], "proven", 8));
  if (!std::has_single_bit(result.bytes) || result.at > end || end - result.at < result.bytes)
    args.fail("proven", "a condition must be of 1, 2, 4 or 8 bytes of the parameters");
  const std::string& relation = args.text_of(item[2], "proven");
  result.equal = relation == "==";
  if (!result.equal && relation != "!=") args.fail("proven", "a condition's relation must be \"==\" or \"!=\"");
  result.value = args.number_of(item[3], "proven", ~std::uint64_t{0} >> (64 - 8 * result.bytes));
  return result;
}

ProvenGlobal global(const Fields& args, const json& item) {
  if (!item.is_array() || item.size() != 4) args.fail("globals", "must be a list of [name, address, bytes, mode]");
  ProvenGlobal result;
  result.name = args.text_of(item[0], "globals");
  result.address = args.number_of(item[1], "globals", kMaxAddress);
  result.bytes = args.number_of(item[2], "globals", kMaxAddress - result.address);
  read_mode(args, "globals", item[3], result.reads, result.writes);
  if (result.bytes == 0) args.fail("globals", "a variable must have bytes");
  return result;
}

Expression expression(const Fields& args, const json& item) {
  if (!item.is_array() || item.size() != 5 || !item[4].is_number_integer())
    args.fail("extents", "an expression must be [operation, bits, operand, operand, value]");
  Expression result;
  const std::string& name = args.text_of(item[0], "extents");
  const auto* const found = std::ranges::find(kExpressionNames, name);
  if (found == std::end(kExpressionNames)) args.fail("extents", "has an unknown operation: " + name);
  result.op = static_cast<ExpressionOp>(found - std::begin(kExpressionNames));
  result.bits = static_cast<std::uint8_t>(args.number_of(item[1], "extents", 64));
  result.a = static_cast<std::uint32_t>(args.number_of(item[2], "extents", kMaxId));
  result.b = static_cast<std::uint32_t>(args.number_of(item[3], "extents", kMaxId));
  result.value = item[4].get<std::int64_t>();
  return result;
}

AddressGroup address_group(const Fields& args, const json& item, std::uint32_t end) {
  const bool is_group = item.is_array() && item.size() == 5 && item[0].is_array() && item[2].is_array() &&
                        item[3].is_boolean() && item[4].is_array();
  if (!is_group) args.fail("extents", "a group must be [[words], mode, [uses], complete, [numbers]]");
  AddressGroup result;
  for (const json& word : item[0]) result.at.push_back(word_of(args, "extents", word, end));
  read_mode(args, "extents", item[1], result.reads, result.writes);
  for (const json& use : item[2]) {
    if (!use.is_array() || use.size() != 2) args.fail("extents", "a use must be [expression, bytes]");
    result.uses.push_back({static_cast<std::uint32_t>(args.number_of(use[0], "extents", kMaxId)),
                           static_cast<std::uint32_t>(args.number_of(use[1], "extents", kMaxParamBytes))});
  }
  result.complete = item[3].get<bool>();
  for (const json& word : item[4]) result.numbers.push_back(word_of(args, "extents", word, end, 4));
  return result;
}

AddressDoubt doubt(const Fields& args, const json& item) {
  if (!item.is_array() || item.size() != 3 || !item[2].is_boolean())
    args.fail("extents", "a doubt must be [expression, what it may do, whether that follows memory]");
  return {static_cast<std::uint32_t>(args.number_of(item[0], "extents", kMaxId)), args.text_of(item[1], "extents"),
          item[2].get<bool>()};
}

void read_extents(const Fields& args, std::uint32_t end, AddressExtents& extents) {
  const json& all = args.member("extents");
  const auto is_list = [&](const char* name) { return all.is_object() && all.contains(name) && all[name].is_array(); };
  if (!is_list("expressions") || !is_list("counters") || !is_list("groups"))
    args.fail("extents", "must have lists of expressions, counters and groups");
  for (const json& item : all["expressions"]) extents.expressions.push_back(expression(args, item));
  for (const json& item : all["counters"])
    extents.counters.push_back(static_cast<std::uint32_t>(args.number_of(item, "extents", kMaxId)));
  for (const json& item : all["groups"]) extents.groups.push_back(address_group(args, item, end));
  extents.of_accesses = all.contains("of_accesses") && all["of_accesses"] == true;
  if (is_list("doubts"))
    for (const json& item : all["doubts"]) extents.doubts.push_back(doubt(args, item));
  if (!is_well_formed(extents)) args.fail("extents", "has an expression with missing or unsuitable operands");
}

std::uint64_t digest(const Fields& args, const char* name) {
  const std::string& text = args.text(name);
  std::uint64_t value = 0;
  if (text.size() != 16) args.fail(name, "must be 16 hexadecimal digits");
  for (char c : text) {
    if (hex_digit(c) == 0xff) args.fail(name, "must be 16 hexadecimal digits");
    value = value << 4 | hex_digit(c);
  }
  return value;
}

// What is known of a kernel's code: where the trace does not tell, what it tells of the whole image.
void code(const Fields& args, const Trace& trace, TraceFunction& function) {
  if (function.image != kNone) {
    function.self_contained = trace.images[function.image].self_contained;
    function.why = trace.images[function.image].why;
  }
  if (args.has("self_contained")) {
    function.self_contained = args.flag("self_contained");
    function.constants = args.flag_or("constants", false);
    function.why = args.text_or("why", "");
  }
  function.why_not_proven = args.text_or("why_not_proven", "");
  function.follows_memory = args.flag_or("follows_memory", false);
  if (args.has("code")) function.code = digest(args, "code");
  const char* const proven = args.has("proven_by_launch") ? "proven_by_launch" : "proven";
  if (!args.has(proven)) return;
  if (!function.params) args.fail(proven, "speaks of parameters whose layout is not known");
  const std::uint32_t end =
      function.params->empty() ? 0 : function.params->back().offset + function.params->back().size;
  KernelProof& proof = function.proof.emplace();
  proof.same_code = args.flag_or("same_code", false);
  for (const json& item : args.list(proven)) {
    const bool is_entry = item.is_array() && (item.size() == 2 || (item.size() == 3 && item[2].is_array()));
    if (!is_entry || !item[0].is_array() || item[0].empty())
      args.fail(proven, "must be a list of [[words], mode] or [[words], mode, [conditions]]");
    ProvenAccess access;
    for (const json& word : item[0]) access.at.push_back(word_of(args, proven, word, end));
    read_mode(args, proven, item[1], access.reads, access.writes);
    if (item.size() == 3)
      for (const json& each : item[2]) access.when.push_back(condition(args, each, end));
    proof.accesses.push_back(std::move(access));
  }
  if (args.has("globals"))
    for (const json& item : args.list("globals")) proof.globals.push_back(global(args, item));
  if (args.has("stored"))
    for (const json& word : args.list("stored")) proof.stored.push_back(word_of(args, "stored", word, end));
  if (args.has("extents")) read_extents(args, end, proof.extents);
  const auto follows = [](const AddressDoubt& doubt) { return doubt.follows_memory; };
  function.follows_memory |= std::ranges::any_of(proof.extents.doubts, follows);
  if ((proven == std::string_view("proven")) != proof.extents.doubts.empty())
    args.fail("extents", "has doubts, which \"proven_by_launch\" has, and no other proof");
}

void kernels(const Fields& args, const Trace& trace, std::vector<TraceGraph::Kernel>& list) {
  for (const json& item : args.list("kernels")) {
    if (!item.is_array() || item.size() != 2) args.fail("kernels", "must be a list of [function, parameters]");
    TraceGraph::Kernel kernel;
    const std::uint64_t function = args.number_of(item[0], "kernels", kMaxId);
    if (function >= trace.functions.size()) args.fail("kernels", std::to_string(function) + " was not defined before");
    kernel.function = static_cast<std::uint32_t>(function);
    kernel.params = read_params(args, "kernels", args.text_of(item[1], "kernels"));
    check_params(args, "kernels", trace.functions[kernel.function], kernel.params);
    // Without a layout nothing would be known of it, and the graph would not be.
    if (!trace.functions[kernel.function].params) args.fail("kernels", "holds a kernel without a parameter layout");
    list.push_back(std::move(kernel));
  }
}

}  // namespace

void read_definition(const std::string& name, const Fields& args, Trace& trace) {
  if (name == "nimble.image") {
    next_id(args, trace.images.size());
    trace.images.push_back({args.flag("self_contained"), args.text_or("why", "")});
  } else if (name == "nimble.function") {
    next_id(args, trace.functions.size());
    TraceFunction function;
    function.name = args.text("name");
    if (args.has("image") && !args.member("image").is_null())
      function.image = read_id(args, "image", trace.images.size());
    if (args.has("params") && !args.member("params").is_null()) function.params = layout(args);
    code(args, trace, function);
    trace.functions.push_back(std::move(function));
  } else if (name == "nimble.stream") {
    next_id(args, trace.streams.size());
    TraceStream stream;
    stream.context = static_cast<std::uint32_t>(args.number_or("context", 0, kMaxId));
    auto kind = index_of(kStreamKindNames, args.text("kind"));
    if (!kind) args.fail("kind", "no such kind of stream: " + args.text("kind"));
    stream.kind = static_cast<StreamKind>(*kind);
    if (args.has("thread") && !args.member("thread").is_null())
      stream.thread = static_cast<std::uint32_t>(args.number("thread", kMaxId));
    trace.streams.push_back(stream);
  } else if (name == "nimble.graph") {
    next_id(args, trace.graphs.size());
    TraceGraph graph;
    graph.known = args.flag("known");
    graph.why = args.text_or("why", "");
    trace.graphs.push_back(std::move(graph));
  } else if (name == "nimble.graph_nodes") {
    TraceGraph& graph = trace.graphs[read_id(args, "graph", trace.graphs.size())];
    if (args.has("accesses")) read_accesses(args, graph.accesses);
    if (args.has("kernels")) kernels(args, trace, graph.kernels);
  }
}

}  // namespace nimble::analyzer
