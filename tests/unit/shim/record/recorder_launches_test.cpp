// What the recorder writes of launches and of what copies carry: parameters, words that may be addresses, kernels and
// variables by name.
#include <gtest/gtest.h>

#include "nimble/internal/launch_params.h"
#include "shim/record/recorder.h"
#include "tests/unit/shim/record/recorder_support.h"

namespace nimble::shim {
namespace {

TEST_F(RecorderTest, FindsWordsThatPointNowhere) {
  FakeContext::known_memory = 0x7f5500000000;
  FakeContext::pointer_questions = 0;
  const auto launch = [&](std::uint64_t first, std::uint64_t second) {
    Call call = op(CallKind::launch);
    call.launch.function = reinterpret_cast<CUfunction>(1);
    call.launch.grid = call.launch.block = {1, 1, 1};
    std::uint32_t n = 7;
    void* params[] = {&first, &second, &n};
    call.launch.kernel_params = params;
    pass(call);
  };
  launch(0x7f5500000100, 0x9500000095);
  launch(0x7f5500000100, 0x9500000095);
  EXPECT_EQ(FakeContext::pointer_questions, 2) << "what is known is not asked again";
  // Memory elsewhere changes nothing.
  Call elsewhere = op(CallKind::alloc_async);
  elsewhere.memory.address = 0x7f5600000000;
  elsewhere.memory.size = 4096;
  pass(elsewhere);
  launch(0x7f5500000100, 0x9500000095);
  EXPECT_EQ(FakeContext::pointer_questions, 2);
  // Now there is memory at what was a number.
  FakeContext::known_memory = 0x9500000000;
  Call made = op(CallKind::alloc_async);
  made.memory.address = 0x9500000000;
  made.memory.size = 4096;
  pass(made);
  launch(1, 0x9500000095);
  launch(0x4000000040, 0x3f8000003f800000);
  FakeContext::known_memory = 0x4000000000;
  Call code;
  code.brings_code = true;
  pass(code);
  launch(0x4000000040, 0x3f8000003f800000);
  recorder_.finish();
  const auto all = calls();
  ASSERT_EQ(all.size(), 8u);
  for (const int i : {0, 1, 3}) EXPECT_EQ(all[i]["args"]["nowhere"], Json::parse("[8]")) << i;
  EXPECT_FALSE(all[5]["args"].contains("nowhere"));
  EXPECT_EQ(all[6]["args"]["nowhere"], Json::parse("[0]"));
  EXPECT_FALSE(all[7]["args"].contains("nowhere")) << "code that was loaded may bring memory";
}

TEST_F(RecorderTest, WritesALaunchWithItsPackedParameters) {
  Call call = op(CallKind::launch);
  call.launch.function = reinterpret_cast<CUfunction>(1);
  call.launch.grid = {4, 2, 1};
  call.launch.block = {64, 1, 1};
  std::uint64_t a = 0x1122334455667788, b = 2;
  std::uint32_t n = 7;
  void* params[] = {&a, &b, &n};
  call.launch.kernel_params = params;
  pass(call);
  recorder_.finish();
  const std::vector<Json> all = events();
  EXPECT_EQ(all.front()["name"], "nimble.trace");
  EXPECT_EQ(all.front()["args"]["version"], kTraceVersion);
  EXPECT_EQ(all.back()["name"], "nimble.end");
  const Json launch = calls().at(0);
  EXPECT_EQ(launch["cat"], "launch");
  EXPECT_EQ(launch["name"], "add");
  EXPECT_EQ(launch["args"]["grid"], Json({4, 2, 1}));
  EXPECT_EQ(launch["args"]["params"], "8877665544332211020000000000000007000000");
  const auto function =
      std::find_if(all.begin(), all.end(), [](const Json& e) { return e["name"] == "nimble.function"; });
  ASSERT_NE(function, all.end());
  EXPECT_EQ((*function)["args"]["params"], Json::parse("[[0,8],[8,8],[16,4]]"));
  EXPECT_EQ((*function)["args"]["name"], "_Z3addPKfPf");
}

TEST_F(RecorderTest, WritesWhatACopyCarriesThatMayBePointers) {
  Call alloc;
  alloc.symbol = "cuMemAlloc_v2";
  alloc.kind = CallKind::alloc;
  alloc.traced = true;
  alloc.memory.address = 0x10000;
  alloc.memory.size = 0x1000;
  pass(alloc);
  const std::uint64_t table[] = {7, 0x10010, 0x20000, 0x10fff, 0x11000};
  const auto copy = [&](std::uint64_t to, bool host, std::uint64_t rows = 1) {
    Call call = op(CallKind::copy);
    call.transfer.dst.address = to;
    call.transfer.src.address = reinterpret_cast<std::uint64_t>(table);
    call.transfer.width = sizeof table / rows;
    call.transfer.height = rows;
    call.transfer.host_source = host;
    return call;
  };
  pass(copy(0x10000, true));
  pass(copy(0x10004, true));  // what lies at no multiple of 8 is no pointer
  pass(copy(0x10000, false));
  pass(copy(0x10000, true, 5));
  pass(copy(0x10000, true), CUDA_ERROR_INVALID_VALUE);
  Call of_the_device = copy(0x10000, true);  // which the driver copies, too
  of_the_device.transfer.src.address = FakeContext::known_memory = 0x10100;
  pass(of_the_device);
  recorder_.finish();
  const std::vector<Json> all = calls();
  EXPECT_EQ(all.at(1)["args"]["words"], Json::parse("[[8,65552],[24,69631]]"));
  EXPECT_EQ(all.at(2)["args"]["words"], Json::array());
  for (int i = 3; i < 7; ++i) EXPECT_FALSE(all.at(i)["args"].contains("words")) << i;
}

TEST_F(RecorderTest, WritesTexturesAndVariables) {
  Call texture;
  texture.symbol = texture.note = "cuTexObjectCreate";
  texture.kind = CallKind::hidden;
  texture.traced = texture.texture = true;
  pass(texture);
  ImageInfo image;
  FunctionInfo touches;
  touches.name = "touches";
  touches.image = &image;
  touches.params.emplace();
  touches.proof.emplace().globals = {{"counter", 0x9000, 16, true, true}};
  context_.more[reinterpret_cast<CUfunction>(2)] = &touches;
  Call call = op(CallKind::launch);
  call.launch.function = reinterpret_cast<CUfunction>(2);
  call.launch.grid = call.launch.block = {1, 1, 1};
  pass(call);
  recorder_.finish();
  EXPECT_EQ(calls().at(0)["args"]["texture"], true);
  const std::vector<Json> all = events();
  const auto function =
      std::find_if(all.begin(), all.end(), [](const Json& e) { return e["name"] == "nimble.function"; });
  ASSERT_NE(function, all.end());
  EXPECT_EQ((*function)["args"]["globals"], Json::parse(R"([["counter",36864,16,"rw"]])"));
}

TEST_F(RecorderTest, WritesHowFarAKernelGets) {
  ImageInfo image;
  FunctionInfo far;
  far.name = "far";
  far.image = &image;
  far.params = {{0, 8}, {8, 8}};
  KernelProof& proof = far.proof.emplace();
  proof.accesses.push_back({{0}, true, true});
  proof.extents.expressions = {{ExpressionOp::param, 64, 8, 0, 0},
                               {ExpressionOp::constant, 64, 0, 0, INT64_MIN},
                               {ExpressionOp::either, 64, 0, 3, 5},
                               {ExpressionOp::add, 64, 2, 1, 0}};
  proof.extents.counters = {2};
  proof.extents.groups = {{{0}, true, true, {{3, 16}, {2, 4}}, true, {8}}, {{0, 8}, false, true, {}, false, {}}};
  context_.more[reinterpret_cast<CUfunction>(2)] = &far;
  Call call = op(CallKind::launch);
  call.launch.function = reinterpret_cast<CUfunction>(2);
  call.launch.grid = call.launch.block = {1, 1, 1};
  pass(call);
  recorder_.finish();
  const std::vector<Json> all = events();
  const auto function =
      std::find_if(all.begin(), all.end(), [](const Json& e) { return e["name"] == "nimble.function"; });
  ASSERT_NE(function, all.end());
  EXPECT_EQ((*function)["args"]["extents"], Json::parse(R"({
    "expressions": [["param",64,8,0,0], ["const",64,0,0,-9223372036854775808], ["either",64,0,3,5], ["+",64,2,1,0]],
    "counters": [2],
    "groups": [[[0],"rw",[[3,16],[2,4]],true,[8]], [[0,8],"w",[],false,[]]]})"));
}

TEST_F(RecorderTest, WritesWhatAKernelMayDo) {
  ImageInfo image;
  FunctionInfo kernel;
  kernel.name = "kernel";
  kernel.image = &image;
  kernel.params = {{0, 8}, {8, 8}};
  KernelProof& proof = kernel.proof.emplace();
  proof.accesses.push_back({{0}, true, false});
  proof.extents.expressions = {{ExpressionOp::constant, 32, 0, 0, 1}};
  proof.extents.doubts = {{0, "it may follow an address", true}, {0, "it reads a texture", false}};
  proof.extents.of_accesses = true;
  context_.more[reinterpret_cast<CUfunction>(2)] = &kernel;
  Call call = op(CallKind::launch);
  call.launch.function = reinterpret_cast<CUfunction>(2);
  call.launch.grid = call.launch.block = {1, 1, 1};
  pass(call);
  recorder_.finish();
  const std::vector<Json> all = events();
  const auto function =
      std::find_if(all.begin(), all.end(), [](const Json& e) { return e["name"] == "nimble.function"; });
  ASSERT_NE(function, all.end());
  const Json& args = (*function)["args"];
  EXPECT_FALSE(args.contains("proven")) << "whoever does not know of doubts has no proof";
  EXPECT_EQ(args["proven_by_launch"], Json::parse(R"([[[0],"r"]])"));
  EXPECT_EQ(args["extents"], Json::parse(R"({"expressions": [["const",32,0,0,1]], "counters": [], "groups": [],
    "doubts": [[0,"it may follow an address",true], [0,"it reads a texture",false]], "of_accesses": true})"));
}

TEST_F(RecorderTest, AKernelWithTwoHandlesIsOne) {
  ImageInfo image, other_image;
  FunctionInfo first;
  first.name = "touches";
  first.image = &image;
  FunctionInfo second = first, other_layout = first, elsewhere = first, unknown = first, unknown_too = first;
  second.is_kernel_handle = true;
  other_layout.params.emplace();
  elsewhere.image = &other_image;
  unknown.image = unknown_too.image = nullptr;  // two kernels may have that name
  std::uintptr_t handle = 2;
  for (const FunctionInfo* each : {&first, &second, &other_layout, &elsewhere, &unknown, &unknown_too}) {
    Call call = op(CallKind::launch);
    call.launch.function = reinterpret_cast<CUfunction>(handle++);
    call.launch.grid = call.launch.block = {1, 1, 1};
    context_.more[call.launch.function] = each;
    pass(call);
  }
  recorder_.finish();
  std::vector<int> ids;
  for (const Json& call : calls()) ids.push_back(call["args"]["fn"]);
  EXPECT_EQ(ids, (std::vector<int>{0, 0, 1, 2, 3, 4}));
}

TEST_F(RecorderTest, BothWaysOfPassingParametersGiveTheSameBytes) {
  std::uint64_t a = 5, b = 6;
  std::uint32_t n = 7;
  void* params[] = {&a, &b, &n};
  struct __attribute__((packed)) {
    std::uint64_t a = 5, b = 6;
    std::uint32_t n = 7;
  } buffer;
  std::size_t size = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  Call first = op(CallKind::launch);
  first.launch.function = reinterpret_cast<CUfunction>(1);
  first.launch.grid = first.launch.block = {1, 1, 1};
  Call second = first;
  first.launch.kernel_params = params;
  second.launch.extra = extra;
  pass(first);
  pass(second);
  recorder_.finish();
  EXPECT_EQ(calls().at(0)["args"]["params"], calls().at(1)["args"]["params"]);
}

}  // namespace
}  // namespace nimble::shim
