#include "analyzer/trace_reader.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>

#include "analyzer/json_fields.h"
#include "analyzer/line_reader.h"

namespace nimble::analyzer {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxId = kNone - 1;
constexpr std::uint64_t kCallTrack = 1, kStreamTrack = 2;  // `pid` of the two kinds of tracks
constexpr std::uint64_t kMaxAddress = std::numeric_limits<std::uint64_t>::max();

template <std::size_t N>
std::optional<std::uint8_t> index_of(const std::string_view (&names)[N], std::string_view name) {
  auto found = std::find(std::begin(names), std::end(names), name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<std::uint8_t>(found - std::begin(names));
}

class Decoder {
 public:
  Decoder(const std::string& file, Trace& trace) : file_(file), trace_(trace) {}

  // Decodes one event. `line` is where it stands.
  void event(const json& event, std::uint64_t line) {
    FilePlace place{file_, line};
    if (!event.is_object()) throw InputError(file_, line, "", "an event must be a JSON object");
    Fields top(event, "", place);
    const std::string& phase = top.text("ph");
    if (!seen_header_) {
      if (phase != "M" || top.text_or("name", "") != "nimble.trace")
        throw InputError(file_, line, "name", "the first event of a trace must be nimble.trace");
      header(Fields(top.object("args"), "args.", place));
      seen_header_ = true;
      return;
    }
    if (ended_) throw InputError(file_, line, "name", "an event stands after nimble.end");
    if (phase == "M") {
      const std::string& name = top.text("name");
      if (name.rfind("nimble.", 0) == 0) definition(name, Fields(top.object("args"), "args.", place));
    } else if (phase == "X") {
      const std::uint64_t track = top.number_or("pid", kCallTrack, kMaxId);
      if (track != kCallTrack && track != kStreamTrack) return;
      const Fields args(top.object("args"), "args.", place);
      if (track == kCallTrack)
        call(top, args, line);
      else if (args.flag_or("device", false))
        device_time(top, args, line);
    }
  }

  // Puts the calls in the order of `seq`, and checks what only the whole file can show.
  void finish(std::uint64_t line) {
    if (!seen_header_)
      throw InputError(file_, line, "", "has no event nimble.trace: it is empty or was cut off at once");
    auto& calls = trace_.calls;
    std::vector<std::uint32_t> order(calls.size());
    std::iota(order.begin(), order.end(), 0u);
    auto earlier = [&](std::uint32_t a, std::uint32_t b) { return calls[a].seq < calls[b].seq; };
    bool sorted = std::is_sorted(order.begin(), order.end(), earlier);
    if (!sorted) std::stable_sort(order.begin(), order.end(), earlier);
    for (std::size_t i = 1; i < order.size(); ++i)
      if (calls[order[i]].seq == calls[order[i - 1]].seq)
        throw InputError(
            file_, lines_[order[i]], "args.seq",
            std::to_string(calls[order[i]].seq) + " stands at line " + std::to_string(lines_[order[i - 1]]) + " too");
    if (!sorted) {
      std::vector<TraceCall> in_order;
      in_order.reserve(calls.size());
      for (std::uint32_t i : order) in_order.push_back(std::move(calls[i]));
      calls = std::move(in_order);
    }
    place_times();
  }

  bool ended() const { return ended_; }

 private:
  // A bar of the stream tracks that tells when the GPU ran an op.
  struct DeviceBar {
    std::uint64_t seq, line;
    double begin_us, duration_us;
  };

  void device_time(const Fields& top, const Fields& args, std::uint64_t line) {
    bars_.push_back({args.number("seq"), line, top.microseconds("ts"), top.microseconds("dur")});
  }

  // Gives the ops their times. More than one bar for an op are parts of it.
  void place_times() {
    for (const DeviceBar& bar : bars_) {
      auto& calls = trace_.calls;
      const auto found = std::lower_bound(calls.begin(), calls.end(), bar.seq,
                                          [](const TraceCall& call, std::uint64_t seq) { return call.seq < seq; });
      if (found == calls.end() || found->seq != bar.seq)
        throw InputError(file_, bar.line, "args.seq", "no call has number " + std::to_string(bar.seq));
      if (found->device_duration_us < 0) {
        found->device_begin_us = bar.begin_us;
        found->device_duration_us = bar.duration_us;
        continue;
      }
      const double begin = std::min(found->device_begin_us, bar.begin_us);
      found->device_duration_us =
          std::max(found->device_begin_us + found->device_duration_us, bar.begin_us + bar.duration_us) - begin;
      found->device_begin_us = begin;
    }
  }

  void coverage(const Fields& args) {
    TraceCoverage& coverage = trace_.coverage;
    coverage = {};
    if (args.text("source") == "none") {
      coverage.why_not = args.text_or("why", "");
      if (coverage.why_not.empty()) coverage.why_not = "nothing counted";
      return;
    }
    coverage.seen = args.number("seen");
    coverage.recorded = args.number("recorded");
    if (coverage.recorded > coverage.seen) args.fail("recorded", "is more than was seen");
    for (const json& pair : args.list("missed")) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string())
        args.fail("missed", "must be a list of [entry point, count]");
      coverage.missed.emplace_back(pair[0].get<std::string>(), args.number_of(pair[1], "missed", kMaxAddress));
    }
  }

