// Small kernels, each for one thing that machine code is made of.
#include <cassert>
#include <cstdio>
struct Table {
  float* p[8];
  int n[8];
};
__device__ float* g_pointer;
__device__ float g_array[64];
__constant__ float c_array[64];
__noinline__ __device__ float called(const float* p, int i) { return p[i] * 2; }
typedef float (*Fn)(float);
__device__ float f1(float x) { return x + 1; }
__device__ float f2(float x) { return x * x; }
__device__ Fn fns[2] = {f1, f2};

extern "C" __global__ void wide(float* a, const float* b, long long stride, int n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) a[i * stride] = b[i] + 1;
}
extern "C" __global__ void table(const __grid_constant__ Table t) { t.p[blockIdx.y][threadIdx.x] = t.n[blockIdx.y]; }
extern "C" __global__ void table_local(Table t, int k) {
  t.p[k & 7] = t.p[(k + 1) & 7];
  t.p[blockIdx.y][threadIdx.x] = t.n[blockIdx.y];
}
extern "C" __global__ void pick(float* a, float* b, const float* c, int which) {
  float* p = which ? a : b;
  p[threadIdx.x] = c[threadIdx.x];
}
extern "C" __global__ void jump(int* a, int k, int n) {
  for (int i = threadIdx.x; i < n; i += 32) {
    int x = a[i];
    switch (k) {
      case 0:
        x += 3;
        break;
      case 1:
        x = x * 5 - 1;
        break;
      case 2:
        x ^= 0x55;
        break;
      case 3:
        x = __popc(x);
        break;
      case 4:
        x = x / 7;
        break;
      case 5:
        x = x % 11;
        break;
      case 6:
        x = __brev(x);
        break;
      case 7:
        x = x << 3;
        break;
      case 8:
        x = -x;
        break;
      case 9:
        x = x * x;
        break;
    }
    a[i] = x;
  }
}
extern "C" __global__ void calls(float* a, const float* b) {
  a[threadIdx.x] = called(b, threadIdx.x) / called(b, threadIdx.x + 1);
}
extern "C" __global__ void pointer_call(float* a, int k) { a[threadIdx.x] = fns[k & 1](a[threadIdx.x]); }
extern "C" __global__ void says(float* a) { printf("%f\n", a[threadIdx.x]); }
extern "C" __global__ void complains(float* a, const int* b) {
  if (b[threadIdx.x] < 0) {
    printf("%d is negative\n", b[threadIdx.x]);
    __trap();
  }
  a[threadIdx.x] = 2;
}
extern "C" __global__ void asserts(float* a) {
  assert(a[threadIdx.x] > 0);
  a[threadIdx.x] = 1;
}
extern "C" __global__ void allocates(float** a) { a[threadIdx.x] = (float*)malloc(16); }
extern "C" __global__ void globals(float* a) {
  a[0] = g_pointer[threadIdx.x] + g_array[threadIdx.x] + c_array[threadIdx.x];
  g_array[threadIdx.x] = 2;
}
extern "C" __global__ void shared(float* a, const float* b) {
  __shared__ float s[256];
  __shared__ const float* q;
  s[threadIdx.x] = b[threadIdx.x];
  if (threadIdx.x == 0) q = b + 256;
  __syncthreads();
  a[threadIdx.x] = s[threadIdx.x ^ 1] + q[threadIdx.x];
}
extern "C" __global__ void indexed(float* a, const int* index, const float* b) {
  a[threadIdx.x] = b[index[threadIdx.x]];
}
extern "C" __global__ void pointers(float** a, const float* b) { a[blockIdx.x][threadIdx.x] = b[threadIdx.x]; }
extern "C" __global__ void atomics(int* a, float* f, double* d, unsigned long long* u, int k) {
  atomicAdd(a, k);
  atomicAdd(f, 1.f);
  atomicAdd(d, 1.0);
  u[1] = atomicCAS(u, 1ull, (unsigned long long)k);
  atomicMax(a + 1, k);
  atomicExch(a + 2, k);
  a[3] = atomicInc((unsigned*)a + 4, 7);
}
extern "C" __global__ void generic(float* a, int k) {
  __shared__ float s[32];
  float* p = k ? a : s;
  p[threadIdx.x] = 1;
  atomicAdd(p, 2.f);
}
extern "C" __global__ void ping_pong(float* a, float* b, int n) {
  for (int i = 0; i < n; ++i) {
    b[threadIdx.x] = a[threadIdx.x] + 1;
    float* t = a;
    a = b;
    b = t;
    __syncthreads();
  }
}
extern "C" __global__ void shuffled(float* const* a) {
  unsigned long long p = threadIdx.x == 0 ? (unsigned long long)a[blockIdx.x] : 0;
  p = __shfl_sync(~0u, p, 0);
  ((float*)p)[threadIdx.x] = 1;
}
extern "C" __global__ void shift64(char* a, long long n, int s) { a[(n << s) + (n >> 3)] = 1; }
extern "C" __global__ void halves(float* a) {
  int4 v = ((int4*)a)[threadIdx.x];
  v.x += v.y;
  ((int4*)a)[threadIdx.x + 32] = v;
}
