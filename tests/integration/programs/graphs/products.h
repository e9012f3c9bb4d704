// The interface of the library in place of PyTorch, for products.cpp, and of the one in place of cuBLAS.
#pragma once

#include <cuda.h>

#include <cstddef>

// The kernels that a product is made of: `mix` computes into what it works in, and `update` adds that to the result.
struct ProductKernels {
  CUfunction mix, update;
};

extern "C" {
// Of the library that calls cuBLAS. One handle and one workspace, of so many bytes.
struct Products {
  void* handle;
  CUdeviceptr workspace;
  std::size_t bytes;
};
Products products_make(ProductKernels kernels, std::size_t bytes);
// d += a * b, in a workspace that is set; in one that is given; or set and given, as where one is for both. `mixed`:
// five times, in one that is set and, between, in the same one where it is given.
int products_set(const Products* products, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d, CUstream stream);
int products_given(const Products* products, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d, CUstream stream);
int products_mixed(const Products* products, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d, CUstream stream);
int products_both(const Products* products, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d, CUstream stream);

// In the library in place of cuBLAS: its own names, and others that must exist.
void* cublas_make(ProductKernels kernels);
int cublas_product(void* handle, CUdeviceptr a, CUdeviceptr b, CUdeviceptr d);
int cublasSetStream_v2(void* handle, CUstream stream);
int cublasGetStream_v2(void* handle, CUstream* stream);
int cublasSetWorkspace_v2(void* handle, void* workspace, std::size_t bytes);
int cublasLtMatmul(void* handle, void* description, const void* alpha, const void* a, void* a_layout, const void* b,
                   void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                   const void* algorithm, void* workspace, std::size_t bytes, CUstream stream);
}