  void header(const Fields& args) {
    std::uint64_t version = args.number("version");
    if (version != kTraceVersion)
      args.fail("version", "is " + std::to_string(version) + "; this nimble-analyze reads version " +
                               std::to_string(kTraceVersion));
    trace_.program = args.text_or("program", "");
    trace_.device = args.text_or("device", "");
    trace_.driver_version = static_cast<int>(args.number_or("driver", 0, std::numeric_limits<int>::max()));
  }

  void definition(const std::string& name, const Fields& args) {
    if (name == "nimble.image") {
      next_id(args, trace_.images.size());
      trace_.images.push_back({args.flag("self_contained"), args.text_or("why", "")});
    } else if (name == "nimble.function") {
      next_id(args, trace_.functions.size());
      TraceFunction function;
      function.name = args.text("name");
      if (args.has("image") && !args.member("image").is_null())
        function.image = id(args, "image", trace_.images.size());
      if (args.has("params") && !args.member("params").is_null()) function.params = layout(args);
      code(args, function);
      trace_.functions.push_back(std::move(function));
    } else if (name == "nimble.stream") {
      next_id(args, trace_.streams.size());
      TraceStream stream;
      stream.context = static_cast<std::uint32_t>(args.number_or("context", 0, kMaxId));
      auto kind = index_of(kStreamKindNames, args.text("kind"));
      if (!kind) args.fail("kind", "no such kind of stream: " + args.text("kind"));
      stream.kind = static_cast<StreamKind>(*kind);
      if (args.has("thread") && !args.member("thread").is_null())
        stream.thread = static_cast<std::uint32_t>(args.number("thread", kMaxId));
      trace_.streams.push_back(stream);
    } else if (name == "nimble.coverage") {
      coverage(args);
    } else if (name == "nimble.probe") {
      probing(args);
    } else if (name == "nimble.graph") {
      next_id(args, trace_.graphs.size());
      TraceGraph graph;
      graph.known = args.flag("known");
      graph.why = args.text_or("why", "");
      trace_.graphs.push_back(std::move(graph));
    } else if (name == "nimble.graph_nodes") {
      TraceGraph& graph = trace_.graphs[id(args, "graph", trace_.graphs.size())];
      if (args.has("accesses")) accesses(args, graph.accesses);
      if (args.has("kernels")) kernels(args, graph.kernels);
    } else if (name == "nimble.end") {
      trace_.dropped = args.number_or("dropped", 0, kMaxAddress);
      ended_ = true;
    } else if (name == "nimble.trace") {
      args.fail("version", "the event nimble.trace stands twice");
    }
  }

