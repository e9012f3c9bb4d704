// What decoders make of arguments. No driver is loaded: what they would ask it stays unknown.
#include "shim/intercept/decode/all_decoders.h"

#include <gtest/gtest.h>

#include <cstring>

#include "shim/state/code/function_table.h"
#include "tests/unit/shim/intercept/decode/decode_support.h"

namespace nimble::shim::decode {
namespace {

// "16+8r 32+0w": what the op touches, or "?" where that is not known.
std::string listed(const Call& call) {
  std::vector<TraceAccess> list;
  if (!call.list_accesses || !call.list_accesses(call, list)) return "?";
  std::string text;
  for (const TraceAccess& access : list) {
    if (!text.empty()) text += ' ';
    text += std::to_string(access.address);
    text += '+';
    text += std::to_string(access.bytes);
    if (access.reads) text += 'r';
    if (access.writes) text += 'w';
  }
  return text;
}

template <class Copy>
Copy box() {
  Copy copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = 1000;
  copy.srcXInBytes = 4;
  copy.srcY = 2;
  copy.srcZ = 1;
  copy.srcPitch = 100;
  copy.srcHeight = 10;
  copy.dstDevice = 50000;
  copy.dstPitch = 16;
  copy.dstHeight = 4;
  copy.WidthInBytes = 8;
  copy.Height = 3;
  copy.Depth = 2;
  return copy;
}

TEST(DecodeCopy3D, LayersAreOneRangeOnEachSide) {
  const auto copy = box<CUDA_MEMCPY3D>();
  const Call call = decode<Copy3D>(&copy, kStream);
  EXPECT_EQ(call.kind, CallKind::opaque);
  EXPECT_EQ(call.stream.handle, kStream);
  // 1000 + one layer of 10 rows + two rows + 4; one layer and two rows further, and 8.
  EXPECT_EQ(listed(call), "2204+1208r 50000+104w");
}

TEST(DecodeCopy3D, OneLayerIsACopyOfRows) {
  auto copy = box<CUDA_MEMCPY3D>();
  copy.Depth = 1;
  const Call call = decode<Copy3D>(&copy, kStream);
  EXPECT_EQ(call.kind, CallKind::copy);
  EXPECT_EQ(call.transfer.src.address, 2204u);
  EXPECT_EQ(call.transfer.src.pitch, 100u);
  EXPECT_EQ(call.transfer.dst.address, 50000u);
  EXPECT_EQ(call.transfer.dst.pitch, 16u);
  EXPECT_EQ(call.transfer.width, 8u);
  EXPECT_EQ(call.transfer.height, 3u);
  EXPECT_TRUE(call.plain);
}

TEST(DecodeCopy3D, ThirtyTwoBitAddressesAndPeers) {
  const auto old = box<CUDA_MEMCPY3D_v1>();
  EXPECT_EQ(listed(decode<Copy3D>(&old, kStream)), "2204+1208r 50000+104w");
  auto peer = box<CUDA_MEMCPY3D_PEER>();
  peer.srcContext = reinterpret_cast<CUcontext>(8);
  peer.dstContext = reinterpret_cast<CUcontext>(16);
  EXPECT_EQ(listed(decode<Copy3D>(&peer, kStream)), "2204+1208r 50000+104w");
  peer.Depth = 1;
  EXPECT_FALSE(decode<Copy3D>(&peer, kStream).plain) << "no graph may hold it";
  peer.dstContext = peer.srcContext;
  EXPECT_TRUE(decode<Copy3D>(&peer, kStream).plain);
}

TEST(DecodeCopy3D, LengthsOfZeroMeanNoGaps) {
  auto copy = box<CUDA_MEMCPY3D>();
  copy.srcXInBytes = copy.srcY = copy.srcZ = copy.srcPitch = copy.srcHeight = 0;
  copy.dstPitch = copy.dstHeight = 0;
  EXPECT_EQ(listed(decode<Copy3D>(&copy, kStream)), "1000+48r 50000+48w");
}

TEST(DecodeCopy3D, AnArrayOrNothingIsOrderedWithEverything) {
  auto copy = box<CUDA_MEMCPY3D>();
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_EQ(listed(decode<Copy3D>(&copy, kStream)), "?");
  copy.Depth = 1;
  EXPECT_EQ(decode<Copy3D>(&copy, kStream).kind, CallKind::opaque);
  EXPECT_EQ(listed(decode<Copy3D>(static_cast<const CUDA_MEMCPY3D*>(nullptr), kStream)), "?");
}

TEST(DecodeCopyBatch, AllRangesWhereSourcesAreReadInStreamOrder) {
  CUdeviceptr dst[] = {100, 200}, src[] = {300, 400};
  std::size_t bytes[] = {8, 16}, first[] = {0, 1};
  CUmemcpyAttributes attributes[2]{};
  for (CUmemcpyAttributes& one : attributes) one.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  const auto now = [&] {
    return decode<CopyBatch>(dst, src, bytes, std::size_t{2}, attributes, first, std::size_t{2}, kStream);
  };
  EXPECT_EQ(listed(now()), "300+8r 100+8w 400+16r 200+16w");
  for (const auto order : {CU_MEMCPY_SRC_ACCESS_ORDER_ANY, CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL}) {
    attributes[1].srcAccessOrder = order;
    EXPECT_EQ(listed(now()), "?");
    EXPECT_EQ(now().kind, CallKind::opaque);
  }
}

TEST(DecodeCopyBatch, BoxesOfPointers) {
  CUDA_MEMCPY3D_BATCH_OP op{};
  op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  op.src.op.ptr = {1000, 20, 5, {}};
  op.dst.op.ptr = {5000, 0, 0, {}};
  op.extent = {8, 3, 2};
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  const auto now = [&] { return decode<CopyBatch3D>(std::size_t{1}, &op, 0ull, kStream); };
  EXPECT_EQ(listed(now()), "1000+148r 5000+48w");
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  EXPECT_EQ(listed(now()), "?");
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  op.dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  EXPECT_EQ(listed(now()), "?");
}

TEST(DecodeMemory, HintsAndBatchesAndDecompression) {
  CUmemLocation where{};
  EXPECT_EQ(listed(decode<Prefetch>(CUdeviceptr{64}, std::size_t{32}, where, 0u, kStream)), "64+32rw");
  EXPECT_EQ(listed(decode<Prefetch>(CUdeviceptr{64}, std::size_t{32}, CUdevice{0}, kStream)), "64+32rw");
  CUdeviceptr pointers[] = {64, 128};
  std::size_t sizes[] = {32, 0};
  EXPECT_EQ(listed(decode<RangeBatch>(pointers, sizes, std::size_t{2}, 0ull, kStream)), "64+32rw");
  EXPECT_EQ(listed(decode<Attach>(kStream, CUdeviceptr{64}, std::size_t{0}, 1u)), "64+0rw");
  CUmemDecompressParams one{};
  one.src = reinterpret_cast<const void*>(64);
  one.srcNumBytes = 16;
  one.dst = reinterpret_cast<void*>(256);
  one.dstNumBytes = 64;
  one.dstActBytes = reinterpret_cast<cuuint32_t*>(512);
  std::size_t wrong = 0;
  EXPECT_EQ(listed(decode<Decompress>(&one, std::size_t{1}, 0u, &wrong, kStream)), "64+16r 256+0rw 512+4w");
}

TEST(DecodeMemory, SeveralMappingsEndAtOnce) {
  const Call call = decode<Unmap>(CUdeviceptr{4096}, std::size_t{8192});
  EXPECT_EQ(call.memory.address, 4096u);
  EXPECT_EQ(call.memory.size, 8192u);
}

TEST(DecodeMemory, WhichReleaseEndsAnAllocation) {
  void* const host = nullptr;
  EXPECT_TRUE(releases_allocation(decode<Free>(CUdeviceptr{4096})));
  EXPECT_TRUE(releases_allocation(decode<FreeAsync>(CUdeviceptr{4096}, kStream)));
  EXPECT_FALSE(releases_allocation(decode<FreeHost>(host)));
  EXPECT_FALSE(releases_allocation(decode<Unmap>(CUdeviceptr{4096}, std::size_t{4096})));
  EXPECT_FALSE(releases_allocation(decode<CloseExternal>(CUdeviceptr{4096})));
}

TEST(DecodeMemory, AllocationsOfAPoolThatTheProgramPutInPlaceAreItsOwn) {
  CUdeviceptr out = 0;
  EXPECT_FALSE(decode<AllocAsync>(&out, std::size_t{64}, kStream).memory.own_pool);
  Call call;
  DefaultPool::after(call, CUdevice{0}, static_cast<CUmemoryPool>(nullptr));
  EXPECT_TRUE(decode<AllocAsync>(&out, std::size_t{64}, kStream).memory.own_pool);
}

TEST(DecodeMemory, WhoIsGrantedAccessMayLook) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {7}};
  const auto pool = [&](CUmemAccess_flags flags) {
    access.flags = flags;
    return decode<PoolAccess>(static_cast<CUmemoryPool>(nullptr), &access, std::size_t{1});
  };
  const Call granted = pool(CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(granted.kind, CallKind::hidden);
  EXPECT_TRUE(granted.traced && granted.shown);
  EXPECT_FALSE(pool(CU_MEM_ACCESS_FLAGS_PROT_NONE).traced);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EXPECT_TRUE(decode<MapAccess>(CUdeviceptr{4096}, std::size_t{4096}, &access, std::size_t{1}).shown);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  EXPECT_FALSE(decode<MapAccess>(CUdeviceptr{4096}, std::size_t{4096}, &access, std::size_t{1}).shown);
  EXPECT_TRUE(decode<Hidden>(CUcontext{nullptr}, 0u).shown);  // cuCtxEnablePeerAccess
}

TEST(DecodeMemory, WhatIsMappedIsAskedFor) {
  const CUmemAccessDesc* const none = nullptr;
  const Call call = decode<MapAccess>(CUdeviceptr{4096}, std::size_t{4096}, none, std::size_t{0});
  EXPECT_EQ(call.asked.question, Question::physical);
  EXPECT_EQ(call.memory.address, 4096u);
  EXPECT_FALSE(call.shown);
}

TEST(DecodeMemory, TheHostReachesPoolsThatAreNotADevices) {
  CUmemoryPool pool = nullptr;
  CUmemPoolProps props{};
  const auto creates = [&](CUmemAllocationType type, CUmemLocationType where) {
    props.allocType = type;
    props.location.type = where;
    return decode<Pool>(&pool, static_cast<const CUmemPoolProps*>(&props)).shown;
  };
  EXPECT_FALSE(creates(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE));
  EXPECT_TRUE(creates(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_HOST));
  EXPECT_TRUE(creates(CU_MEM_ALLOCATION_TYPE_MANAGED, CU_MEM_LOCATION_TYPE_DEVICE));
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_HOST, {0}};
  EXPECT_TRUE(decode<Pool>(&pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED).shown);
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  EXPECT_FALSE(decode<Pool>(&pool, &location, CU_MEM_ALLOCATION_TYPE_PINNED).shown);
}

