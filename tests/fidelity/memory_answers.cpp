// memory_answers IMAGE: what the driver answers about each kind of memory. One line for each kind and question: the
// result, and where that is 0 the value, as far as it is the same in each process. Run on a GPU, its output is what the
// simulated driver is held to (memory_answers.txt).
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

void must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "memory_answers: %s: error %d\n", what, result);
  std::exit(1);
}
#define MUST(call) must(call, #call)

CUcontext context;
CUdevice device;
CUmemoryPool by_default;
CUstream stream;

// Numbers that differ from process to process, by the order in which they came.
std::string ordinal(int attribute, unsigned long long number) {
  static std::map<int, std::vector<unsigned long long>> all;
  if (number == 0) return "0";
  std::vector<unsigned long long>& seen = all[attribute];
  for (std::size_t i = 0; i < seen.size(); ++i)
    if (seen[i] == number) return "#" + std::to_string(i);
  seen.push_back(number);
  return "#" + std::to_string(seen.size() - 1);
}

const char* const kAttributes[] = {"",
                                   "CONTEXT",
                                   "MEMORY_TYPE",
                                   "DEVICE_POINTER",
                                   "HOST_POINTER",
                                   "P2P_TOKENS",
                                   "SYNC_MEMOPS",
                                   "BUFFER_ID",
                                   "IS_MANAGED",
                                   "DEVICE_ORDINAL",
                                   "IS_LEGACY_CUDA_IPC_CAPABLE",
                                   "RANGE_START_ADDR",
                                   "RANGE_SIZE",
                                   "MAPPED",
                                   "ALLOWED_HANDLE_TYPES",
                                   "IS_GPU_DIRECT_RDMA_CAPABLE",
                                   "ACCESS_FLAGS",
                                   "MEMPOOL_HANDLE",
                                   "MAPPING_SIZE",
                                   "MAPPING_BASE_ADDR",
                                   "MEMORY_BLOCK_ID",
                                   "IS_HW_DECOMPRESS_CAPABLE"};

std::string value(int attribute, unsigned long long v, CUdeviceptr p) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return v == 0 ? "null" : reinterpret_cast<CUcontext>(v) == context ? "current" : "other";
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return v == p ? "the pointer" : v == 0 ? "null" : "other";
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return v == 0 ? "null" : std::to_string(static_cast<long long>(v - p));
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return v <= p ? "at or before" : "after";
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return v == 0 ? "0" : "some";
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return ordinal(attribute, v);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: {
      auto* const pool = reinterpret_cast<CUmemoryPool>(v);
      return !pool ? "null" : pool == by_default ? "default" : "other";
    }
    default:
      return std::to_string(v);
  }
}

void say(const char* kind, const std::string& question, int result, const std::string& answer = "") {
  std::printf("%-18s %-28s %3d %s\n", kind, question.c_str(), result, answer.c_str());
}

void ask(const char* kind, CUdeviceptr p) {
  for (int a = 1; a <= 21; ++a) {
    if (a == CU_POINTER_ATTRIBUTE_P2P_TOKENS) continue;
    unsigned long long v[2] = {0, 0};
    const CUresult r = cuPointerGetAttribute(v, static_cast<CUpointer_attribute>(a), p);
    say(kind, kAttributes[a], r, r == CUDA_SUCCESS ? value(a, v[0], p) : "");
  }
  CUpointer_attribute many[] = {CU_POINTER_ATTRIBUTE_HOST_POINTER,   CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                CU_POINTER_ATTRIBUTE_BUFFER_ID,      CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  unsigned long long got[6] = {9, 0, 9, 9, 0, 9};
  void* out[6] = {&got[0], &got[1], &got[2], &got[3], &got[4], &got[5]};
  CUresult r = cuPointerGetAttributes(6, many, out, p);
  std::string text;
  for (int i = 0; i < 6; ++i) text += value(many[i], got[i], p) + " ";
  text.pop_back();
  say(kind, "cuPointerGetAttributes", r, text);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  r = cuMemGetAddressRange(&base, &size, p);
  say(kind, "cuMemGetAddressRange", r,
      r == CUDA_SUCCESS ? std::to_string(static_cast<long long>(base - p)) + " " + std::to_string(size) : "");
  CUipcMemHandle ipc;
  say(kind, "cuIpcGetMemHandle", cuIpcGetMemHandle(&ipc, p));
  CUmemPoolPtrExportData exported;
  say(kind, "cuMemPoolExportPointer", cuMemPoolExportPointer(&exported, p));
  CUmemGenericAllocationHandle handle = 0;
  r = cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(p));
  say(kind, "cuMemRetainAllocationHandle", r);
  if (r == CUDA_SUCCESS) cuMemRelease(handle);
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  unsigned long long flags = 0;
  r = cuMemGetAccess(&flags, &here, p);
  say(kind, "cuMemGetAccess", r, r == CUDA_SUCCESS ? std::to_string(flags) : "");
  int mostly = 9;
  r = cuMemRangeGetAttribute(&mostly, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, 64);
  say(kind, "cuMemRangeGetAttribute", r, r == CUDA_SUCCESS ? std::to_string(mostly) : "");
  say(kind, "cuMemAdvise", cuMemAdvise_v2(p, 64, CU_MEM_ADVISE_SET_READ_MOSTLY, here));
  unsigned yes = 1, no = 0;
  unsigned now = 0;
  r = cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
  const CUresult r2 = cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
  say(kind, "cuPointerSetAttribute", r, std::to_string(r2) + " " + std::to_string(now));
  cuPointerSetAttribute(&no, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
}

void used(const char* when, CUmemoryPool pool) {
  cuuint64_t bytes = 0;
  const CUresult r = cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes);
  say(when, "USED_MEM_CURRENT", r, std::to_string(bytes));
}