  // What is known of a kernel's code: where the trace does not tell, what it tells of the whole image.
  void code(const Fields& args, TraceFunction& function) {
    if (function.image != kNone) {
      function.self_contained = trace_.images[function.image].self_contained;
      function.why = trace_.images[function.image].why;
    }
    if (args.has("self_contained")) {
      function.self_contained = args.flag("self_contained");
      function.why = args.text_or("why", "");
    }
    function.why_not_proven = args.text_or("why_not_proven", "");
    if (args.has("code")) function.code = digest(args, "code");
    if (!args.has("proven")) return;
    if (!function.params) args.fail("proven", "speaks of parameters whose layout is not known");
    const std::uint32_t end =
        function.params->empty() ? 0 : function.params->back().offset + function.params->back().size;
    KernelProof& proof = function.proof.emplace();
    proof.same_code = args.flag_or("same_code", false);
    for (const json& item : args.list("proven")) {
      if (!item.is_array() || item.size() != 2 || !item[0].is_array() || item[0].empty())
        args.fail("proven", "must be a list of [[words], mode]");
      ProvenAccess access;
      for (const json& word : item[0]) access.at.push_back(word_of(args, "proven", word, end));
      const std::string& mode = args.text_of(item[1], "proven");
      access.reads = mode == "r" || mode == "rw";
      access.writes = mode == "w" || mode == "rw";
      if (!access.reads && !access.writes) args.fail("proven", "a mode must be \"r\", \"w\" or \"rw\"");
      proof.accesses.push_back(std::move(access));
    }
    if (args.has("globals"))
      for (const json& item : args.list("globals")) proof.globals.push_back(global(args, item));
    if (args.has("stored"))
      for (const json& word : args.list("stored")) proof.stored.push_back(word_of(args, "stored", word, end));
  }

  static ProvenGlobal global(const Fields& args, const json& item) {
    if (!item.is_array() || item.size() != 4) args.fail("globals", "must be a list of [name, address, bytes, mode]");
    ProvenGlobal result;
    result.name = args.text_of(item[0], "globals");
    result.address = args.number_of(item[1], "globals", kMaxAddress);
    result.bytes = args.number_of(item[2], "globals", kMaxAddress - result.address);
    const std::string& mode = args.text_of(item[3], "globals");
    result.reads = mode == "r" || mode == "rw";
    result.writes = mode == "w" || mode == "rw";
    if (!result.reads && !result.writes) args.fail("globals", "a mode must be \"r\", \"w\" or \"rw\"");
    if (result.bytes == 0) args.fail("globals", "a variable must have bytes");
    return result;
  }

  static std::uint64_t digest(const Fields& args, const char* name) {
    const std::string& text = args.text(name);
    std::uint64_t value = 0;
    if (text.size() != 16) args.fail(name, "must be 16 hexadecimal digits");
    for (char c : text) {
      if (digit(c) == 0xff) args.fail(name, "must be 16 hexadecimal digits");
      value = value << 4 | digit(c);
    }
    return value;
  }

  // Ranges that ascend and do not overlap.
  std::vector<TraceProbe::Range> ranges(const Fields& args, const char* name) {
    std::vector<TraceProbe::Range> list;
    std::uint64_t end = 0;
    for (const json& item : args.list(name)) {
      if (!item.is_array() || item.size() != 2) args.fail(name, "must be a list of [address, bytes]");
      TraceProbe::Range range;
      range.address = args.number_of(item[0], name, kMaxAddress);
      range.bytes = args.number_of(item[1], name, kMaxAddress - range.address);
      if (range.bytes == 0) args.fail(name, "holds a range of no bytes");
      if (range.address < end) args.fail(name, "must ascend without overlap");
      end = range.address + range.bytes;
      list.push_back(range);
    }
    return list;
  }

