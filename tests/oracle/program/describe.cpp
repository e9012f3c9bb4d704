// A random program in words.
#include <fmt/format.h>

#include "tests/oracle/program/program.h"

namespace nimble::oracle {
namespace {

constexpr const char* kMemory[] = {"device", "managed",  "pooled", "pinned", "pageable",
                                   "local",  "own pool", "plain",  "carried"};
constexpr const char* kOps[] = {"launch",
                                "copy",
                                "set",
                                "alloc",
                                "free",
                                "graph",
                                "record",
                                "wait",
                                "host waits for",
                                "poll",
                                "synchronize",
                                "keep",
                                "exchange",
                                "replace",
                                "renew event",
                                "query",
                                "wait for stream",
                                "read back",
                                "host function",
                                "look at",
                                "launch captured",
                                "launch reloaded",
                                "dawdle"};
constexpr const char* kStreams[] = {"legacy", "blocking", "non-blocking"};
constexpr const char* kEndings[] = {"without a wait", "with a wait for all", "with an event per input"};

}  // namespace

std::string line_of(const Op& op) {
  std::string text = fmt::format("stream {}  {}", op.stream, kOps[static_cast<int>(op.kind)]);
  switch (op.kind) {
    case OpKind::launch:
    case OpKind::captured:
    case OpKind::reloaded:
      text += fmt::format(" {}{}, {} elements", name_of(op.kernel), op.proven ? " with PTX" : "", op.count);
      break;
    case OpKind::copy:
    case OpKind::set:
      text += fmt::format(" {} x {} bytes{}", op.height, op.width, op.blocking ? ", blocking" : "");
      break;
    case OpKind::alloc:
    case OpKind::free:
    case OpKind::replace:
      return text +
             fmt::format(" {}{}{}", op.buffer, op.more_bytes != 0 ? ", larger" : "", op.blocking ? ", blocking" : "");
    case OpKind::keep:
    case OpKind::exchange:
      return text + fmt::format(" {}, {}", op.buffer, op.other);
    case OpKind::record:
    case OpKind::wait:
    case OpKind::host_wait:
    case OpKind::poll:
    case OpKind::renew_event:
      text += fmt::format(" event {}", op.event);
      break;
    default:
      break;
  }
  if (!op.places.empty()) text += "; at";
  for (const Place& place : op.places) {
    text += fmt::format(" {}+{}", place.buffer, place.offset);
    if (place.period > 1) text += fmt::format("(+{} for {} steps)", place.stride, place.period);
    if (place.other_odd) text += fmt::format("(or {})", place.other);
    if (place.other_from != Place().other_from)
      text += fmt::format("(from step {}: {})", place.other_from, place.other);
  }
  if (op.skip != 0) text += fmt::format("; not in each {}. step", op.skip);
  if (op.shrinks) text += "; shrinks";
  if (op.stale) text += fmt::format("; also points to {}", op.buffer);
  if (!op.ranges.empty()) text += "; touches";
  for (const Range& range : op.ranges)
    text += fmt::format(" {}{}[{},{})", range.writes ? "w" : "r", range.buffer, range.begin, range.end);
  return text;
}

std::string describe(const Program& program) {
  std::string text =
      fmt::format("seed {}: {} repeats, {} of them calm, on {} {} streams, steps end {}{}{}\n", program.seed,
                  program.repeats, program.calm, program.streams, kStreams[static_cast<int>(program.stream_kind)],
                  kEndings[static_cast<int>(program.ending)], program.swaps ? "; buffers 0 and 1 change places" : "",
                  program.extra_every != 0 ? "; with extras" : "");
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    text += fmt::format("buffer {}: {}, {} bytes{}{}\n", i, kMemory[static_cast<int>(buffer.memory)], buffer.bytes,
                        buffer.input ? ", input" : "", buffer.addresses ? ", addresses" : "");
  }
  for (const Op& op : program.graph) text += "in the graph: " + line_of(op) + "\n";
  for (std::size_t i = 0; i < program.ops.size(); ++i) text += fmt::format("{:3}  {}\n", i, line_of(program.ops[i]));
  return text;
}

}  // namespace nimble::oracle
