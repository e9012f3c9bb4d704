// Kernels for the analysis of their PTX that the simulated driver cannot run: shared memory, half precision, vectors,
// asynchronous copies, what only a GPU's compiler offers.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

#include <cassert>
#include <cstdio>

__device__ inline int thread() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

extern "C" __global__ void restricted(float* __restrict__ w, const float* __restrict__ r, int count) {
  const int i = thread();
  if (i < count) w[i] = r[i] + __ldg(r + count);
}

extern "C" __global__ void vectors(float4* w, const float4* r, const int2* r_2, const double2* r_3, int count) {
  const int i = thread();
  if (i >= count) return;
  const float4 a = r[i];
  const int2 b = r_2[i];
  const double2 c = r_3[i];
  w[i] = make_float4(a.x + a.w, a.y * b.x, a.z - b.y, static_cast<float>(c.x * c.y));
}

extern "C" __global__ void halves(__half2* w, const __half2* r, const __nv_bfloat16* r_2, __half factor, int count) {
  const int i = thread();
  if (i < count) w[i] = __hfma2(r[i], __half2half2(factor), __float2half2_rn(__bfloat162float(r_2[i])));
}

extern "C" __global__ void half_atomics(__half* rw, const __half* r, int count) {
  const int i = thread();
  if (i < count) atomicAdd(rw, r[i]);
}

extern "C" __global__ void transpose(float* w, const float* r, int size) {
  __shared__ float tile[32][33];
  const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  tile[threadIdx.y][threadIdx.x] = r[y * size + x];
  __syncthreads();
  w[(blockIdx.x * 32 + threadIdx.y) * size + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void dynamic_shared(float* w, const float* r, int count) {
  extern __shared__ float buffer[];
  const int i = thread();
  buffer[threadIdx.x] = i < count ? r[i] : 0.0f;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) buffer[threadIdx.x] += buffer[threadIdx.x + half];
  }
  if (threadIdx.x == 0) w[blockIdx.x] = buffer[0];
}

// Pointers that threads hand each other through shared memory: whatever comes out of it was put in by the same kernel.
extern "C" __global__ void pointers_in_shared(float* w, const float* r_1, const float* r_2, int count) {
  __shared__ const float* from[2];
  if (threadIdx.x == 0) {
    from[0] = r_1;
    from[1] = r_2;
  }
  __syncthreads();
  const int i = thread();
  if (i < count) w[i] = from[i & 1][i];
}

extern "C" __global__ void loaded_pointers_in_shared(float* w, const float* const* table, int count) {
  __shared__ const float* from[32];
  if (threadIdx.x < 32) from[threadIdx.x] = table[threadIdx.x];
  __syncthreads();
  const int i = thread();
  if (i < count) w[i] = from[i & 31][i];
}

extern "C" __global__ void shared_atomics(unsigned* rw, const unsigned char* r, int count) {
  __shared__ unsigned bins[256];
  bins[threadIdx.x] = 0;
  __syncthreads();
  const int i = thread();
  if (i < count) atomicAdd(&bins[r[i]], 1u);
  __syncthreads();
  atomicAdd(&rw[threadIdx.x], bins[threadIdx.x]);
}

// A generic address that may be of either kind.
extern "C" __global__ void shared_or_global(float* w, const float* r, int count) {
  __shared__ float buffer[128];
  buffer[threadIdx.x] = 1.0f;
  __syncthreads();
  const float* from = count > 1000 ? r : buffer;
  w[thread()] = from[threadIdx.x];
}

// Pointers go from thread to thread, in two halves.
extern "C" __global__ void shuffled_pointers(float* w, const float* r_1, const float* r_2, int count) {
  const auto mine = reinterpret_cast<unsigned long long>(threadIdx.x % 2 != 0 ? r_1 : r_2);
  const auto other = __shfl_xor_sync(0xffffffffu, mine, 1);
  const int i = thread();
  if (i < count) w[i] = reinterpret_cast<const float*>(other)[i];
}