  void probe(const Fields& args, TraceCall& call) {
    TraceProbe probe;
    probe.compared = ranges(args, "compared");
    probe.written = ranges(args, "written");
    probe.addresses = args.flag_or("addresses", false);
    auto object = probe.compared.begin();
    for (const TraceProbe::Range& range : probe.written) {
      while (object != probe.compared.end() && object->address + object->bytes <= range.address) ++object;
      if (object == probe.compared.end() || range.address < object->address ||
          range.address + range.bytes > object->address + object->bytes)
        args.fail("written", "holds a range that lies in no object that was compared");
    }
    call.probe = static_cast<std::uint32_t>(trace_.probes.size());
    trace_.probes.push_back(std::move(probe));
  }

  void probing(const Fields& args) {
    TraceProbing& probing = trace_.probing.emplace();
    probing.limit_bytes = args.number_or("limit", 0, kMaxAddress);
    probing.launches = args.number_or("launches", 0, kMaxAddress);
    probing.compared = args.number_or("compared", 0, kMaxAddress);
    probing.bytes = args.number_or("bytes", 0, kMaxAddress);
    probing.ms = args.real_or("ms", 0);
    probing.too_large = args.number_or("too_large", 0, kMaxAddress);
    probing.why_ended = args.text_or("why_ended", "");
  }

  static std::uint32_t word_of(const Fields& args, const char* name, const json& word, std::uint32_t end) {
    const std::uint64_t at = args.number_of(word, name, kMaxId);
    if (at % 8 != 0 || at >= end) args.fail(name, std::to_string(at) + " is no word of the parameters");
    return static_cast<std::uint32_t>(at);
  }

  void accesses(const Fields& args, std::vector<TraceAccess>& list) {
    for (const json& item : args.list("accesses")) {
      if (!item.is_array() || item.size() != 3) args.fail("accesses", "must be a list of [address, bytes, mode]");
      TraceAccess access;
      access.address = args.number_of(item[0], "accesses", kMaxAddress);
      access.bytes = args.number_of(item[1], "accesses", kMaxAddress - access.address);
      const std::string& mode = args.text_of(item[2], "accesses");
      access.reads = mode == "r" || mode == "rw";
      access.writes = mode == "w" || mode == "rw";
      if (!access.reads && !access.writes) args.fail("accesses", "a mode must be \"r\", \"w\" or \"rw\"");
      list.push_back(access);
    }
  }

  void kernels(const Fields& args, std::vector<TraceGraph::Kernel>& list) {
    for (const json& item : args.list("kernels")) {
      if (!item.is_array() || item.size() != 2) args.fail("kernels", "must be a list of [function, parameters]");
      TraceGraph::Kernel kernel;
      const std::uint64_t function = args.number_of(item[0], "kernels", kMaxId);
      if (function >= trace_.functions.size())
        args.fail("kernels", std::to_string(function) + " was not defined before");
      kernel.function = static_cast<std::uint32_t>(function);
      kernel.params = bytes(args, "kernels", args.text_of(item[1], "kernels"));
      check_params(args, "kernels", kernel.function, kernel.params);
      // Without a layout nothing would be known of it, and the graph would not be.
      if (!trace_.functions[kernel.function].params) args.fail("kernels", "holds a kernel without a parameter layout");
      list.push_back(std::move(kernel));
    }
  }

  void next_id(const Fields& args, std::size_t expected) {
    if (args.number("id") != expected)
      args.fail("id", "must be " + std::to_string(expected) + ": ids count from 0 in the order of definition");
  }