TEST(DecodeMemory, WhatAnotherProcessHasIsShownToIt) {
  CUdeviceptr out = 0;
  const Call call = decode<External>(&out, CUipcMemHandle{}, 0u);
  EXPECT_EQ(call.memory.kind, MemoryKind::external);
  EXPECT_TRUE(call.shown);
}

TEST(DecodeCode, ATensorMapHidesAnAddressThatItDoesNotHold) {
  CUtensorMap map;
  std::memset(&map, 0, sizeof map);
  void* const address = reinterpret_cast<void*>(0x7f0000001000);
  Call call;
  TensorMap::after(call, &map, address);
  EXPECT_EQ(call.kind, CallKind::hidden);
  EXPECT_TRUE(call.traced);
  map.opaque[0] = 0x7f0000001000;
  Call plain;
  TensorMap::after(plain, &map, address);
  EXPECT_FALSE(plain.traced);
}

TEST(DecodeCode, HowFarATensorMapReaches) {
  const cuuint64_t dims[] = {64, 32, 4}, strides[] = {256, 16384};
  EXPECT_EQ(TensorMap::extent(CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, dims, strides), 64 * 2 + 31 * 256 + 3 * 16384);
  EXPECT_EQ(TensorMap::extent(CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, dims, strides), 64);
  EXPECT_EQ(TensorMap::extent(CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 1, dims, strides), 512);
  // Here is no driver that knows an allocation of that size.
  CUtensorMap map;
  std::memset(&map, 0, sizeof map);
  map.opaque[0] = 0x7f0000001000;
  Call call;
  TensorMap::after(call, &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3u, reinterpret_cast<void*>(0x7f0000001000), dims,
                   strides, CU_TENSOR_MAP_INTERLEAVE_NONE);
  EXPECT_EQ(call.kind, CallKind::hidden);
  EXPECT_STREQ(call.note, "tensor maps that reach beyond one allocation");
}

