// The trace reader's calls: each with its arguments, and when the GPU ran its op.
// shim/record/trace/trace_call.cpp writes them.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/base/json_fields.h"
#include "analyzer/input/trace_fields.h"
#include "analyzer/input/trace_reader_parts.h"

namespace nimble::analyzer {
namespace {

using nlohmann::json;

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

void probe(const Fields& args, Trace& trace, TraceCall& call) {
  TraceProbe probe;
  probe.compared = ranges(args, "compared");
  probe.written = ranges(args, "written");
  probe.addresses = args.flag_or("addresses", false);
  probe.plain = args.flag_or("plain", false);
  auto object = probe.compared.begin();
  for (const TraceProbe::Range& range : probe.written) {
    while (object != probe.compared.end() && object->address + object->bytes <= range.address) ++object;
    if (object == probe.compared.end() || range.address < object->address ||
        range.address + range.bytes > object->address + object->bytes)
      args.fail("written", "holds a range that lies in no object that was compared");
  }
  call.probe = static_cast<std::uint32_t>(trace.probes.size());
  trace.probes.push_back(std::move(probe));
}

void words(const Fields& args, TraceCall& call) {
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

void context(const Fields& args, TraceCall& call) {
  if (args.has("context")) call.context = static_cast<std::uint32_t>(args.number("context", kMaxId));
}

MemoryKind memory(const Fields& args) {
  if (!args.has("memory")) return MemoryKind::device;
  auto kind = index_of(kMemoryKindNames, args.text("memory"));
  if (!kind) args.fail("memory", "no such kind of memory: " + args.text("memory"));
  return static_cast<MemoryKind>(*kind);
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

void launch(const Fields& args, Trace& trace, TraceCall& call) {
  call.function = read_id(args, "fn", trace.functions.size());
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
  if (args.has("params")) call.params = read_params(args, "params", args.text("params"));
  if (!call.params.empty()) check_params(args, "params", trace.functions[call.function], call.params);
  if (args.has("nowhere"))
    for (const json& word : args.list("nowhere")) {
      const std::uint64_t at = args.number_of(word, "nowhere", kMaxId);
      if (at % 8 != 0 || at + 8 > call.params.size())
        args.fail("nowhere", "is not the offset of a word in the parameters");
      if (!call.nowhere.empty() && at <= call.nowhere.back()) args.fail("nowhere", "must ascend");
      call.nowhere.push_back(static_cast<std::uint32_t>(at));
    }
  if (args.has("compared")) probe(args, trace, call);
}

void rows(const Fields& args, TraceCall& call) {
  call.width = args.number("width");
  call.height = args.number_or("height", 1, kMaxAddress);
  if (call.height == 0) {  // legal, and copies nothing
    call.height = 1;
    call.width = 0;
  }
}

TraceRegion region(const Fields& args, const TraceCall& call, const char* address, const char* pitch) {
  TraceRegion result{args.number(address), args.number_or(pitch, 0, kMaxAddress)};
  if (call.height > 1 && result.pitch < call.width) args.fail(pitch, "is smaller than width");
  unsigned __int128 end = static_cast<unsigned __int128>(call.height - 1) * result.pitch;
  if (end + call.width > kMaxAddress - result.address)
    args.fail(address, "the region reaches past the end of the address space");
  return result;
}

void arguments(const Fields& args, Trace& trace, TraceCall& call) {
  switch (call.kind) {
    case CallKind::launch:
      launch(args, trace, call);
      break;
    case CallKind::copy:
      rows(args, call);
      call.dst = region(args, call, "dst", "dpitch");
      call.plain = args.flag_or("plain", true);
      call.src = region(args, call, "src", "spitch");
      if (args.has("words")) words(args, call);
      break;
    case CallKind::set:
      rows(args, call);
      call.dst = region(args, call, "dst", "dpitch");
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
      if (args.has("image")) call.image = read_id(args, "image", trace.images.size());
      context(args, call);
      break;
    case CallKind::free:
    case CallKind::free_async:
      call.address = args.number("addr");
      call.size = args.number_or("size", 0, kMaxAddress - call.address);
      break;
    case CallKind::context_end:
    case CallKind::context_synchronize:
      context(args, call);
      break;
    case CallKind::opaque:
      if (!args.has("accesses")) break;
      call.accesses.emplace();
      read_accesses(args, *call.accesses);
      break;
    case CallKind::graph_launch:
      if (args.has("graph")) call.graph = read_id(args, "graph", trace.graphs.size());
      break;
    default:
      break;
  }
}

}  // namespace

void read_call(const Fields& top, const Fields& args, Trace& trace) {
  TraceCall call;
  auto kind = index_of(kCallKindNames, top.text("cat"));
  if (!kind) top.fail("cat", "no such kind of call: " + top.text("cat"));
  call.kind = static_cast<CallKind>(*kind);
  call.thread = static_cast<std::uint32_t>(top.number_or("tid", 0, kNone));
  call.host_begin_us = top.real_or("ts", 0);
  call.host_duration_us = top.real_or("dur", 0);
  call.seq = args.number("seq");
  call.symbol = args.text_or("call", "");
  call.result = static_cast<std::int32_t>(
      args.signed_or("result", 0, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()));
  call.query = args.flag_or("query", false);
  call.synchronous = args.flag_or("sync", false);
  call.note = args.text_or("note", "");
  call.texture = args.flag_or("texture", false);
  // A call that failed had no effect, and may have had no sensible arguments either.
  if (call.result == 0 || args.has("stream"))
    if (args.has("stream") || is_op(call.kind) || call.kind == CallKind::stream_synchronize)
      call.stream = read_id(args, "stream", trace.streams.size());
  if (call.result == 0) arguments(args, trace, call);
  trace.calls.push_back(std::move(call));
}

DeviceBar read_device_bar(const Fields& top, const Fields& args, std::uint64_t line) {
  return {args.number("seq"), line, top.microseconds("ts"), top.microseconds("dur")};
}

void place_device_bars(const std::vector<DeviceBar>& bars, const std::string& file, std::vector<TraceCall>& calls) {
  for (const DeviceBar& bar : bars) {
    const auto found = std::lower_bound(calls.begin(), calls.end(), bar.seq,
                                        [](const TraceCall& call, std::uint64_t seq) { return call.seq < seq; });
    if (found == calls.end() || found->seq != bar.seq)
      throw InputError(file, bar.line, "args.seq", "no call has number " + std::to_string(bar.seq));
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

}  // namespace nimble::analyzer