  std::uint32_t id(const Fields& args, const char* name, std::size_t defined) {
    std::uint64_t value = args.number(name, kMaxId);
    if (value >= defined) args.fail(name, std::to_string(value) + " was not defined before");
    return static_cast<std::uint32_t>(value);
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

  void call(const Fields& top, const Fields& args, std::uint64_t line) {
    if (trace_.calls.size() >= kMaxId) throw InputError(file_, line, "", "too many calls");
    TraceCall call;
    auto kind = index_of(kCallKindNames, top.text("cat"));
    if (!kind) top.fail("cat", "no such kind of call: " + top.text("cat"));
    call.kind = static_cast<CallKind>(*kind);
    call.thread = static_cast<std::uint32_t>(top.number_or("tid", 0, kNone));
    call.host_begin_us = top.real_or("ts", 0);
    call.host_duration_us = top.real_or("dur", 0);
    call.seq = args.number("seq");
    call.symbol = args.text_or("call", "");
    call.result = static_cast<std::int32_t>(args.signed_or("result", 0, std::numeric_limits<std::int32_t>::min(),
                                                           std::numeric_limits<std::int32_t>::max()));
    call.query = args.flag_or("query", false);
    call.synchronous = args.flag_or("sync", false);
    call.note = args.text_or("note", "");
    call.texture = args.flag_or("texture", false);
    // A call that failed had no effect, and may have had no sensible arguments either.
    if (call.result == 0 || args.has("stream"))
      if (args.has("stream") || is_op(call.kind) || call.kind == CallKind::stream_synchronize)
        call.stream = id(args, "stream", trace_.streams.size());
    if (call.result == 0) arguments(call, args);
    trace_.calls.push_back(std::move(call));
    lines_.push_back(line);
  }

  void arguments(TraceCall& call, const Fields& args) {
    switch (call.kind) {
      case CallKind::launch:
        launch(call, args);
        break;
      case CallKind::copy:
        rows(call, args);
        call.dst = region(call, args, "dst", "dpitch");
        call.plain = args.flag_or("plain", true);
        call.src = region(call, args, "src", "spitch");
        if (args.has("words")) words(args, call);
        break;
      case CallKind::set:
        rows(call, args);
        call.dst = region(call, args, "dst", "dpitch");
        call.plain = args.flag_or("plain", true);
        call.value = static_cast<std::uint32_t>(args.number_or("value", 0, 0xffffffffu));
        call.element = static_cast<std::uint32_t>(args.number_or("elem", 1, 4));
        if (call.element != 1 && call.element != 2 && call.element != 4) args.fail("elem", "must be 1, 2 or 4");
        break;
      case CallKind::event_record:
      case CallKind::event_wait:
        call.plain = args.flag_or("plain", true);
        [[fallthrough]];
      case CallKind::event_synchronize:
        call.event = static_cast<std::uint32_t>(args.number("event", kMaxId));
        break;
      case CallKind::alloc:
      case CallKind::alloc_async:
        call.address = args.number("addr");
        call.size = args.number("size");
        if (call.size > kMaxAddress - call.address) args.fail("size", "reaches past the end of the address space");
        call.own_pool = args.flag_or("own_pool", false);
        call.memory = call.kind == CallKind::alloc_async ? MemoryKind::stream_ordered : memory(args);
        context(call, args);
        break;
      case CallKind::free:
      case CallKind::free_async:
        call.address = args.number("addr");
        call.size = args.number_or("size", 0, kMaxAddress - call.address);
        break;
      case CallKind::context_end:
      case CallKind::context_synchronize:
        context(call, args);
        break;
      case CallKind::opaque:
        if (!args.has("accesses")) break;
        call.accesses.emplace();
        accesses(args, *call.accesses);
        break;
      case CallKind::graph_launch:
        if (args.has("graph")) call.graph = id(args, "graph", trace_.graphs.size());
        break;
      default:
        break;
    }
  }

  static void words(const Fields& args, TraceCall& call) {
    if (call.height != 1) args.fail("words", "are of copies of one row");
    std::uint64_t next = 0;
    call.words.emplace();
    for (const json& item : args.list("words")) {
      if (!item.is_array() || item.size() != 2) args.fail("words", "must be a list of [offset, value]");
      TraceWord word;
      word.offset = args.number_of(item[0], "words", kMaxAddress);
      word.value = args.number_of(item[1], "words", kMaxAddress);
      if (word.offset < next || call.width < 8 || word.offset > call.width - 8)
        args.fail("words", std::to_string(word.offset) + " is out of order, or outside of the copy");
      next = word.offset + 8;
      call.words->push_back(word);
    }
  }

  void context(TraceCall& call, const Fields& args) {
    if (args.has("context")) call.context = static_cast<std::uint32_t>(args.number("context", kMaxId));
  }

  MemoryKind memory(const Fields& args) {
    if (!args.has("memory")) return MemoryKind::device;
    auto kind = index_of(kMemoryKindNames, args.text("memory"));
    if (!kind) args.fail("memory", "no such kind of memory: " + args.text("memory"));
    return static_cast<MemoryKind>(*kind);
  }

  void launch(TraceCall& call, const Fields& args) {
    call.function = id(args, "fn", trace_.functions.size());
    call.grid = extent(args, "grid", {0x7fffffffu, 0xffffu, 0xffffu});
    call.block = extent(args, "block", {1024, 1024, 1024});
    if (std::uint64_t{call.block[0]} * call.block[1] * call.block[2] > 1024)
      args.fail("block", "a block has at most 1024 threads");
    call.shared_bytes = static_cast<std::uint32_t>(args.number_or("smem", 0, 1 << 30));
    call.cooperative = args.flag_or("coop", false);
    if (args.has("attrs"))
      for (const json& attribute : args.list("attrs"))
        call.attributes.push_back(static_cast<std::uint32_t>(args.number_of(attribute, "attrs", kMaxId)));
    // Events that the launch itself records, by attributes of its own.
    if (args.has("event")) call.event = static_cast<std::uint32_t>(args.number("event", kMaxId));
    if (args.has("event2")) call.event2 = static_cast<std::uint32_t>(args.number("event2", kMaxId));
    if (args.has("params")) call.params = bytes(args, "params", args.text("params"));
    if (!call.params.empty()) check_params(args, "params", call.function, call.params);
    if (args.has("nowhere"))
      for (const json& word : args.list("nowhere")) {
        const std::uint64_t at = args.number_of(word, "nowhere", kMaxId);
        if (at % 8 != 0 || at + 8 > call.params.size()) args.fail("nowhere", "is no place of a word in the parameters");
        if (!call.nowhere.empty() && at <= call.nowhere.back()) args.fail("nowhere", "must ascend");
        call.nowhere.push_back(static_cast<std::uint32_t>(at));
      }
    if (args.has("compared")) probe(args, call);
  }

  void check_params(const Fields& args, const char* name, std::uint32_t function,
                    const std::vector<std::uint8_t>& params) {
    const auto& known = trace_.functions[function].params;
    std::uint64_t expected = known && !known->empty() ? std::uint64_t{known->back().offset} + known->back().size : 0;
    if (params.size() != expected)
      args.fail(name,
                "holds " + std::to_string(params.size()) + " bytes, the function takes " + std::to_string(expected));
  }

  static std::uint8_t digit(char c) {
    if (c >= '0' && c <= '9') return static_cast<std::uint8_t>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<std::uint8_t>(c - 'a' + 10);
    if (c >= 'A' && c <= 'F') return static_cast<std::uint8_t>(c - 'A' + 10);
    return 0xff;
  }

  std::vector<std::uint8_t> bytes(const Fields& args, const char* name, const std::string& text) {
    if (text.size() % 2 != 0) args.fail(name, "has an odd number of hexadecimal digits");
    if (text.size() / 2 > kMaxParamBytes)
      args.fail(name, "is longer than " + std::to_string(kMaxParamBytes) + " bytes");
    std::vector<std::uint8_t> result(text.size() / 2);
    for (std::size_t i = 0; i < result.size(); ++i) {
      std::uint8_t high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
      if (high == 0xff || low == 0xff) args.fail(name, "is not hexadecimal");
      result[i] = static_cast<std::uint8_t>(high << 4 | low);
    }
    return result;
  }

  std::array<std::uint32_t, 3> extent(const Fields& args, const char* name, std::array<std::uint32_t, 3> max) {
    const json& list = args.list(name);
    if (list.size() != 3) args.fail(name, "must be [x, y, z]");
    std::array<std::uint32_t, 3> result{};
    for (std::size_t i = 0; i < 3; ++i) {
      result[i] = static_cast<std::uint32_t>(args.number_of(list[i], name, max[i]));
      if (result[i] == 0) args.fail(name, "must not be 0");
    }
    return result;
  }

  void rows(TraceCall& call, const Fields& args) {
    call.width = args.number("width");
    call.height = args.number_or("height", 1, kMaxAddress);
    if (call.height == 0) {  // legal, and copies nothing
      call.height = 1;
      call.width = 0;
    }
  }

  TraceRegion region(const TraceCall& call, const Fields& args, const char* address, const char* pitch) {
    TraceRegion result{args.number(address), args.number_or(pitch, 0, kMaxAddress)};
    if (call.height > 1 && result.pitch < call.width) args.fail(pitch, "is smaller than width");
    unsigned __int128 end = static_cast<unsigned __int128>(call.height - 1) * result.pitch;
    if (end + call.width > kMaxAddress - result.address)
      args.fail(address, "the region reaches past the end of the address space");
    return result;
  }

  const std::string& file_;
  Trace& trace_;
  std::vector<DeviceBar> bars_;
  std::vector<std::uint64_t> lines_;  // of each call, as long as they stand in file order
  bool seen_header_ = false, ended_ = false;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r' || text.back() == '\t')) text.remove_suffix(1);
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  return text;
}

// nlohmann's message without its own prefix and without the rest of the line, which may be anything.
std::string reason(const json::exception& error) {
  std::string text = error.what();
  if (auto at = text.find("] "); at != std::string::npos) text.erase(0, at + 2);
  if (auto at = text.find("; last read"); at != std::string::npos) text.erase(at);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return text.substr(0, 120);
}

}  // namespace

