// What tests of Onlookers share: a program's streams and calls, and graphs that may be running.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "replayer/onlookers/onlookers.h"
#include "tests/unit/replayer/fake_driver.h"
#include "tests/unit/replayer/onlookers/truth.h"

namespace nimble::order {

// Kinds by the streams of truth.h; contexts are not asked for.
class Context final : public CallContext {
 public:
  Context() {
    function_.param_bytes = 8;
    function_.params = {{0, 8}};
    function_.self_contained = true;
  }
  const FunctionInfo& function(CUfunction) override {
    if (asked) std::exchange(asked, nullptr)();
    return function_;
  }
  StreamKind stream_kind(const StreamRef& stream) override {
    for (const Stream& each : {kA, kB, kC, kLegacy, kBlocking, kThreads})
      if (each.ref == stream) return each.kind;
    return StreamKind::non_blocking;
  }
  void* driver_symbol(const char* name) override {
    if (std::string_view(name) != "cuStreamIsCapturing") return nullptr;
    const decltype(&::cuStreamIsCapturing) ask = [](CUstream stream, CUstreamCaptureStatus* status) {
      *status = stream == capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
      return CUDA_SUCCESS;
    };
    return reinterpret_cast<void*>(ask);
  }
  static inline CUstream capturing = nullptr;
  std::function<void()> asked;  // once

 private:
  FunctionInfo function_;
};

class Graph final : public Onlookers::Work {
 public:
  explicit Graph(Gated gated = Gated::no, bool records = false) : RelaxedWork(0, records, gated) {}
  bool is_through() noexcept override {
    ++asked;
    if (ends_when_asked) ends_when_asked();
    return through;
  }
  bool through = true;
  int asked = 0;
  std::function<void()> ends_when_asked;
};

inline constexpr std::uint64_t kCell = 0x1000;
inline constexpr std::uint64_t cell(int number) { return 0x100000 + static_cast<std::uint64_t>(number) * kCell; }
inline MemoryRange range(int number, bool written) { return {cell(number), cell(number) + kCell, written}; }

inline Call copy(const Stream& on, int from, int to) {
  Call call;
  call.kind = CallKind::copy;
  call.host = HostEffect::async;
  call.traced = call.has_stream = true;
  call.stream = on.ref;
  call.transfer.dst.address = cell(to) + 8;
  call.transfer.src.address = cell(from);
  call.transfer.width = 16;
  return call;
}

inline Call of_event(CallKind kind, const Stream& on, CUevent what) {
  Call call;
  call.kind = kind;
  call.traced = call.has_stream = true;
  call.stream = on.ref;
  call.event = what;
  return call;
}

class OnlookersTest : public testing::Test {
 protected:
  OnlookersTest() {
    onlookers_.expect();
    const MemoryRange memory[] = {range(1, false), range(2, true)};
    onlookers_.uses(graph_, memory, false, false);
  }
  // Whether it has to wait.
  bool make(Call call, CUresult result = CUDA_SUCCESS) {
    if (onlookers_.passes_unseen(call)) {
      onlookers_.passed(call, result);
      return false;
    }
    Onlookers::Works met;
    const Onlookers::Passage passage = onlookers_.comes(call, met);
    onlookers_.went(call, result, passage);
    return !met.empty();
  }
  bool launch(const Stream& on = kA) {
    Onlookers::Works met;
    const auto launch = onlookers_.begins(graph_, on.ref, {}, met);
    if (launch) onlookers_.begun(graph_, *launch, true, true);
    return launch.has_value();
  }
  void record(const Stream& on, CUevent what) { make(of_event(CallKind::event_record, on, what)); }
  void wait(const Stream& on, CUevent what) { make(of_event(CallKind::event_wait, on, what)); }

  Context context_;
  Onlookers onlookers_{context_};
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
};

}  // namespace nimble::order
