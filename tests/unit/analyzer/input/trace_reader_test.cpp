#include "analyzer/input/trace_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "analyzer/base/errors.h"
#include "analyzer/memory/objects.h"
#include "analyzer/output/schedule_builder.h"
#include "analyzer/output/schedule_writer.h"
#include "analyzer/report/report.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::hex;
using test::TempFile;

// What is wrong with a file, without its name; "" where nothing is.
std::string error_of(const std::string& text) {
  TempFile file(text);
  try {
    read_trace(file.path());
  } catch (const InputError& error) {
    std::string what = error.what();
    EXPECT_EQ(what.find(file.path()), 0u);
    EXPECT_EQ(what.find('\n'), std::string::npos);
    return what.substr(file.path().size());
  }
  return "";
}

test::TraceText small() {
  test::TraceText text;
  text.image(true);
  text.function("_Z1fPfPKf", "[[0,8],[8,8]]", 0, R"(,"code":"00000000000000aB")");
  text.stream();
  text.alloc(0x1000, 0x100);
  text.alloc(0x2000, 0x100, "pinned");
  text.event("nimble.probe",
             R"("chunk":4096,"limit":7,"launches":5,"compared":4,"bytes":99,"ms":1.5,"too_large":2,"why_ended":"x")");
  for (int i = 0; i < 4; ++i) {
    text.alloc_async(0x3000, 0x100);
    text.copy(0x3000, 0x2000, 0x100);
    text.launch(0, hex(0x1000) + hex(0x3000), 0, R"(,"compared":[[4096,256],[12288,256]],"written":[[4096,64]])");
    text.set(0x1000, 64, 0, ",\"value\":1,\"elem\":4");
    text.record(3);
    text.free_async(0x3000);
    text.synchronize();
  }
  return text;
}

// One call in an otherwise good trace; the message without ":LINE: ".
std::string error_of_call(const std::string& kind, const std::string& args) {
  test::TraceText text;
  text.image(true);
  text.function("f", "[[0,8],[8,4]]");
  text.function("g", "null");
  text.stream();
  text.call(kind, args);
  std::string error = error_of(text.str());
  return error.rfind(":7: ", 0) == 0 ? error.substr(4) : error;
}

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