// Calls for memory of other kinds, and whether the memory is still there after them.
void misname(const char* kind, CUdeviceptr p) {
  constexpr std::size_t kPiece = 2 << 20;  // what mappings are made of
  void* const as_host = reinterpret_cast<void*>(p);
  const CUmemAccessDesc none = {{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  const auto is_there = [&] {
    CUdeviceptr base = 0;
    std::size_t size = 0;
    return cuMemGetAddressRange(&base, &size, p) == CUDA_SUCCESS ? "there" : "gone";
  };
  CUresult r = cuIpcCloseMemHandle(p);
  say(kind, "cuIpcCloseMemHandle", r, is_there());
  r = cuMemFreeHost(as_host);
  say(kind, "cuMemFreeHost", r, is_there());
  r = cuMemHostUnregister(as_host);
  say(kind, "cuMemHostUnregister", r, is_there());
  r = cuMemUnmap(p, kPiece);
  say(kind, "cuMemUnmap", r, is_there());
  r = cuMemSetAccess(p, kPiece, &none, 1);
  say(kind, "cuMemSetAccess", r, is_there());
}

CUdeviceptr allocate(std::size_t bytes) {
  CUdeviceptr p = 0;
  MUST(cuMemAllocAsync(&p, bytes, stream));
  return p;
}

}  // namespace

int main() {
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  MUST(cuDeviceGetDefaultMemPool(&by_default, device));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  used("start", by_default);
  CUdeviceptr plain = 0;
  MUST(cuMemAlloc(&plain, 1000));
  ask("plain", plain);
  ask("plain inside", plain + 10);
  const CUdeviceptr a = allocate(1000), b = allocate(2000), big = allocate(5 << 20);
  used("three", by_default);
  ask("pool a", a);
  ask("pool b", b);
  ask("pool a inside", a + 10);
  ask("pool a past", a + 1000);
  ask("pool big", big);
  MUST(cuStreamSynchronize(stream));
  ask("pool a later", a);
  misname("pool big", big);
  say("pool a", "cuMemFreeAsync(inside)", cuMemFreeAsync(a + 10, stream));
  say("pool a", "cuMemFree(inside)", cuMemFree(a + 10));
  MUST(cuMemFreeAsync(a, stream));
  ask("freed a", a);
  misname("freed a", a);
  say("freed a", "cuMemFreeAsync", cuMemFreeAsync(a, stream));
  say("freed a", "cuMemFree", cuMemFree(a));
  used("a freed", by_default);
  const CUdeviceptr again = allocate(1000);
  say("again", "same address", again == a);
  ask("again", again);
  MUST(cuMemFreeAsync(again, stream));
  MUST(cuMemFreeAsync(big, stream));
  used("big freed", by_default);
  MUST(cuStreamSynchronize(stream));
  say("pool b", "cuMemFree", cuMemFree(b));
  say("freed b", "cuMemFree", cuMemFree(b));
  ask("freed big", big);
  misname("freed big", big);

  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  const CUdeviceptr c = allocate(1000), d = allocate(3 << 20);
  MUST(cuMemsetD32Async(c, 1, 250, stream));
  MUST(cuMemsetD32Async(d, 1, 250, stream));
  ask("captured c", c);
  ask("captured d", d);
  ask("captured c inside", c + 10);
  misname("captured d", d);
  MUST(cuMemFreeAsync(c, stream));
  ask("captured c freed", c);
  MUST(cuStreamEndCapture(stream, &graph));
  std::size_t nodes = 0, edges = 0;
  MUST(cuGraphGetNodes(graph, nullptr, &nodes));
  MUST(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  say("graph", "nodes", 0, std::to_string(nodes) + " " + std::to_string(edges));
  ask("graph d", d);
  say("graph d", "cuMemFree", cuMemFree(d));
  say("graph d", "cuMemFreeAsync", cuMemFreeAsync(d, stream));
  MUST(cuGraphInstantiate(&exec, graph, 0));
  MUST(cuGraphLaunch(exec, stream));
  ask("launched d", d);
  ask("launched c", c);
  MUST(cuStreamSynchronize(stream));
  ask("ran d", d);
  misname("ran d", d);
  say("ran d", "cuGraphLaunch", cuGraphLaunch(exec, stream));
  MUST(cuMemFreeAsync(d, stream));
  ask("freed d", d);
  say("freed d", "cuMemFreeAsync", cuMemFreeAsync(d, stream));
  MUST(cuStreamSynchronize(stream));
  MUST(cuGraphLaunch(exec, stream));
  say("relaunched d", "cuMemFree", cuMemFree(d));
  say("relaunched d", "cuMemFree", cuMemFree(d));
  MUST(cuGraphExecDestroy(exec));
  MUST(cuGraphDestroy(graph));
  ask("gone d", d);
  misname("gone d", d);
  misname("plain", plain);
}
