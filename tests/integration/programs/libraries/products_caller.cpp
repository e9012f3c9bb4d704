// Calls cuBLAS as PyTorch does: one workspace for a stream, given anew before each product. Built under PyTorch's name,
// and under another one.
#include "tests/integration/programs/graphs/products.h"

namespace {

int set(const Products& products, CUstream stream) {
  const int result = cublasSetStream_v2(products.handle, stream);
  return result != 0
             ? result
             : cublasSetWorkspace_v2(products.handle, reinterpret_cast<void*>(products.workspace), products.bytes);
}

}  // namespace

Products products_make(ProductKernels kernels, std::size_t bytes) {
  Products made{cublas_make(kernels), 0, bytes};
  if (cuMemAlloc(&made.workspace, bytes) != CUDA_SUCCESS) made.workspace = 0;
  return made;
}

int products_set(const Products* products, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d, CUstream stream) {
  const int result = set(*products, stream);
  return result != 0 ? result : cublas_product(products->handle, a, b, d);
}

int products_given(const Products* products, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d, CUstream stream) {
  const auto at = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
  return cublasLtMatmul(products->handle, nullptr, nullptr, at(a), nullptr, at(b), nullptr, nullptr, nullptr, nullptr,
                        at(d), nullptr, nullptr, at(products->workspace), products->bytes, stream);
}

int products_both(const Products* products, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d, CUstream stream) {
  int result = set(*products, stream);
  if (result == 0) result = set(*products, stream);  // as who asks for the handle twice
  return result != 0 ? result : products_given(products, a, b, d, stream);
}

int products_mixed(const Products* products, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d, CUstream stream) {
  int result = products_set(products, a, b, d, stream);
  for (int i = 0; i < 2 && result == 0; ++i) {
    result = products_given(products, a, b, d, stream);
    if (result == 0) result = cublas_product(products->handle, a, b, d);
  }
  return result;
}
