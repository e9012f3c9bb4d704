// The two functions by which a program gives cuBLAS memory to work in, as libnimble.so exports them: in captures that
// ask for it each matrix product gets memory of its own (shim/rewrite/pool/workspace_table.h); else, and in any other
// mode, they do what cuBLAS's do.
//
// Every call goes on to the cuBLAS that its caller would reach without us, which is found once for each call site, and
// stays loaded from then on. Only if PyTorch calls it does cublasSetWorkspace count as being for one product: PyTorch
// is known to set the workspace anew before each product, so that none runs in memory which its capture has released.
// Programs that look these functions up in cuBLAS itself get cuBLAS's.
//
// Any thread. No lock is held while the dynamic loader, cuBLAS or the driver is called.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "shim/driver/exported_names.h"

namespace nimble::shim {

// cublasStatus_t: the two values that are used here.
enum class CublasStatus : int { success = 0, not_supported = 15 };

// Their types; handles, descriptions and layouts are opaque pointers.
using CublasSetWorkspace = CublasStatus(void* handle, void* workspace, std::size_t bytes);
using CublasLtMatmul = CublasStatus(void* handle, void* description, const void* alpha, const void* a, void* a_layout,
                                    const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                                    void* d, void* d_layout, const void* algorithm, void* workspace, std::size_t bytes,
                                    CUstream stream);

}  // namespace nimble::shim