TEST(DecodeCode, TexturesAreHiddenMemoryOfTheirOwnKind) {
  const Call call = decode<Texture>(nullptr, nullptr);
  EXPECT_EQ(call.kind, CallKind::hidden);
  EXPECT_TRUE(call.texture);
  EXPECT_STREQ(call.note, "cuSomething");
  EXPECT_FALSE(decode<Hidden>(nullptr).texture);
}

// What it reads may be set again after each launch, so no launch may be held back.
TEST(DecodeCode, ATextureReferenceIsNoTextureThatMayStay) {
  const Call call = decode<TextureReference>(nullptr, nullptr, "name");
  EXPECT_EQ(call.kind, CallKind::hidden);
  EXPECT_FALSE(call.texture);
  EXPECT_FALSE(call.shown);
  EXPECT_STREQ(call.note, "cuSomething");
}

TEST(DecodeCode, AFileOfCodeMayBringMemoryAlong) {
  CUmodule module = reinterpret_cast<CUmodule>(8);
  Call call = decode<ModuleLoadFile>(&module, "/nowhere/code.cubin");
  EXPECT_FALSE(call.brings_code) << "not before it has come";
  ModuleLoadFile::after(call, &module, "/nowhere/code.cubin");
  EXPECT_TRUE(call.brings_code);
}

