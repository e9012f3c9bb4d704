#include "shim/rewrite/program_memory/memory_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <vector>

namespace nimble::shim {
namespace {

// Allocations of 0x1000 bytes, at each multiple of 0x10000.
class FakeContext final : public CallContext {
 public:
  const FunctionInfo& function(CUfunction) override { return function_; }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::blocking; }
  void* driver_symbol(const char* name) override {
    return std::strcmp(name, "cuMemGetAddressRange_v2") == 0 ? reinterpret_cast<void*>(&range) : nullptr;
  }

 private:
  static CUresult CUDAAPI range(CUdeviceptr* base, std::size_t* size, CUdeviceptr address) {
    *base = address & ~CUdeviceptr{0xffff};
    *size = 0x1000;
    return *base != 0 && address - *base < *size ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  }
  FunctionInfo function_;
};

class MemoryWatchTest : public testing::Test {
 protected:
  const std::uint32_t* add(const std::vector<std::uint64_t>& addresses) { return watch_.add(addresses); }
  void ends(CallKind kind, std::uint64_t address, std::uint64_t size = 0, CUcontext context = nullptr) {
    Call call;
    call.kind = kind;
    call.memory.address = address;
    call.memory.size = size;
    call.context = context;
    watch_.ends(call);
  }
  FakeContext context_;
  MemoryWatch watch_{context_};
};

TEST_F(MemoryWatchTest, SaysWhatGoes) {
  ends(CallKind::free, 0x10000);  // nothing is watched yet
  const std::uint32_t* const one = add({0x10008, 0x20000, 0x20100});
  const std::uint32_t* const other = add({0x30000});
  ASSERT_TRUE(one && other && one != other);
  const auto gone = [&] { return std::vector<std::uint32_t>{*one, *other}; };
  using Gone = std::vector<std::uint32_t>;
  ends(CallKind::free, 0x40000);
  ends(CallKind::alloc, 0x10000);
  ends(CallKind::launch, 0x30000);
  EXPECT_EQ(gone(), (Gone{0, 0}));
  ends(CallKind::free_async, 0x30000);
  EXPECT_EQ(gone(), (Gone{0, 1}));
  ends(CallKind::free, 0x10000);
  EXPECT_EQ(gone(), (Gone{1, 1}));
}

TEST_F(MemoryWatchTest, APartThatIsUnmapped) {
  const std::uint32_t* const gone = add({0x10800});
  ends(CallKind::free, 0x10000 - 0x1000, 0x1000);
  ends(CallKind::free, 0x10400, 0x400);
  EXPECT_EQ(*gone, 0u);
  ends(CallKind::free, 0x10400, 0x401);
  EXPECT_EQ(*gone, 1u);
}

TEST_F(MemoryWatchTest, ContextsEnd) {
  const std::uint32_t* const gone = add({0x10000});
  ends(CallKind::context_end, 0, 0, reinterpret_cast<CUcontext>(0x77));
  EXPECT_EQ(*gone, 0u) << "another one";
  ends(CallKind::context_end, 0);
  EXPECT_EQ(*gone, 1u);
}

TEST_F(MemoryWatchTest, UnknownMemoryIsNotWatched) {
  EXPECT_EQ(add({0x10000, 0x11000}), nullptr);
  EXPECT_EQ(add({8}), nullptr);
  const std::uint32_t* const nothing = add({});
  ASSERT_TRUE(nothing);
  EXPECT_TRUE(watch_.remove(nothing));
  EXPECT_FALSE(watch_.remove(nothing));
  const std::uint32_t word = 0;
  EXPECT_FALSE(watch_.remove(&word));
}

}  // namespace
}  // namespace nimble::shim