TEST(TraceReader, NamesTheFieldOfEveryHandBrokenCall) {
  EXPECT_EQ(error_of_call("jump", ""), "cat: no such kind of call: jump");
  EXPECT_EQ(error_of_call("launch", ""), "args.stream: is missing");
  EXPECT_EQ(error_of_call("launch", R"("stream":1)"), "args.stream: 1 was not defined before");
  EXPECT_EQ(error_of_call("launch", R"("stream":-1)"), "args.stream: must be an integer from 0 to 4294967294");
  EXPECT_EQ(error_of_call("launch", R"("stream":0.5)"), "args.stream: must be an integer from 0 to 4294967294");
  EXPECT_EQ(error_of_call("launch", R"("stream":0,"fn":2)"), "args.fn: 2 was not defined before");
  EXPECT_EQ(error_of_call("launch", R"("stream":0,"fn":0)"), "args.grid: is missing");
  EXPECT_EQ(error_of_call("launch", R"("stream":0,"fn":0,"grid":[1,1])"), "args.grid: must be [x, y, z]");
  EXPECT_EQ(error_of_call("launch", R"("stream":0,"fn":0,"grid":[1,0,1])"), "args.grid: must not be 0");
  EXPECT_EQ(error_of_call("launch", R"("stream":0,"fn":0,"grid":[1,70000,1])"),
            "args.grid: must be an integer from 0 to 65535");
  std::string shaped = R"("stream":0,"fn":0,"grid":[1,1,1],"block":[32,1,1])";
  EXPECT_EQ(error_of_call("launch", R"("stream":0,"fn":0,"grid":[1,1,1],"block":[64,64,1])"),
            "args.block: a block has at most 1024 threads");
  EXPECT_EQ(error_of_call("launch", shaped), "");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"params":"00")"), "args.params: holds 1 bytes, the function takes 12");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"params":"0")"),
            "args.params: has an odd number of hexadecimal digits");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"params":"zz")"), "args.params: is not hexadecimal");
  EXPECT_EQ(error_of_call("launch", shaped + ",\"params\":\"" + std::string(140'000, '0') + "\""),
            "args.params: is longer than 65536 bytes");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"params":5)"), "args.params: must be text");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"attrs":5)"), "args.attrs: must be a list");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"nowhere":[8])"),
            "args.nowhere: is not the offset of a word in the parameters");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"coop":1)"), "args.coop: must be true or false");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"result":4294967296)"),
            "args.result: must be an integer from -2147483648 to 2147483647");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"compared":[],"written":[])"), "");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"compared":[[0,9],[9,1]],"written":[[2,3],[5,4],[9,1]])"), "");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"compared":[])"), "args.written: is missing");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"compared":[[1]],"written":[])"),
            "args.compared: must be a list of [address, bytes]");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"compared":[[1,0]],"written":[])"),
            "args.compared: holds a range of no bytes");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"compared":[[18446744073709551615,1]],"written":[])"),
            "args.compared: must be an integer from 0 to 0");
  EXPECT_EQ(error_of_call("launch", shaped + R"(,"compared":[[4,4],[7,1]],"written":[])"),
            "args.compared: must ascend without overlap");
  for (const char* range : {"[3,1]", "[7,2]", "[8,1]"}) {
    EXPECT_EQ(error_of_call("launch", fmt::format(R"({},"compared":[[4,4],[9,1]],"written":[{}])", shaped, range)),
              "args.written: holds a range that lies in no object that was compared");
  }
  EXPECT_EQ(error_of_call("launch", R"("stream":0,"fn":1,"grid":[1,1,1],"block":[1,1,1],"params":"00")"),
            "args.params: holds 1 bytes, the function takes 0");
  EXPECT_EQ(error_of_call("copy", R"("stream":0,"dst":0,"src":0)"), "args.width: is missing");
  EXPECT_EQ(error_of_call("copy", R"("stream":0,"dst":18446744073709551615,"src":0,"width":2)"),
            "args.dst: the region reaches past the end of the address space");
  EXPECT_EQ(error_of_call("copy", R"("stream":0,"dst":0,"src":0,"width":9,"height":2,"dpitch":8,"spitch":9)"),
            "args.dpitch: is smaller than width");
  EXPECT_EQ(
      error_of_call(
          "copy",
          R"("stream":0,"dst":0,"src":0,"width":9,"height":18446744073709551615,"dpitch":9223372036854775807,"spitch":9)"),
      "args.dst: the region reaches past the end of the address space");
  EXPECT_EQ(error_of_call("copy", R"("stream":0,"dst":0,"src":0,"width":9,"height":0)"), "");
  const std::string row = R"("stream":0,"dst":0,"src":0,"width":16)";
  EXPECT_EQ(error_of_call("copy", row + R"(,"words":[[0,5],[8,6]])"), "");
  EXPECT_EQ(error_of_call("copy", row + R"(,"words":[[0]])"), "args.words: must be a list of [offset, value]");
  EXPECT_EQ(error_of_call("copy", row + R"(,"words":[[9,5]])"),
            "args.words: 9 is out of order, or outside of the copy");
  EXPECT_EQ(error_of_call("copy", row + R"(,"words":[[8,5],[0,5]])"),
            "args.words: 0 is out of order, or outside of the copy");
  EXPECT_EQ(error_of_call("copy", R"("stream":0,"dst":0,"src":0,"width":4,"words":[[0,5]])"),
            "args.words: 0 is out of order, or outside of the copy");
  EXPECT_EQ(error_of_call("copy", row + R"(,"height":2,"dpitch":16,"spitch":16,"words":[])"),
            "args.words: are of copies of one row");
  EXPECT_EQ(error_of_call("set", R"("stream":0,"dst":0,"width":9,"elem":3)"), "args.elem: must be 1, 2 or 4");
  EXPECT_EQ(error_of_call("alloc", R"("addr":18446744073709551615,"size":2)"),
            "args.size: reaches past the end of the address space");
  EXPECT_EQ(error_of_call("alloc", R"("addr":1,"size":2,"memory":"tape")"),
            "args.memory: no such kind of memory: tape");
  EXPECT_EQ(error_of_call("alloc", R"("addr":1,"size":1e300)"),
            "args.size: must be an integer from 0 to 18446744073709551615");
  EXPECT_EQ(error_of_call("event_record", R"("stream":0)"), "args.event: is missing");
  EXPECT_EQ(error_of_call("opaque", R"("stream":0,"result":1)"), "");
  EXPECT_EQ(error_of_call("opaque", R"("stream":0,"accesses":[[1,2,"r"],[1,0,"rw"]])"), "");
  EXPECT_EQ(error_of_call("opaque", R"("stream":0,"accesses":[[1,2]])"),
            "args.accesses: must be a list of [address, bytes, mode]");
  EXPECT_EQ(error_of_call("opaque", R"("stream":0,"accesses":[[1,2,"x"]])"),
            "args.accesses: a mode must be \"r\", \"w\" or \"rw\"");
  EXPECT_EQ(error_of_call("opaque", R"("stream":0,"accesses":[[18446744073709551615,2,"r"]])"),
            "args.accesses: must be an integer from 0 to 0");
  EXPECT_EQ(error_of_call("graph_launch", R"("stream":0,"graph":0)"), "args.graph: 0 was not defined before");
  EXPECT_EQ(error_of_call("free", R"("addr":18446744073709551615,"size":2)"),
            "args.size: must be an integer from 0 to 0");
  EXPECT_EQ(error_of_call("launch", R"("result":1)"), "") << "what failed may lack its arguments";
}

