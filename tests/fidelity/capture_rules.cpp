// capture_rules IMAGE: what a call does to a capture that goes on. One line for each capture mode (`blocking`: global,
// by a blocking stream), thread and call: what the call returned, and what became of the capture. Run on a GPU, its
// output is what the simulated driver is held to (capture_rules.txt).
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "capture_rules: %s: error %d\n", what, result);
  std::exit(1);
}
#define MUST(call) must(call, #call)

struct World {
  CUcontext context{};
  CUmodule module{};
  CUfunction function{};
  CUstream capturing{}, other{}, blocking{};
  CUevent before{}, captured{}, fresh{};
  CUdeviceptr memory{};
  void* host{};
};

struct Action {
  const char* name;
  std::function<CUresult(World&)> call;
};

std::string image;

const std::vector<Action>& actions() {
  static const std::vector<Action> all = {
      {"cuStreamGetFlags(capturing)",
       [](World& w) {
         unsigned f;
         return cuStreamGetFlags(w.capturing, &f);
       }},
      {"cuStreamGetFlags(other)",
       [](World& w) {
         unsigned f;
         return cuStreamGetFlags(w.other, &f);
       }},
      {"cuStreamGetFlags(legacy)",
       [](World&) {
         unsigned f;
         return cuStreamGetFlags(CU_STREAM_LEGACY, &f);
       }},
      {"cuStreamGetPriority(capturing)",
       [](World& w) {
         int p;
         return cuStreamGetPriority(w.capturing, &p);
       }},
      {"cuStreamGetCtx(capturing)",
       [](World& w) {
         CUcontext c;
         return cuStreamGetCtx(w.capturing, &c);
       }},
      {"cuStreamGetCtx(other)",
       [](World& w) {
         CUcontext c;
         return cuStreamGetCtx(w.other, &c);
       }},
      {"cuStreamGetId(capturing)",
       [](World& w) {
         unsigned long long i;
         return cuStreamGetId(w.capturing, &i);
       }},
      {"cuStreamIsCapturing(capturing)",
       [](World& w) {
         CUstreamCaptureStatus s;
         return cuStreamIsCapturing(w.capturing, &s);
       }},
      {"cuStreamIsCapturing(other)",
       [](World& w) {
         CUstreamCaptureStatus s;
         return cuStreamIsCapturing(w.other, &s);
       }},
      {"cuStreamIsCapturing(legacy)",
       [](World&) {
         CUstreamCaptureStatus s;
         return cuStreamIsCapturing(CU_STREAM_LEGACY, &s);
       }},
      {"cuStreamQuery(capturing)", [](World& w) { return cuStreamQuery(w.capturing); }},
      {"cuStreamQuery(other)", [](World& w) { return cuStreamQuery(w.other); }},
      {"cuStreamSynchronize(capturing)", [](World& w) { return cuStreamSynchronize(w.capturing); }},
      {"cuStreamSynchronize(other)", [](World& w) { return cuStreamSynchronize(w.other); }},
      {"cuStreamCreate",
       [](World&) {
         CUstream s;
         return cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
       }},
      {"cuEventCreate",
       [](World&) {
         CUevent e;
         return cuEventCreate(&e, CU_EVENT_DEFAULT);
       }},
      {"cuEventRecord(other stream)", [](World& w) { return cuEventRecord(w.fresh, w.other); }},
      {"cuEventRecord(blocking stream)", [](World& w) { return cuEventRecord(w.fresh, w.blocking); }},
      {"cuEventRecord(legacy)", [](World& w) { return cuEventRecord(w.fresh, CU_STREAM_LEGACY); }},
      {"cuEventRecord(capturing)", [](World& w) { return cuEventRecord(w.fresh, w.capturing); }},
      {"cuEventQuery(recorded before)", [](World& w) { return cuEventQuery(w.before); }},
      {"cuEventQuery(captured)", [](World& w) { return cuEventQuery(w.captured); }},
      {"cuEventSynchronize(recorded before)", [](World& w) { return cuEventSynchronize(w.before); }},
      {"cuStreamWaitEvent(other, captured)", [](World& w) { return cuStreamWaitEvent(w.other, w.captured, 0); }},
      {"cuStreamWaitEvent(capturing, recorded before)",
       [](World& w) { return cuStreamWaitEvent(w.capturing, w.before, 0); }},
      {"cuCtxGetCurrent",
       [](World&) {
         CUcontext c;
         return cuCtxGetCurrent(&c);
       }},
      {"cuCtxSynchronize", [](World&) { return cuCtxSynchronize(); }},
      {"cuFuncGetAttribute",
       [](World& w) {
         int v;
         return cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_NUM_REGS, w.function);
       }},
      {"cuFuncGetName",
       [](World& w) {
         const char* n;
         return cuFuncGetName(&n, w.function);
       }},
      {"cuFuncGetParamInfo",
       [](World& w) {
         std::size_t o, s;
         return cuFuncGetParamInfo(w.function, 0, &o, &s);
       }},
      {"cuFuncGetModule",
       [](World& w) {
         CUmodule m;
         return cuFuncGetModule(&m, w.function);
       }},
      {"cuModuleGetFunctionCount",
       [](World& w) {
         unsigned n;
         return cuModuleGetFunctionCount(&n, w.module);
       }},
      {"cuModuleLoad",
       [](World&) {
         CUmodule m;
         return cuModuleLoad(&m, image.c_str());
       }},
      {"cuMemAlloc",
       [](World&) {
         CUdeviceptr p;
         return cuMemAlloc(&p, 256);
       }},
      {"cuMemAllocHost",
       [](World&) {
         void* p;
         return cuMemAllocHost(&p, 256);
       }},
      {"cuMemAllocAsync(other)",
       [](World& w) {
         CUdeviceptr p;
         return cuMemAllocAsync(&p, 256, w.other);
       }},
      {"cuMemAllocAsync(capturing)",
       [](World& w) {
         CUdeviceptr p;
         return cuMemAllocAsync(&p, 256, w.capturing);
       }},
      {"cuMemGetInfo",
       [](World&) {
         std::size_t f, t;
         return cuMemGetInfo(&f, &t);
       }},
      {"cuMemGetAddressRange",
       [](World& w) {
         CUdeviceptr b;
         std::size_t s;
         return cuMemGetAddressRange(&b, &s, w.memory);
       }},
      {"cuPointerGetAttribute",
       [](World& w) {
         CUcontext c;
         return cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, w.memory);
       }},
      {"cuMemsetD32Async(other)", [](World& w) { return cuMemsetD32Async(w.memory, 1, 4, w.other); }},
      {"cuMemsetD32Async(blocking)", [](World& w) { return cuMemsetD32Async(w.memory, 1, 4, w.blocking); }},
      {"cuMemsetD32Async(legacy)", [](World& w) { return cuMemsetD32Async(w.memory, 1, 4, CU_STREAM_LEGACY); }},
      {"cuMemsetD32Async(capturing)", [](World& w) { return cuMemsetD32Async(w.memory, 1, 4, w.capturing); }},
      {"cuMemsetD32", [](World& w) { return cuMemsetD32(w.memory, 1, 4); }},
      {"cuMemcpyHtoD", [](World& w) { return cuMemcpyHtoD(w.memory, w.host, 16); }},
      {"cuMemcpyHtoDAsync(capturing)", [](World& w) { return cuMemcpyHtoDAsync(w.memory, w.host, 16, w.capturing); }},
      {"cuThreadExchangeStreamCaptureMode",
       [](World&) {
         CUstreamCaptureMode m = CU_STREAM_CAPTURE_MODE_RELAXED;
         return cuThreadExchangeStreamCaptureMode(&m);
       }},
      {"cuDeviceGetName",
       [](World&) {
         char n[64];
         return cuDeviceGetName(n, 64, 0);
       }},
      {"cuGraphCreate",
       [](World&) {
         CUgraph g;
         return cuGraphCreate(&g, 0);
       }},
  };
  return all;
}

