// StepSaver with a driver whose memory is the test's own: what it does with calls that are wrong, and with failures
// of its own.
#include "shim/record/observers/bundle/step_saver.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <new>
#include <string>
#include <thread>

namespace nimble::shim {
namespace {

class Driver final : public CallContext {
 public:
  Driver() {
    kernel.params = {{0, 8}};
    kernel.param_bytes = 8;
    kernel.image = &image;
    asked.clear();
    when_asked = nullptr;
  }
  const FunctionInfo& function(CUfunction) override { return kernel; }
  StreamKind stream_kind(const StreamRef&) override { return StreamKind::non_blocking; }
  void* driver_symbol(const char* name) override {
    static const std::map<std::string, void*> all{
        {"cuEventCreate", reinterpret_cast<void*>(+[](CUevent* event, unsigned) {
           *event = reinterpret_cast<CUevent>(1);
           return answer("create");
         })},
        {"cuEventRecord", reinterpret_cast<void*>(+[](CUevent, CUstream) { return answer("record"); })},
        {"cuEventQuery", reinterpret_cast<void*>(+[](CUevent) { return answer("query"); })},
        {"cuEventDestroy_v2", reinterpret_cast<void*>(+[](CUevent) { return answer("destroy"); })},
        {"cuMemcpyDtoHAsync_v2", reinterpret_cast<void*>(+[](void* to, CUdeviceptr from, std::size_t bytes, CUstream) {
           std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
           return answer("copy");
         })},
        {"cuStreamIsCapturing", reinterpret_cast<void*>(+[](CUstream, CUstreamCaptureStatus* status) {
           *status = CU_STREAM_CAPTURE_STATUS_NONE;
           return answer("is_capturing");
         })},
        {"cuPointerGetAttribute", reinterpret_cast<void*>(+[](void*, CUpointer_attribute, CUdeviceptr) {
           return CUDA_ERROR_INVALID_VALUE;  // as of memory that is the host's alone
         })},
    };
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second;
  }

  static CUresult answer(const std::string& what) {
    ++asked[what];
    if (when_asked) when_asked(what);
    return CUDA_SUCCESS;
  }

  FunctionInfo kernel;
  ImageInfo image;
  static inline std::map<std::string, int> asked;
  static inline std::function<void(const std::string&)> when_asked;
};

class CaptureTest : public testing::Test {
 protected:
  CaptureTest() {
    Call call;
    call.kind = CallKind::alloc;
    call.traced = true;
    call.memory.address = reinterpret_cast<std::uint64_t>(memory_.data());
    call.memory.size = memory_.size();
    call.memory.kind = MemoryKind::device;
    pass(call);
  }
  static Call op(CallKind kind) {
    Call call;
    call.kind = kind;
    call.traced = call.has_stream = true;
    return call;
  }
  void pass(const Call& call, CUresult result = CUDA_SUCCESS) {
    capture_.before(call, false);
    capture_.after(call, result, seq_++);
  }
  void launch() {
    std::uint64_t word = reinterpret_cast<std::uint64_t>(memory_.data());
    void* parameters[] = {&word};
    Call call = op(CallKind::launch);
    call.launch.kernel_params = parameters;
    pass(call);
  }
  // From the host to the device's memory.
  void copy(const void* from, std::uint64_t bytes, CUresult result = CUDA_SUCCESS, std::uint64_t rows = 1,
            std::uint64_t pitch = 0) {
    Call call = op(CallKind::copy);
    call.transfer.host_source = true;
    call.transfer.src = {reinterpret_cast<std::uint64_t>(from), pitch};
    call.transfer.dst = {reinterpret_cast<std::uint64_t>(memory_.data()), pitch};
    call.transfer.width = bytes;
    call.transfer.height = rows;
    pass(call, result);
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      launch();
      copy(host_.data(), host_.size());
    }
  }
  // Whether another step is looked at: what went wrong with one has not ended it all.
  bool goes_on() {
    const int copies = Driver::asked["copy"];
    steps(8);
    return Driver::asked["copy"] > copies;
  }

  Driver driver_;
  std::vector<std::uint8_t> memory_ = std::vector<std::uint8_t>(4096), host_ = std::vector<std::uint8_t>(64);
  StepSaver capture_{{"/nowhere/bundle", 1 << 20}, driver_};
  std::uint64_t seq_ = 0;
};

// The driver would have said no.
TEST_F(CaptureTest, ACopyBeyondItsMemoryIsNotRead) {
  steps(3);
  launch();
  ASSERT_GT(Driver::asked["copy"], 0);  // a step is being saved
  copy(host_.data(), std::uint64_t{1} << 40, CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(goes_on());
}

TEST_F(CaptureTest, RowsThatReachAroundAllMemoryAreNotRead) {
  steps(3);
  launch();
  ASSERT_GT(Driver::asked["copy"], 0);
  copy(host_.data(), 64, CUDA_ERROR_INVALID_VALUE, (std::uint64_t{1} << 32) + 1, std::uint64_t{1} << 32);
  EXPECT_TRUE(goes_on());
}

TEST_F(CaptureTest, ACopyFromNowhereIsNoCrash) {
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const pages = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(::munmap(static_cast<std::uint8_t*>(pages) + page, page), 0);
  steps(3);
  launch();
  ASSERT_GT(Driver::asked["copy"], 0);
  copy(static_cast<std::uint8_t*>(pages) + page - 32, 64, CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(goes_on());
  ::munmap(pages, page);
}

// A call of another thread that has waited for the lock meanwhile finds it all over.
TEST_F(CaptureTest, WaitersSeeAFailure) {
  steps(3);
  ASSERT_EQ(Driver::asked["create"], 0);
  std::promise<void> inside, other_waits;
  Driver::when_asked = [&](const std::string& what) {
    if (what != "create" || Driver::asked["create"] != 1) return;
    inside.set_value();
    other_waits.get_future().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    throw std::bad_alloc();
  };
  std::thread one([&] { capture_.before(op(CallKind::launch), false); });
  inside.get_future().wait();
  std::thread other([&] {
    other_waits.set_value();
    capture_.before(op(CallKind::launch), false);
  });
  one.join();
  other.join();
  EXPECT_EQ(Driver::asked["create"], 1);
  Driver::when_asked = nullptr;
  EXPECT_FALSE(goes_on());
}

}  // namespace
}  // namespace nimble::shim