TEST(DecodeCopy, SaysWhoseMemoryTheSourceIs) {
  const void* const host = &kEntry;
  void* const to_host = nullptr;
  const CUdeviceptr device = 0x1000;
  EXPECT_TRUE(decode<Copy>(device, host, std::size_t{8}).transfer.host_source);
  EXPECT_FALSE(decode<Copy>(device, device, std::size_t{8}).transfer.host_source);
  EXPECT_TRUE(decode<Copy>(to_host, device, std::size_t{8}).transfer.device_source);
  EXPECT_FALSE(decode<Copy>(device, device, std::size_t{8}).transfer.device_source);
}

TEST(DecodeLaunch, AttributesThatRecordEvents) {
  const auto event = reinterpret_cast<CUevent>(0x50), other = reinterpret_cast<CUevent>(0x60);
  CUlaunchAttribute attributes[4]{};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attributes[1].value.launchCompletionEvent.event = event;
  attributes[2].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  attributes[2].value.programmaticEvent.event = other;
  attributes[3].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[3].value.cooperative = 1;
  CUlaunchConfig config{};
  config.attrs = attributes;
  config.hStream = kStream;
  const auto launched = [&](unsigned count) {
    config.numAttrs = count;
    return decode<LaunchKernelEx>(&config, static_cast<CUfunction>(nullptr), static_cast<void**>(nullptr),
                                  static_cast<void**>(nullptr));
  };
  EXPECT_TRUE(launched(1).plain) << "at its default";
  attributes[0].value.programmaticStreamSerializationAllowed = 1;
  EXPECT_TRUE(launched(1).plain) << "a permission";
  EXPECT_FALSE(launched(2).plain);
  EXPECT_EQ(launched(2).event, event);
  EXPECT_EQ(launched(2).event2, nullptr);
  EXPECT_EQ(launched(3).event2, other);
  EXPECT_FALSE(launched(3).launch.cooperative);
  EXPECT_TRUE(launched(4).launch.cooperative);
}

TEST(DecodeGraph, EditsSayWhatTheyChange) {
  const auto exec = reinterpret_cast<CUgraphExec>(0x40);
  const auto node = reinterpret_cast<CUgraphNode>(0x30);
  CUDA_KERNEL_NODE_PARAMS kernel{};
  CUDA_KERNEL_NODE_PARAMS_v1 old{};
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS set{};
  CUgraphNodeParams any{};
  const CUcontext context = nullptr;
  EXPECT_EQ(decode<GraphChange>(exec, node, static_cast<const CUDA_KERNEL_NODE_PARAMS*>(&kernel)).graph.edit,
            GraphEdit::set_kernel);
  EXPECT_EQ(decode<GraphChange>(exec, node, static_cast<const CUDA_KERNEL_NODE_PARAMS_v1*>(&old)).graph.edit,
            GraphEdit::set_other);
  EXPECT_EQ(decode<GraphChange>(exec, node, static_cast<const CUDA_MEMCPY3D*>(&copy), context).graph.edit,
            GraphEdit::set_copy);
  EXPECT_EQ(decode<GraphChange>(exec, node, static_cast<const CUDA_MEMSET_NODE_PARAMS*>(&set), context).graph.edit,
            GraphEdit::set_set);
  EXPECT_EQ(decode<GraphChange>(exec, node, &any).graph.edit, GraphEdit::set_other);
  EXPECT_EQ(decode<GraphChange>(exec, node, 0u).graph.edit, GraphEdit::none);
  EXPECT_EQ(decode<GraphChange>(exec).graph.edit, GraphEdit::destroy);
}