const char* status_name(CUresult result, CUstreamCaptureStatus status) {
  if (result != CUDA_SUCCESS) return "unknown";
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE        ? "active"
         : status == CU_STREAM_CAPTURE_STATUS_INVALIDATED ? "invalidated"
                                                          : "none";
}

void probe(World& w, const Action& action, CUstreamCaptureMode mode, const char* mode_name, bool other_thread) {
  const bool blocking = std::string(mode_name) == "blocking";
  MUST(cuStreamCreate(&w.capturing, blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&w.other, CU_STREAM_NON_BLOCKING));
  MUST(cuStreamCreate(&w.blocking, CU_STREAM_DEFAULT));
  for (CUevent* event : {&w.before, &w.captured, &w.fresh}) MUST(cuEventCreate(event, CU_EVENT_DISABLE_TIMING));
  MUST(cuEventRecord(w.before, w.other));
  MUST(cuStreamSynchronize(w.other));
  MUST(cuStreamBeginCapture(w.capturing, mode));
  MUST(cuMemsetD32Async(w.memory, 1, 4, w.capturing));
  MUST(cuEventRecord(w.captured, w.capturing));
  CUresult result = CUDA_SUCCESS;
  const auto act = [&] {
    MUST(cuCtxSetCurrent(w.context));
    CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_GLOBAL;
    result = action.call(w);
    cuThreadExchangeStreamCaptureMode(&own);
  };
  if (other_thread) {
    std::thread(act).join();
  } else {
    act();
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = cuStreamIsCapturing(w.capturing, &status);
  const std::string became = status_name(asked, status);
  CUgraph graph = nullptr;
  const CUresult ended = cuStreamEndCapture(w.capturing, &graph);
  std::printf("%-8s %-5s %-46s %4d  %-11s end %d\n", mode_name, other_thread ? "other" : "same", action.name, result,
              became.c_str(), ended);
  if (graph) cuGraphDestroy(graph);
  for (CUevent event : {w.before, w.captured, w.fresh}) cuEventDestroy(event);
  for (CUstream stream : {w.capturing, w.other, w.blocking}) cuStreamDestroy(stream);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: capture_rules IMAGE\n");
    return 2;
  }
  image = argv[1];
  World w;
  CUdevice device;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(&w.context, device));
  MUST(cuCtxSetCurrent(w.context));
  MUST(cuModuleLoad(&w.module, image.c_str()));
  MUST(cuModuleEnumerateFunctions(&w.function, 1, w.module));
  MUST(cuMemAlloc(&w.memory, 4096));
  MUST(cuMemAllocHost(&w.host, 4096));
  const struct {
    CUstreamCaptureMode mode;
    const char* name;
  } modes[] = {{CU_STREAM_CAPTURE_MODE_GLOBAL, "global"},
               {CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "thread"},
               {CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed"},
               {CU_STREAM_CAPTURE_MODE_GLOBAL, "blocking"}};
  for (const auto& mode : modes) {
    for (const bool other_thread : {false, true}) {
      for (const Action& action : actions()) probe(w, action, mode.mode, mode.name, other_thread);
    }
  }
  return 0;
}
