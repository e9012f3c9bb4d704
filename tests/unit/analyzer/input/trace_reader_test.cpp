#include "analyzer/input/trace_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "analyzer/base/errors.h"
#include "tests/unit/analyzer/input/trace_reader_support.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::error_of;
using test::hex;
using test::small;
using test::TempFile;

TEST(TraceReader, ReadsWhatFormatSays) {
  TraceFile file = small().read();
  const Trace& trace = file.trace;
  EXPECT_TRUE(trace.complete);
  EXPECT_EQ(trace.dropped, 0u);
  EXPECT_EQ(trace.program, "test");
  EXPECT_EQ(trace.calls.size(), 30u);
  EXPECT_EQ(trace.functions[0].name, "_Z1fPfPKf");
  EXPECT_EQ(trace.functions[0].params->size(), 2u);
  EXPECT_EQ(trace.streams[0].kind, StreamKind::non_blocking);
  EXPECT_EQ(trace.calls[1].memory, MemoryKind::pinned);
  EXPECT_EQ(trace.calls[2].memory, MemoryKind::stream_ordered);
  EXPECT_EQ(trace.calls[4].kind, CallKind::launch);
  EXPECT_EQ(trace.calls[4].grid[0], 8u);
  EXPECT_EQ(word_at(trace.calls[4].params, 8), 0x3000u);
  EXPECT_EQ(trace.calls[5].element, 4u);
  EXPECT_EQ(file.digest.size(), 16u);
  EXPECT_EQ(trace.functions[0].code, 0xabu);
  ASSERT_EQ(trace.probes.size(), 4u);
  ASSERT_EQ(trace.calls[4].probe, 0u);
  EXPECT_EQ(trace.calls[3].probe, kNone);
  EXPECT_EQ(trace.probes[0].compared, (std::vector<TraceProbe::Range>{{0x1000, 256}, {0x3000, 256}}));
  EXPECT_EQ(trace.probes[0].written, (std::vector<TraceProbe::Range>{{0x1000, 64}}));
  ASSERT_TRUE(trace.probing);
  EXPECT_EQ(trace.probing->limit_bytes, 7u);
  EXPECT_EQ(trace.probing->launches + trace.probing->compared + trace.probing->bytes, 108u);
  EXPECT_EQ(trace.probing->ms, 1.5);
  EXPECT_EQ(trace.probing->too_large, 2u);
  EXPECT_EQ(trace.probing->why_ended, "x");
}

TEST(TraceReader, SortsBySeqAndSkipsWhatIsForPeople) {
  std::string text =
      "[\n"
      R"({"ph":"M","pid":1,"tid":0,"name":"nimble.trace","args":{"version":2}},)"
      "\n"
      R"({"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"host"}},)"
      "\n"
      R"({"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"name":"","cat":"free","args":{"seq":9,"addr":5}},)"
      "\n"
      R"({"ph":"X","pid":2,"tid":1,"ts":1,"dur":1,"name":"","cat":"nonsense","args":7},)"
      "\n"
      R"({"pid":2,"ph":"X","args":{}},)"
      "\n"
      R"({"ph":"C","pid":1},)"
      "\n"
      R"({"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"name":"","cat":"free","args":{"seq":4,"addr":6}})"
      "\n"
      "]\n";
  TempFile file(text);
  Trace trace = read_trace(file.path()).trace;
  ASSERT_EQ(trace.calls.size(), 2u);
  EXPECT_EQ(trace.calls[0].seq, 4u);
  EXPECT_FALSE(trace.complete);
}

