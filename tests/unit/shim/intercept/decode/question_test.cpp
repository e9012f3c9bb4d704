// What decoders make of questions about memory, and what the program gets for an answer.
#include "shim/intercept/decode/question.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/shim/intercept/decode/decode_support.h"

namespace nimble::shim::decode {
namespace {

CUresult no_driver(void*, CUpointer_attribute, CUdeviceptr pointer) {
  return pointer == kNoMemory ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

TEST(DecodeQuestion, WhatAnAllocationHasForItselfIsFilledIn) {
  CUdeviceptr base = 0;
  std::size_t size = 0;
  unsigned long long id = 7;
  unsigned synchronous = 1;
  Call call = decode<PointerAttribute>(static_cast<void*>(&id), CU_POINTER_ATTRIBUTE_BUFFER_ID, CUdeviceptr{100});
  EXPECT_EQ(call.asked.question, Question::memory);
  EXPECT_TRUE(call.asked.id);
  EXPECT_EQ(call.memory.address, 100u);
  call.memory.address = 96;
  call.memory.size = 64;
  const auto ask = [&](void* data, CUpointer_attribute attribute) {
    EXPECT_EQ(PointerAttribute::reply(call, CUDA_SUCCESS, no_driver, data, attribute, 100), CUDA_SUCCESS);
  };
  ask(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  ask(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
  ask(&synchronous, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
  ask(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID);
  EXPECT_EQ(size, 64u);
  EXPECT_EQ(base, 96u);
  EXPECT_EQ(synchronous, 0u);
  EXPECT_EQ(id, 7u) << "the driver's, where there is no other";
  call.asked.buffer_id = 9;
  ask(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID);
  EXPECT_EQ(id, 9u);
  EXPECT_EQ(PointerAttribute::reply(call, CUDA_ERROR_NOT_FOUND, no_driver, &id, CU_POINTER_ATTRIBUTE_BUFFER_ID, 100),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(PointerAttribute::reply(call, CUDA_ERROR_UNKNOWN, no_driver, &id, CU_POINTER_ATTRIBUTE_BUFFER_ID, 100),
            CUDA_ERROR_UNKNOWN);
}

TEST(DecodeQuestion, MemoryOfACaptureHasNoPool) {
  Call call;
  std::uint64_t handle = 5;
  fill_in(call, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, &handle);
  EXPECT_EQ(handle, 5u);
  call.asked.of_capture = true;
  fill_in(call, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, &handle);
  EXPECT_EQ(handle, 0u);
}

TEST(DecodeQuestion, ByItsTokensADeviceOfAnotherKindReachesMemory) {
  CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens = {5, 6};
  void* const data = &tokens;
  Call call = decode<PointerAttribute>(data, CU_POINTER_ATTRIBUTE_P2P_TOKENS, CUdeviceptr{100});
  EXPECT_TRUE(call.shown);
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_P2P_TOKENS};
  void* all[] = {nullptr, data};
  EXPECT_TRUE(decode<PointerAttribute>(2u, attributes, all, CUdeviceptr{100}).shown);
  EXPECT_FALSE(decode<PointerAttribute>(1u, attributes, all, CUdeviceptr{100}).shown);
  const auto reply = [&] {
    return PointerAttribute::reply(call, CUDA_SUCCESS, no_driver, data, CU_POINTER_ATTRIBUTE_P2P_TOKENS, 100);
  };
  EXPECT_EQ(reply(), CUDA_SUCCESS);
  EXPECT_EQ(tokens.vaSpaceToken, 6u);
  call.asked.of_capture = true;
  EXPECT_EQ(reply(), CUDA_ERROR_INVALID_VALUE) << "a graph's memory has none";
  const auto driver = [](unsigned, CUpointer_attribute*, void**, CUdeviceptr) { return CUDA_SUCCESS; };
  EXPECT_EQ(PointerAttribute::reply(call, CUDA_SUCCESS, driver, 2u, attributes, all, 100), CUDA_SUCCESS);
  EXPECT_EQ(tokens.p2pToken, 0u);
  EXPECT_EQ(tokens.vaSpaceToken, 0u);
}

TEST(DecodeQuestion, SeveralAttributesAtOnce) {
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::size_t size = 0;
  void* data[] = {nullptr, &size};
  Call call = decode<PointerAttribute>(2u, attributes, data, CUdeviceptr{100});
  EXPECT_EQ(call.asked.question, Question::memory);
  EXPECT_FALSE(call.asked.id);
  call.memory.size = 64;
  const auto driver = [](unsigned, CUpointer_attribute*, void**, CUdeviceptr) { return CUDA_SUCCESS; };
  EXPECT_EQ(PointerAttribute::reply(call, CUDA_SUCCESS, driver, 2u, attributes, data, 100), CUDA_SUCCESS);
  EXPECT_EQ(size, 64u);
}

TEST(DecodeQuestion, WhetherCopiesAreSynchronous) {
  const unsigned yes = 1, no = 0;
  Call call =
      decode<PointerSetting>(static_cast<const void*>(&yes), CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUdeviceptr{100});
  EXPECT_TRUE(call.asked.sets);
  EXPECT_EQ(call.transfer.value, 1u);
  EXPECT_TRUE(call.shown) << "a device of another kind may reach it";
  EXPECT_FALSE(
      decode<PointerSetting>(static_cast<const void*>(&no), CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUdeviceptr{100}).shown);
  EXPECT_EQ(decode<PointerSetting>(static_cast<const void*>(&yes), CU_POINTER_ATTRIBUTE_BUFFER_ID, CUdeviceptr{100})
                .asked.question,
            Question::none);
}

// A driver that knows the block in which the memory lies.
struct Block {
  static constexpr CUdeviceptr kBase = 64;
  static constexpr std::size_t kSize = 4096;

  CUresult operator()(CUdeviceptr* base, std::size_t* size, CUdeviceptr pointer) {
    asked = pointer;
    if (pointer == kNoMemory) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = kBase;
    if (size) *size = kSize;
    return result;
  }
  CUdeviceptr asked = 0;
  CUresult result = CUDA_SUCCESS;
};

class AddressRangeTest : public testing::Test {
 protected:
  AddressRangeTest() {
    call_ = decode<AddressRange>(&base_, &size_, CUdeviceptr{100});
    asked_ = call_.memory.address;
    call_.memory.address = 96;
    call_.memory.size = 32;
  }
  CUresult reply(CUresult known) {
    return AddressRange::reply(
        call_, known, [this](auto... args) { return driver_(args...); }, &base_, &size_, CUdeviceptr{100});
  }

  Call call_;
  std::uint64_t asked_ = 0;
  Block driver_;
  CUdeviceptr base_ = 1;
  std::size_t size_ = 1;
};

TEST_F(AddressRangeTest, IsTheAllocationsNotTheBlocks) {
  EXPECT_EQ(call_.asked.question, Question::memory);
  EXPECT_EQ(asked_, 100u);
  EXPECT_FALSE(call_.asked.id);
  EXPECT_EQ(reply(CUDA_SUCCESS), CUDA_SUCCESS);
  EXPECT_EQ(driver_.asked, 100u) << "it may refuse any caller";
  EXPECT_EQ(base_, 96u);
  EXPECT_EQ(size_, 32u);
}

TEST_F(AddressRangeTest, WhereThereIsNoneTheDriverSaysWhatItSaysOfSuch) {
  EXPECT_EQ(reply(CUDA_ERROR_NOT_FOUND), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(driver_.asked, kNoMemory) << "of the block, which is there, it would say yes";
  EXPECT_EQ(base_, 1u);
  EXPECT_EQ(size_, 1u);
}

TEST_F(AddressRangeTest, ErrorsAreWhoseTheyAre) {
  EXPECT_EQ(reply(CUDA_ERROR_LAUNCH_FAILED), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(driver_.asked, 0u) << "an earlier call has failed: this one does nothing";
  driver_.result = CUDA_ERROR_INVALID_CONTEXT;
  base_ = 1;
  EXPECT_EQ(reply(CUDA_SUCCESS), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_NE(base_, 96u);
}

TEST_F(AddressRangeTest, EitherMayBeLeftOut) {
  const auto driver = [this](auto... args) { return driver_(args...); };
  CUdeviceptr* const no_base = nullptr;
  std::size_t* const no_size = nullptr;
  EXPECT_EQ(AddressRange::reply(call_, CUDA_SUCCESS, driver, no_base, &size_, CUdeviceptr{100}), CUDA_SUCCESS);
  EXPECT_EQ(size_, 32u);
  EXPECT_EQ(AddressRange::reply(call_, CUDA_SUCCESS, driver, &base_, no_size, CUdeviceptr{100}), CUDA_SUCCESS);
  EXPECT_EQ(base_, 96u);
}

// cuMemGetAddressRange, whose addresses have 32 bits.
TEST(DecodeQuestion, AnAddressRangeOfOldHasItsOwnWidth) {
  struct {
    unsigned base = 1, past_it = 1, size = 1, after = 1;
  } out;
  Call call = decode<AddressRange>(&out.base, &out.size, 100u);
  EXPECT_EQ(call.memory.address, 100u);
  call.memory.address = 96;
  call.memory.size = 32;
  const auto driver = [](unsigned*, unsigned*, unsigned) { return CUDA_SUCCESS; };
  EXPECT_EQ(AddressRange::reply(call, CUDA_SUCCESS, driver, &out.base, &out.size, 100u), CUDA_SUCCESS);
  EXPECT_EQ(out.base, 96u);
  EXPECT_EQ(out.size, 32u);
  EXPECT_EQ(out.past_it, 1u);
  EXPECT_EQ(out.after, 1u);
}

TEST(DecodeQuestion, OfMemoryThatIsNotThereSeveralAttributesAreThoseOfNone) {
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  CUdeviceptr host = 1;
  std::size_t size = 1;
  void* data[] = {&host, &size};
  const Call call = decode<PointerAttribute>(2u, attributes, data, CUdeviceptr{100});
  const auto driver = [](unsigned, CUpointer_attribute*, void** out, CUdeviceptr pointer) {
    *static_cast<CUdeviceptr*>(out[0]) = pointer;
    *static_cast<std::size_t*>(out[1]) = 0;
    return pointer == kNoMemory ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
  };
  EXPECT_EQ(PointerAttribute::reply(call, CUDA_ERROR_NOT_FOUND, driver, 2u, attributes, data, 100), CUDA_SUCCESS);
  EXPECT_EQ(host, 100u) << "the address that was asked for";
  EXPECT_EQ(size, 0u);
}

TEST(DecodeQuestion, WhatCopiesAreToBeGoesToTheDriverWhereItHasTheMemory) {
  const unsigned yes = 1;
  const Call call =
      decode<PointerSetting>(static_cast<const void*>(&yes), CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUdeviceptr{100});
  CUdeviceptr asked = 0;
  unsigned value = 0;
  const auto driver = [&](const void* given, CUpointer_attribute, CUdeviceptr pointer) {
    std::memcpy(&value, given, sizeof value);
    asked = pointer;
    return pointer == kNoMemory ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  const auto reply = [&](CUresult known) {
    return PointerSetting::reply(call, known, driver, &yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 100);
  };
  EXPECT_EQ(reply(CUDA_ERROR_LAUNCH_FAILED), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(asked, 0u);
  EXPECT_EQ(reply(CUDA_SUCCESS), CUDA_SUCCESS);
  EXPECT_EQ(asked, 100u);
  EXPECT_EQ(value, 1u);
  EXPECT_EQ(reply(CUDA_ERROR_NOT_FOUND), CUDA_ERROR_INVALID_VALUE);
}

TEST(DecodeQuestion, HowADeviceReachesMemory) {
  unsigned long long flags = 1;
  CUmemLocation device{};
  device.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const Call call = decode<MemoryAccess>(&flags, static_cast<const CUmemLocation*>(&device), CUdeviceptr{100});
  EXPECT_EQ(call.asked.question, Question::memory);
  EXPECT_EQ(call.memory.address, 100u);
  CUdeviceptr asked = 0;
  const auto driver = [&](unsigned long long* out, const CUmemLocation*, CUdeviceptr pointer) {
    asked = pointer;
    if (pointer == kNoMemory) return CUDA_ERROR_INVALID_VALUE;
    *out = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
  };
  const auto reply = [&](CUresult known) { return MemoryAccess::reply(call, known, driver, &flags, &device, 100); };
  EXPECT_EQ(reply(CUDA_ERROR_LAUNCH_FAILED), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(asked, 0u);
  EXPECT_EQ(reply(CUDA_ERROR_NOT_FOUND), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(flags, 1u);
  EXPECT_EQ(reply(CUDA_SUCCESS), CUDA_SUCCESS);
  EXPECT_EQ(flags, static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

TEST(DecodeQuestion, WhoGetsAHandleSeesTheProgramsProgress) {
  CUipcMemHandle handle;
  for (const Call& call : {decode<MemoryHandle>(&handle, CUdeviceptr{100}),
                           decode<MemoryHandle>(static_cast<void*>(&handle), CUdeviceptr{100}, std::size_t{64},
                                                CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0ull)}) {
    EXPECT_EQ(call.asked.question, Question::handle);
    EXPECT_EQ(call.memory.address, 100u);
    EXPECT_EQ(call.kind, CallKind::hidden);
    EXPECT_TRUE(call.traced && call.shown);
    EXPECT_STREQ(call.note, "cuSomething");
  }
}

TEST(DecodeQuestion, OnlyAmountsOfAPoolAreAskedAbout) {
  const auto pool = reinterpret_cast<CUmemoryPool>(0x80);
  std::uint64_t value = 0;
  for (const auto amount : {CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
                            CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH}) {
    const Call call = decode<PoolAttribute>(pool, amount, static_cast<void*>(&value));
    EXPECT_EQ(call.asked.question, Question::pool) << amount;
    EXPECT_EQ(call.memory.address, 0x80u);
  }
  EXPECT_EQ(decode<PoolAttribute>(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, static_cast<void*>(&value)).asked.question,
            Question::none);
  EXPECT_EQ(decode<PoolAttribute>(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, static_cast<void*>(nullptr)).asked.question,
            Question::none)
      << "the driver will say so";
}

TEST(DecodeQuestion, APoolHasGivenOutWhatTheProgramHasOfIt) {
  const auto pool = reinterpret_cast<CUmemoryPool>(0x80);
  cuuint64_t value = 0;
  Call call;
  call.transfer.width = 4096;  // Nimble's, in which the program has
  call.memory.size = 100;
  CUresult result = CUDA_SUCCESS;
  const auto driver = [&](CUmemoryPool, CUmemPool_attribute, void* out) {
    *static_cast<cuuint64_t*>(out) = 10'000;
    return result;
  };
  const auto reply = [&](CUresult known, CUmemPool_attribute attribute) {
    value = 7;
    return PoolAttribute::reply(call, known, driver, pool, attribute, &value);
  };
  EXPECT_EQ(reply(CUDA_SUCCESS, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), CUDA_SUCCESS);
  EXPECT_EQ(value, 10'000u - 4096 + 100);
  EXPECT_EQ(reply(CUDA_SUCCESS, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), CUDA_SUCCESS);
  EXPECT_EQ(value, 10'000u) << "what it has reserved is so";
  EXPECT_EQ(reply(CUDA_ERROR_LAUNCH_FAILED, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(value, 7u);
  result = CUDA_ERROR_INVALID_VALUE;
  EXPECT_EQ(reply(CUDA_SUCCESS, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(value, 10'000u);
}

TEST(DecodeQuestion, WhichNodesAGraphHasButNotTheirNumber) {
  const auto graph = reinterpret_cast<CUgraph>(0x40);
  CUgraphNode nodes[2];
  CUgraphNode* const none = nullptr;
  std::size_t count = 2;
  const Call call = decode<GraphNodes>(graph, nodes, &count);
  EXPECT_EQ(call.asked.question, Question::graph_memory);
  EXPECT_EQ(call.graph.handle, graph);
  EXPECT_EQ(decode<GraphNodes>(graph, none, &count).asked.question, Question::none);
  EXPECT_EQ(decode<GraphNodes>(graph, nodes, static_cast<std::size_t*>(nullptr)).asked.question, Question::none);
}

TEST(DecodeQuestion, HowAGraphIsOrderedAndWhatMemoryGraphsHave) {
  const auto graph = reinterpret_cast<CUgraph>(0x40);
  CUgraphNode* const nodes = nullptr;
  std::size_t count = 0;
  const Call edges = decode<GraphEdges>(graph, nodes, nodes, &count);
  EXPECT_EQ(edges.asked.question, Question::graph_memory);
  EXPECT_EQ(edges.graph.handle, graph);
  std::uint64_t value = 0;
  const Call memory = decode<GraphMemory>(CUdevice{0}, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, static_cast<void*>(&value));
  EXPECT_EQ(memory.asked.question, Question::graph_memory);
  EXPECT_EQ(memory.graph.handle, nullptr);
}

TEST(DecodeQuestion, FreeMemoryIsAsMuchAsAnswered) {
  std::size_t free = 0, total = 0;
  Call call = decode<FreeMemory>(&free, &total);
  EXPECT_EQ(call.asked.question, Question::free_memory);
  EXPECT_EQ(decode<FreeMemory>(static_cast<std::size_t*>(nullptr), &total).asked.question, Question::none);
  call.memory.size = 7;
  const auto driver = [](std::size_t* left, std::size_t* all) { return *left = 5, *all = 9, CUDA_SUCCESS; };
  EXPECT_EQ(FreeMemory::reply(call, CUDA_SUCCESS, driver, &free, &total), CUDA_SUCCESS);
  EXPECT_EQ(free, 7u);
  EXPECT_EQ(total, 9u);
  const auto refuses = [](std::size_t*, std::size_t*) { return CUDA_ERROR_INVALID_CONTEXT; };
  free = 1;
  EXPECT_EQ(FreeMemory::reply(call, CUDA_SUCCESS, refuses, &free, &total), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(free, 1u);
}

TEST(DecodeQuestion, GraphsAreToGiveBackWhatNothingUses) {
  EXPECT_EQ(decode<GraphTrim>(CUdevice{0}).asked.question, Question::trim);
}

}  // namespace
}  // namespace nimble::shim::decode