TEST(TraceReader, NamesTheFieldOfEveryHandBrokenDefinition) {
  auto error = [](const std::string& name, const std::string& args) {
    test::TraceText text;
    text.event(name, args);
    std::string found = error_of(text.str());
    return found.rfind(":3: ", 0) == 0 ? found.substr(4) : found;
  };
  EXPECT_EQ(error("nimble.image", R"("id":1,"self_contained":true)"),
            "args.id: must be 0: ids count from 0 in the order of definition");
  EXPECT_EQ(error("nimble.image", R"("id":0)"), "args.self_contained: is missing");
  EXPECT_EQ(error("nimble.function", R"("id":0,"name":"f","image":0)"), "args.image: 0 was not defined before");
  EXPECT_EQ(error("nimble.function", R"("id":0,"name":"f","params":[[0]])"),
            "args.params: must be a list of [offset, size]");
  EXPECT_EQ(error("nimble.function", R"("id":0,"name":"f","params":[[0,8],[4,8]])"), "args.params: parameters overlap");
  EXPECT_EQ(error("nimble.function", R"("id":0,"name":"f","params":[[65535,8]])"),
            "args.params: a parameter must have 1 to 65536 bytes");
  const std::string proven = R"("id":0,"name":"f","params":[],"proven":[],"globals":)";
  EXPECT_EQ(error("nimble.function", proven + "[[\"v\",4096,4]]"),
            "args.globals: must be a list of [name, address, bytes, mode]");
  EXPECT_EQ(error("nimble.function", proven + "[[\"v\",4096,4,\"x\"]]"),
            "args.globals: a mode must be \"r\", \"w\" or \"rw\"");
  EXPECT_EQ(error("nimble.function", proven + "[[\"v\",4096,0,\"r\"]]"), "args.globals: a variable must have bytes");
  const auto condition = [&](const std::string& each) {
    return error("nimble.function", R"("id":0,"name":"f","params":[[0,8],[8,4]],"proven":[[[0],"r",)" + each + "]]");
  };
  EXPECT_EQ(condition(R"([[8,4,"==",4294967295]])"), "");
  EXPECT_EQ(condition("7"), "args.proven: must be a list of [[words], mode] or [[words], mode, [conditions]]");
  EXPECT_EQ(condition("[7]"), "args.proven: a condition must be [byte, size, relation, value]");
  for (const char* place : {"9,4", "8,3", "8,0", "13,1", "8,8"})
    EXPECT_EQ(condition(fmt::format(R"([[{},"!=",0]])", place)),
              "args.proven: a condition must be of 1, 2, 4 or 8 bytes of the parameters");
  EXPECT_EQ(condition(R"([[8,4,"<",0]])"), "args.proven: a condition's relation must be \"==\" or \"!=\"");
  EXPECT_EQ(condition(R"([[8,2,"==",65536]])"), "args.proven: must be an integer from 0 to 65535");
  const auto extents = [&](const std::string& each) {
    return error("nimble.function",
                 R"("id":0,"name":"f","params":[[0,8],[8,4]],"proven":[[[0],"r"]],"extents":)" + each);
  };
  const auto expressions = [&](const std::string& each, const std::string& counters = "") {
    return extents(R"({"expressions":[["const",64,0,0,4],)" + each + R"(],"counters":[)" + counters +
                   R"(],"groups":[]})");
  };
  const auto group = [&](const std::string& each) {
    return extents(R"({"expressions":[["param",64,8,0,0]],"counters":[],"groups":[)" + each + "]}");
  };
  EXPECT_EQ(expressions(R"(["+",64,0,0,0])"), "");
  EXPECT_EQ(group(R"([[0],"r",[[0,4]],true,[8]])"), "");
  for (const char* each :
       {"7", "[]", "{}", R"({"expressions":[],"counters":[]})", R"({"expressions":{},"counters":[],"groups":[]})"})
    EXPECT_EQ(extents(each), "args.extents: must have lists of expressions, counters and groups");
  for (const char* each : {"7", R"(["+",64,0,0])", R"(["+",64,0,0,1.5])", R"(["+",64,0,0,"1"])"})
    EXPECT_EQ(expressions(each), "args.extents: an expression must be [operation, bits, operand, operand, value]");
  EXPECT_EQ(expressions(R"(["plus",64,0,0,0])"), "args.extents: has an unknown operation: plus");
  EXPECT_EQ(expressions(R"(["+",65,0,0,0])"), "args.extents: must be an integer from 0 to 64");
  for (const char* each :
       {R"(["+",64,0,1,0])", R"(["+",64,0,2,0])", R"(["+",32,0,0,0])", R"(["zext",64,0,0,0])", R"(["where",64,0,0,6])",
        R"(["up_to",32,0,0,-1])", R"(["launch",32,0,0,12])", R"(["either",64,0,9,1])", R"(["low",64,0,0,0])"})
    EXPECT_EQ(expressions(each), "args.extents: has an expression with missing or unsuitable operands") << each;
  EXPECT_NE(expressions(R"(["+",64,0,0,0])", "2"), "");
  for (const char* each : {"7", R"([[0],"r",[],true])", R"([[0],"r",[],1,[]])", R"([0,"r",[],true,[]])"})
    EXPECT_EQ(group(each), "args.extents: a group must be [[words], mode, [uses], complete, [numbers]]");
  EXPECT_EQ(group(R"([[0],"x",[],true,[]])"), "args.extents: a mode must be \"r\", \"w\" or \"rw\"");
  EXPECT_EQ(group(R"([[4],"r",[],true,[]])"), "args.extents: 4 is not a word of the parameters");
  EXPECT_EQ(group(R"([[0],"r",[],true,[16]])"), "args.extents: 16 is not a word of the parameters");
  EXPECT_EQ(group(R"([[0],"r",[0],true,[]])"), "args.extents: a use must be [expression, bytes]");
  for (const char* each : {R"([[],"r",[],true,[]])", R"([[0],"r",[[1,4]],true,[]])"})
    EXPECT_EQ(group(each), "args.extents: has an expression with missing or unsuitable operands");
  const auto doubtful = [&](const std::string& each, const char* key = "proven_by_launch") {
    return error("nimble.function",
                 fmt::format(R"("id":0,"name":"f","params":[[0,8],[8,4]],"{}":[[[0],"r"]],"extents":{{"expressions":)"
                             R"([["const",32,0,0,1],["const",64,0,0,1]],"counters":[],"groups":[],"doubts":[{}]}})",
                             key, each));
  };
  EXPECT_EQ(doubtful(R"([0,"it may",true])"), "");
  for (const char* each : {"7", "[]", R"([0,"it may"])", R"([0,"it may",1])"})
    EXPECT_EQ(doubtful(each),
              "args.extents: a doubt must be [expression, what it may do, whether that follows memory]");
  EXPECT_EQ(doubtful(R"([0,1,true])"), "args.extents: must be text");
  for (const char* each : {R"([1,"it may",true])", R"([2,"it may",true])"})
    EXPECT_EQ(doubtful(each), "args.extents: has an expression with missing or unsuitable operands");
  const char* const other = "args.extents: has doubts, which \"proven_by_launch\" has, and no other proof";
  EXPECT_EQ(doubtful(R"([0,"it may",true])", "proven"), other);
  EXPECT_EQ(doubtful(""), other);
  for (const char* code : {"", "12", "000000000000000g"}) {
    EXPECT_EQ(error("nimble.function", fmt::format(R"("id":0,"name":"f","code":"{}")", code)),
              "args.code: must be 16 hexadecimal digits");
  }
  EXPECT_EQ(error("nimble.probe", R"("ms":"long")"), "args.ms: must be a number");
  EXPECT_EQ(error("nimble.stream", R"("id":0,"kind":"wide")"), "args.kind: no such kind of stream: wide");
  EXPECT_EQ(error("nimble.graph", R"("id":0)"), "args.known: is missing");
  EXPECT_EQ(error("nimble.graph_nodes", R"("graph":0,"accesses":[])"), "args.graph: 0 was not defined before");
  EXPECT_EQ(error("nimble.trace", R"("version":2)"), "args.version: the event nimble.trace occurs twice");
}

