// In place of cuBLAS: products of two kernels; the second needs what the first has left in the workspace.
#include "tests/integration/programs/graphs/products.h"

namespace {

struct Handle {
  ProductKernels kernels{};
  CUstream stream = nullptr;
  void* workspace = nullptr;
};

int product(const Handle& handle, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d, void* workspace, CUstream stream) {
  auto inside = reinterpret_cast<CUdeviceptr>(workspace);
  int count = 256;
  unsigned salt = 7;
  void* mixes[] = {&a, &b, &inside, &count, &salt};
  void* updates[] = {&d, &inside, &count};
  const CUresult result = cuLaunchKernel(handle.kernels.mix, 4, 1, 1, 64, 1, 1, 0, stream, mixes, nullptr);
  return result != CUDA_SUCCESS ? result
                                : cuLaunchKernel(handle.kernels.update, 4, 1, 1, 64, 1, 1, 0, stream, updates, nullptr);
}

}  // namespace

void* cublas_make(ProductKernels kernels) {
  static Handle only;
  only.kernels = kernels;
  return &only;
}

int cublas_product(void* handle, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d) {
  const auto& mine = *static_cast<Handle*>(handle);
  return mine.workspace ? product(mine, a, b, d, mine.workspace, mine.stream) : 13;
}

int cublasSetStream_v2(void* handle, CUstream stream) {
  auto& mine = *static_cast<Handle*>(handle);
  mine.stream = stream;
  mine.workspace = nullptr;  // as cuBLAS goes back to its own
  return 0;
}

int cublasGetStream_v2(void* handle, CUstream* stream) {
  *stream = static_cast<Handle*>(handle)->stream;
  return 0;
}

int cublasSetWorkspace_v2(void* handle, void* workspace, std::size_t) {
  static_cast<Handle*>(handle)->workspace = workspace;
  return 0;
}

int cublasLtMatmul(void* handle, void*, const void*, const void* a, void*, const void* b, void*, const void*,
                   const void*, void*, void* d, void*, const void*, void* workspace, std::size_t, CUstream stream) {
  const auto at = [](const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  return product(*static_cast<Handle*>(handle), at(a), at(b), at(d), workspace, stream);
}