TEST(DecodeGraph, ANodeThatReleasesSaysWhatAndWhere) {
  const auto graph = reinterpret_cast<CUgraph>(0x40);
  const CUgraphNode* const nodes = nullptr;
  const CUgraphEdgeData edge{};
  CUgraphNode out = nullptr;
  CUgraphNodeParams release{}, other{};
  release.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  release.free.dptr = 77;
  const std::size_t two = 2;
  for (const Call& call : {decode<GraphFree>(&out, graph, nodes, two, CUdeviceptr{77}),
                           decode<GraphAlloc>(&out, graph, nodes, two, &release),
                           decode<GraphAlloc>(&out, graph, nodes, &edge, two, &release)}) {
    EXPECT_EQ(call.graph.edit, GraphEdit::add_release);
    EXPECT_EQ(call.graph.handle, graph);
    EXPECT_EQ(call.memory.address, 77u);
    EXPECT_EQ(call.arguments[0], &out);
    EXPECT_EQ(call.arguments[3], reinterpret_cast<const void*>(two));
  }
  EXPECT_EQ(decode<GraphAlloc>(&out, graph, nodes, two, &other).graph.edit, GraphEdit::none);
}

TEST(DecodeGraph, ANodeThatAllocatesForOthersIsShown) {
  const auto graph = reinterpret_cast<CUgraph>(0x40);
  const CUgraphNode* const nodes = nullptr;
  const CUgraphEdgeData* const edges = nullptr;
  CUgraphNode out = nullptr;
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUgraphNodeParams node{};
  node.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  node.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  node.alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  node.alloc.accessDescs = &access;
  node.alloc.accessDescCount = 1;
  const auto is_shown = [&](bool expected) {
    const std::size_t none = 0;
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps = node.alloc.poolProps;
    params.accessDescs = &access;
    params.accessDescCount = 1;
    for (Call call :
         {decode<GraphAlloc>(&out, graph, nodes, none, &params), decode<GraphAlloc>(&out, graph, nodes, none, &node),
          decode<GraphAlloc>(&out, graph, nodes, edges, none, &node)}) {
      EXPECT_EQ(call.shown, expected);
      GraphAlloc::after(call, &out, graph, nodes, none, &node);
      EXPECT_EQ(call.memory.kind, expected ? MemoryKind::external : MemoryKind::mapped);
    }
  };
  is_shown(false);
  access.location.id = 1;
  is_shown(true);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  is_shown(false);
}

TEST(DecodeCapture, OnlyWhatReplacesTheOrderUndoesIt) {
  CUgraphNode* const nodes = nullptr;
  const CUgraphEdgeData* const edges = nullptr;
  const std::size_t none = 0;
  const unsigned set = CU_STREAM_SET_CAPTURE_DEPENDENCIES, add = CU_STREAM_ADD_CAPTURE_DEPENDENCIES;
  EXPECT_TRUE(decode<CaptureOrder>(kStream, nodes, none, set).unordered);
  EXPECT_TRUE(decode<CaptureOrder>(kStream, nodes, edges, none, set).unordered);
  EXPECT_FALSE(decode<CaptureOrder>(kStream, nodes, edges, none, add).unordered);
  EXPECT_EQ(decode<CaptureOrder>(kStream, nodes, none, set).stream.handle, kStream);
}

TEST(DecodeContext, OneThatLosesAUserMayBeThereYet) {
  const auto context = reinterpret_cast<CUcontext>(0x70);
  const void* const module = &kEntry;
  functions().loaded(module, {}, context);
  Call call = decode<ContextDetach>(context);
  EXPECT_EQ(call.kind, CallKind::context_end) << "taken for its end";
  EXPECT_TRUE(call.traced);
  EXPECT_EQ(call.context, context);
  ContextDetach::after(call, context);
  EXPECT_NE(functions().unloading(module), nullptr) << "its modules are still known";
  functions().loaded(module, {}, context);
  call = decode<ContextEnd>(context);
  EXPECT_EQ(call.kind, CallKind::context_end);
  ContextEnd::after(call, context);
  EXPECT_EQ(functions().unloading(module), nullptr);
}

TEST(DecodeContext, WhereThereIsNoneNoneEnds) {
  const CUcontext none = nullptr;
  Call call = decode<ContextDetach>(none);
  ContextDetach::after(call, none);
  EXPECT_FALSE(call.traced);
  EXPECT_FALSE(decode<ContextEnd>(none).traced);
}

TEST(DecodeHidden, ATextureIsTheProgramsOwnMatter) {
  EXPECT_TRUE(decode<Hidden>(1).shown);
  EXPECT_FALSE(decode<Texture>(1).shown);
}

}  // namespace
}  // namespace nimble::shim::decode
