// Which field of a broken line the reader of traces names.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "analyzer/input/trace_reader.h"
#include "tests/unit/analyzer/input/trace_reader_support.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

using test::error_of;

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

}  // namespace
}  // namespace nimble::analyzer
