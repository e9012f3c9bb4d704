#include "shim/libraries/cublas_calls.h"

#include <atomic>
#include <new>
#include <string>

#include "shim/driver/call_receiver.h"
#include "shim/driver/dlsym_hook.h"
#include "shim/driver/guard.h"
#include "shim/process/roomy_stack.h"
#include "shim/rewrite/graph_sink.h"
#include "shim/rewrite/program_memory/library_memory.h"

namespace nimble::shim {

namespace {

// Where calls from one call site go on to.
struct Route {
  const void* caller = nullptr;
  void* function = nullptr;    // null if no library has it
  void* get_stream = nullptr;  // cublasGetStream of the same library; null if not needed
  Route* next = nullptr;       // constant
};

// Routes are never removed: there are as many as call sites. If two threads find the same one at once, it is there
// twice. If there is no memory to keep one, it is found again.
class Routes {
 public:
  explicit constexpr Routes(const char* name) : name_(name) {}

  Route from(const void* caller) noexcept {
    Route* const first = first_.load(std::memory_order_acquire);
    for (const Route* route = first; route; route = route->next)
      if (route->caller == caller) return *route;
    Route found{caller, with_room([&] { return find_beyond(caller, name_); }), nullptr, first};
    if (!found.function) return found;
    if (is_pytorch(caller)) found.get_stream = find_beyond(caller, "cublasGetStream_v2");
    if (auto* const route = new (std::nothrow) Route(found))
      while (!first_.compare_exchange_weak(route->next, route, std::memory_order_acq_rel)) continue;
    return found;
  }

 private:
  static bool is_pytorch(const void* caller) try {
    return file_at(caller) == "libtorch_cuda.so";
  } catch (...) {  // out of memory: unknown
    return false;
  }

  const char* const name_;
  std::atomic<Route*> first_{nullptr};
};

constinit Routes g_set_workspace{kCublasSetWorkspace}, g_matmul{kCublasLtMatmul};

// Null if no capture is under way whose memory could be ours.
GraphSink* sink_that_captures() {
  auto* const sink = dynamic_cast<GraphSink*>(started_sink());
  return sink && sink->captures() > 0 ? sink : nullptr;
}

void* workspace_for(GraphSink& sink, CUstream stream, void* workspace, std::size_t bytes, bool for_one) {
  const Guard guard;
  return with_room([&] {
    return reinterpret_cast<void*>(
        sink.workspaces().slot_for(stream, reinterpret_cast<std::uint64_t>(workspace), bytes, for_one));
  });
}

}  // namespace

}  // namespace nimble::shim

using nimble::shim::CublasLtMatmul;
using nimble::shim::CublasSetWorkspace;
using nimble::shim::CublasStatus;

// In the section of our exports, by which lookups by name tell them from cuBLAS's (shim/driver/dlsym_hook.cpp).
#define NIMBLE_EXPORT __attribute__((visibility("default"), section("nimble_exports"), noinline))

extern "C" {

CublasSetWorkspace cublasSetWorkspace_v2;
CublasLtMatmul cublasLtMatmul;

NIMBLE_EXPORT CublasStatus cublasSetWorkspace_v2(void* handle, void* workspace, std::size_t bytes) {
  const auto route = nimble::shim::g_set_workspace.from(__builtin_return_address(0));
  if (!route.function) return CublasStatus::not_supported;
  if (auto* const sink = route.get_stream ? nimble::shim::sink_that_captures() : nullptr) {
    CUstream stream = nullptr;
    const auto get_stream = reinterpret_cast<CublasStatus (*)(void*, CUstream*)>(route.get_stream);
    if (get_stream(handle, &stream) == CublasStatus::success)
      workspace = nimble::shim::workspace_for(*sink, stream, workspace, bytes, false);
  }
  return reinterpret_cast<CublasSetWorkspace*>(route.function)(handle, workspace, bytes);
}

NIMBLE_EXPORT CublasStatus cublasLtMatmul(void* handle, void* description, const void* alpha, const void* a,
                                          void* a_layout, const void* b, void* b_layout, const void* beta,
                                          const void* c, void* c_layout, void* d, void* d_layout, const void* algorithm,
                                          void* workspace, std::size_t bytes, CUstream stream) {
  const auto route = nimble::shim::g_matmul.from(__builtin_return_address(0));
  if (!route.function) return CublasStatus::not_supported;
  if (auto* const sink = nimble::shim::sink_that_captures())
    workspace = nimble::shim::workspace_for(*sink, stream, workspace, bytes, true);
  return reinterpret_cast<CublasLtMatmul*>(route.function)(handle, description, alpha, a, a_layout, b, b_layout, beta,
                                                           c, c_layout, d, d_layout, algorithm, workspace, bytes,
                                                           stream);
}

}  // extern "C"