TEST(TraceReader, AnythingThatIsNoTraceIsOneClearLine) {
  EXPECT_EQ(error_of(""), ": is empty");
  EXPECT_EQ(error_of(std::string("\x7f"
                                 "ELF\0\1\2\3",
                                 8)),
            ":1: is not a trace: its first line must be [ alone");
  EXPECT_EQ(error_of("{}\n"), ":1: is not a trace: its first line must be [ alone");
  EXPECT_EQ(error_of("[\n"), ":1: has no event nimble.trace: it is empty or was cut off at once");
  EXPECT_EQ(error_of("[\n]\n"), ":2: has no event nimble.trace: it is empty or was cut off at once");
  EXPECT_EQ(error_of("[\n{\"ph\":\"X\",\"name\":\"other\"},\n"),
            ":2: name: the first event of a trace must be nimble.trace");
  EXPECT_EQ(error_of("[\n{\"ph\":\"M\",\"name\":\"nimble.trace\",\"args\":{\"version\":1}},\n"),
            ":2: args.version: is 1; this nimble-analyze reads version 2");
  EXPECT_EQ(error_of("[\n7,\n"), ":2: an event must be a JSON object");
  EXPECT_NE(error_of("[\n{\"ph\":,\n{}\n").find(":2: is not a JSON object"), std::string::npos);
  EXPECT_NE(error_of("[\n{\"name\":\"\xff\xfe\"},\n").find(":2: is not a JSON object"), std::string::npos);
  EXPECT_NE(error_of("[\n" + std::string(3 << 20, ' ') + "\n").find(":2: longer than"), std::string::npos);
  EXPECT_NE(error_of(small().str() + "{}\n").find("something follows the closing ]"), std::string::npos);
  TempFile file("");
  EXPECT_THROW(read_trace(file.path() + ".gone"), InputError);
  EXPECT_THROW(read_trace("/tmp"), InputError);
}

std::string bar(std::uint64_t seq, double begin, double duration) {
  return fmt::format(
      R"({{"ph":"X","pid":2,"tid":0,"ts":{},"dur":{},"name":"f","cat":"launch","args":{{"seq":{},"device":true}}}})",
      begin, duration, seq);
}

TEST(TraceReader, DeviceTimesAndCoverage) {
  test::TraceText text;
  text.stream();
  for (std::uint64_t i = 0; i < 3; ++i) text.set(0x1000, 16);
  text.line(bar(1, 40, 2));
  text.line(bar(0, 30.5, 2.5));
  text.line(bar(1, 44, 3));  // parts of one op
  text.line(R"({"ph":"X","pid":2,"tid":0,"ts":1,"dur":1,"name":"f","cat":"set","args":{"seq":2}})");
  text.event("nimble.coverage", R"("source":"cupti","seen":5,"recorded":3,"missed":[["cuLaunchKernel",2]])");
  const Trace trace = text.read().trace;
  EXPECT_EQ(trace.calls[0].device_begin_us, 30.5);
  EXPECT_EQ(trace.calls[0].device_duration_us, 2.5);
  EXPECT_EQ(trace.calls[1].device_begin_us, 40);
  EXPECT_EQ(trace.calls[1].device_duration_us, 7);
  EXPECT_LT(trace.calls[2].device_duration_us, 0);
  EXPECT_EQ(trace.coverage.why_not, "");
  EXPECT_EQ(trace.coverage.seen, 5u);
  EXPECT_EQ(trace.coverage.recorded, 3u);
  ASSERT_EQ(trace.coverage.missed.size(), 1u);
  EXPECT_EQ(trace.coverage.missed[0], std::pair(std::string("cuLaunchKernel"), std::uint64_t{2}));

  EXPECT_EQ(small().read().trace.coverage.why_not, "the trace does not tell");
  test::TempFile cut(small().str(false));
  EXPECT_EQ(read_trace(cut.path()).trace.coverage.why_not, "the trace was cut off");

  text.line(bar(9, 1, 1));
  EXPECT_NE(error_of(text.str()).find("args.seq: no call has number 9"), std::string::npos);
  test::TraceText negative;
  negative.line(bar(0, -1, 1));
  EXPECT_NE(error_of(negative.str()).find("ts: must not be negative"), std::string::npos);
  test::TraceText more;
  more.event("nimble.coverage", R"("source":"cupti","seen":1,"recorded":3,"missed":[])");
  EXPECT_NE(error_of(more.str()).find("args.recorded: is more than was seen"), std::string::npos);
}