extern "C" __global__ void converted(float* w, const float* r, int count) {
  const size_t in_global = __cvta_generic_to_global(r);
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(in_global + 4 * static_cast<size_t>(thread())));
  if (__isGlobal(w)) w[thread()] = value;
}

extern "C" __global__ void assembly(float* w, const float* r, int count) {
  const int i = thread();
  asm volatile(
      "{\n"
      " .reg.b32 t;\n"
      " .reg .pred ok;\n"
      " setp.lt.s32 ok, %2, %3;\n"
      " @ok ld.global.cg.b32 t, [%1];\n"
      " @ok st.global.cs.b32 [%0], t;\n"
      "}\n" ::"l"(w + i),
      "l"(r + i), "r"(i), "r"(count)
      : "memory");
}

extern "C" __global__ void async_copies(float4* w, const float4* r, int count) {
  __shared__ float4 buffer[128];
  __pipeline_memcpy_async(&buffer[threadIdx.x], &r[thread()], 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  w[thread()] = buffer[threadIdx.x ^ 1];
}

extern "C" __global__ void tensor_cores(float* w, const __half* r_a, const __half* r_b, int pitch) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, __half, row_major> a;
  fragment<matrix_b, 16, 16, 16, __half, col_major> b;
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0.0f);
  for (int k = 0; k < pitch; k += 16) {
    load_matrix_sync(a, r_a + k, pitch);
    load_matrix_sync(b, r_b + k, pitch);
    mma_sync(sum, a, b, sum);
  }
  store_matrix_sync(w, sum, pitch, mem_row_major);
}

// Slow paths of mathematical functions read tables that belong to the compiler, and keep digits in local memory.
extern "C" __global__ void mathematics(double* w, const double* r, const float* r_2, int count) {
  const int i = thread();
  if (i < count) w[i] = sin(r[i]) / exp(r[i] + 1.5) + pow(r[i], 0.3) + static_cast<double>(tanf(r_2[i]));
}

extern "C" __global__ void asserts(int* w, const int* r, int count) {
  const int i = thread();
  assert(i < count);
  w[i] = r[i];
}

extern "C" __global__ void whole_parameter(const __grid_constant__ int4 sizes, float* w, const float* r) {
  const int i = thread();
  const int* each = &sizes.x;
  w[i] = r[i * each[i & 3]];
}

// ---- what must not be proven ----

extern "C" __global__ void prints(float* w) { printf("%f\n", *w); }

extern "C" __global__ void allocates(float** w) { *w = static_cast<float*>(malloc(16)); }

extern "C" __global__ void texture(float* w, cudaTextureObject_t source, int count) {
  const int i = thread();
  if (i < count) w[i] = tex1Dfetch<float>(source, i);
}

extern "C" __global__ void surface(cudaSurfaceObject_t target, const float* r, int count) {
  const int i = thread();
  if (i < count) surf1Dwrite(r[i], target, 4 * i);
}

__constant__ float a_constant[64];

extern "C" __global__ void reads_constant(float* w, int which) { w[thread()] = a_constant[which]; }

__device__ __managed__ float a_managed;

extern "C" __global__ void reads_managed(float* w) { w[thread()] = a_managed; }

using Function = float (*)(float);
extern "C" __global__ void calls_pointer(float* w, Function function) { w[thread()] = function(w[0]); }

extern "C" __global__ void syncs_grid(float* w, int count) {
  w[thread()] = 1.0f;
  cooperative_groups::this_grid().sync();
  w[thread()] += w[0];
}

extern "C" __global__ void other_blocks_memory(float* w) {
  __shared__ float mine;
  mine = 1.0f;
  auto cluster = cooperative_groups::this_cluster();
  cluster.sync();
  w[thread()] = *cluster.map_shared_rank(&mine, 0);
  cluster.sync();
}