TEST(TraceReader, NamesBothLinesOfADoubleSeq) {
  test::TraceText text;
  std::string call = R"({"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"name":"","cat":"free","args":{"seq":5,"addr":1}})";
  text.call("free", "\"addr\":1");
  text.line(call);
  text.line(call);
  EXPECT_EQ(error_of(text.str()), ":5: args.seq: 5 is also at line 4");
}

// Whatever the bytes: a trace, or one clear line. The whole pipeline follows where it is a trace.
void read_and_use(const std::string& text) {
  TempFile file(text);
  try {
    Analysis analysis = analyze(read_trace(file.path()), test::believing());
    text_report(analysis);
    json_report(analysis);
    if (analysis.step.period != 0) schedule_text(build_schedule(analysis));
  } catch (const InputError& error) {
    std::string what = error.what();
    ASSERT_EQ(what.find(file.path()), 0u) << what;
    ASSERT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

TEST(TraceReader, TakesATraceThatWasCutOffAnywhere) {
  std::string text = small().str();
  std::size_t header_end = text.find('\n', 2) - 1;
  for (std::size_t length = 0; length <= text.size(); ++length) {
    read_and_use(text.substr(0, length));
    if (length >= header_end) {
      ASSERT_EQ(error_of(text.substr(0, length)), "") << "cut off after " << length;
    }
  }
}

TEST(TraceReader, SurvivesBytesThatFlipped) {
  test::Random random(17);
  std::string text = small().str();
  for (int round = 0; round < 6000; ++round) {
    std::string broken = text;
    for (unsigned flips = 1 + random() % 3; flips > 0; --flips) {
      char& c = broken[random() % broken.size()];
      c = random() % 3 == 0 ? static_cast<char>(random()) : static_cast<char>('0' + random() % 75);
    }
    read_and_use(broken);
  }
}

TEST(TraceReader, SurvivesLinesThatMovedOrDoubled) {
  test::Random random(18);
  std::vector<std::string> lines;
  std::string text = small().str();
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = text.find('\n', at) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  for (int round = 0; round < 1500; ++round) {
    auto mixed = lines;
    for (unsigned swaps = 1 + random() % 3; swaps > 0; --swaps) {
      std::size_t a = random() % mixed.size(), b = random() % mixed.size();
      if (random() % 2)
        std::swap(mixed[a], mixed[b]);
      else
        mixed[a] = mixed[b];
    }
    std::string whole;
    for (const std::string& line : mixed) whole += line;
    read_and_use(whole);
  }
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

// What the reports and a schedule say of a trace.
std::string all_of(TraceFile file) {
  std::string text =
      fmt::format("{} lines, {} calls, complete {}\n", file.lines, file.trace.calls.size(), file.trace.complete);
  for (const TraceCall& call : file.trace.calls)
    text += fmt::format("{} {} {}\n", call.seq, static_cast<int>(call.kind), call.size);
  file.digest = "0";
  const Analysis analysis = analyze(std::move(file), test::believing());
  return text + (analysis.step.period > 0 ? schedule_text(build_schedule(analysis)) : analysis.step.why_none);
}

TEST(GrowingTrace, SaysAtAnyTimeWhatTheTextSoFarSays) {
  std::string text = small().str(), so_far;
  text.erase(text.rfind(']'));
  // Two threads' calls may be written in another order than they came.
  const std::size_t set = text.rfind("\"cat\":\"set\""), first = text.rfind('\n', set) + 1,
                    second = text.find('\n', first) + 1, third = text.find('\n', second) + 1;
  text = text.substr(0, first) + text.substr(second, third - second) + text.substr(first, second - first) +
         text.substr(third);
  GrowingTrace growing("trace");
  EXPECT_THROW(growing.file(), InputError);
  std::size_t pieces = 0;
  for (std::size_t at = 0; at < text.size(); ++pieces) {
    std::size_t end = at;
    for (std::size_t lines = 0; lines < 1 + pieces % 3 && end < text.size(); ++lines) end = text.find('\n', end) + 1;
    const std::string piece = text.substr(at, end - at);
    growing.read_on(piece);
    so_far += piece;
    at = end;
    if (pieces == 0) continue;
    const TempFile file(so_far);
    TraceFile whole = read_trace(file.path());
    whole.path = "trace";
    EXPECT_EQ(all_of(growing.file()), all_of(std::move(whole))) << so_far;
  }
  EXPECT_GT(pieces, 10u);
  EXPECT_THROW(growing.read_on("nothing\n"), InputError);
}

}  // namespace
}  // namespace nimble::analyzer