// No kernel writes a constant variable, and the host only where it has asked for its address.
TEST(TraceReader, ConstantVariablesDoNotMatterWhileTheirAddressesAreUnknown) {
  const auto self_contained = [](const char* memory, const char* dropped) {
    test::TraceText text;
    for (int image = 0; image < 2; ++image) text.image(false);
    text.function("reads", "[[0,8]]", 0, R"(,"self_contained":false,"constants":true,"why":"constants")");
    text.function("writes", "[[0,8]]", 0, R"(,"self_contained":false,"why":"variables")");
    text.stream();
    text.launch(0, hex(0x1000));
    text.alloc(0x1000, 0x100, memory);
    if (*dropped) text.event("nimble.end", dropped);
    const TempFile file(text.str(false));
    const Trace trace = read_trace(file.path()).trace;
    EXPECT_FALSE(trace.functions[1].self_contained);
    return trace.functions[0].self_contained;
  };
  const char *of_its = R"(global","image":0,"symbol":"x)", *of_another = R"(global","image":1,"symbol":"x)";
  EXPECT_TRUE(self_contained("device", R"("dropped":0)"));
  EXPECT_TRUE(self_contained("device", ""));
  EXPECT_TRUE(self_contained(of_another, R"("dropped":0)")) << "a variable of another image";
  EXPECT_FALSE(self_contained(of_its, R"("dropped":0)"));
  EXPECT_FALSE(self_contained("global", R"("dropped":0)"));
  EXPECT_FALSE(self_contained("device", R"("dropped":1)")) << "who knows what was asked for";
}

TEST(TraceReader, ReadsGraphsInParts) {
  test::TraceText text;
  text.image(true);
  text.function("f", "[[0,8]]");
  text.stream();
  text.event("nimble.graph", R"("id":0,"known":true,"why":"")");
  text.event("nimble.graph_nodes", R"("graph":0,"accesses":[[16,8,"r"]])");
  text.event("nimble.graph_nodes", R"("graph":0,"accesses":[[32,0,"w"]])");
  text.event("nimble.graph_nodes", R"("graph":0,"kernels":[[0,"1000000000000000"]])");
  text.call("graph_launch", "\"stream\":0,\"graph\":0");
  Trace trace = text.read().trace;
  ASSERT_EQ(trace.graphs.size(), 1u);
  EXPECT_EQ(trace.graphs[0].accesses, (std::vector<TraceAccess>{{16, 8, true, false}, {32, 0, false, true}}));
  ASSERT_EQ(trace.graphs[0].kernels.size(), 1u);
  EXPECT_EQ(trace.graphs[0].kernels[0].params[0], 16);
  EXPECT_EQ(trace.calls[0].graph, 0u);
  auto broken = [&](const std::string& args) {
    test::TraceText more;
    more.image(true);
    more.function("f", "[[0,8]]");
    more.function("g", "null");
    more.event("nimble.graph", R"("id":0,"known":true,"why":"")");
    more.event("nimble.graph_nodes", args);
    std::string found = error_of(more.str());
    return found.substr(std::min<std::size_t>(found.size(), 4));
  };
  EXPECT_EQ(broken(R"("graph":0,"kernels":[[2,""]])"), "args.kernels: 2 was not defined before");
  EXPECT_EQ(broken(R"("graph":0,"kernels":[[0,"00"]])"), "args.kernels: holds 1 bytes, the function takes 8");
  EXPECT_EQ(broken(R"("graph":0,"kernels":[[1,""]])"), "args.kernels: holds a kernel without a parameter layout");
}

}  // namespace
}  // namespace nimble::analyzer