TraceFile read_trace(const std::string& path) {
  TraceFile file;
  file.path = path;
  LineReader lines(path, kMaxLineBytes);
  Decoder decoder(path, file.trace);
  std::string_view line;
  if (!lines.next(line)) throw InputError(path, 0, "", "is empty");
  if (trimmed(line) != "[") throw InputError(path, 1, "", "is no trace: its first line must be [ alone");

  bool closed = false;
  while (lines.next(line)) {
    line = trimmed(line);
    if (line.empty()) continue;
    if (closed) throw InputError(path, lines.number(), "", "something stands after the closing ]");
    if (line == "]") {
      closed = true;
      continue;
    }
    if (line.back() == ',') line.remove_suffix(1);
    // The recorder's own bars on the tracks of the streams; without a device time nothing in them is ours to read.
    if (line.rfind(R"({"ph":"X","pid":2,)", 0) == 0 && !line.ends_with(R"("device":true}})")) continue;
    json event;
    try {
      event = json::parse(line.begin(), line.end());
    } catch (const json::exception& error) {
      if (!lines.terminated()) break;  // the half line of a file that was cut off
      throw InputError(path, lines.number(), "", "is no JSON object: " + reason(error));
    }
    decoder.event(event, lines.number());
  }
  decoder.finish(lines.number());
  file.trace.complete = decoder.ended();
  if (!file.trace.complete) file.trace.coverage = {"the trace was cut off", 0, 0, {}};
  file.lines = lines.number();
  file.digest = lines.digest();
  return file;
}

}  // namespace nimble::analyzer
