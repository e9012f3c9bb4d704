// Kernels with parameters of many sizes and alignments.
struct Large {
  char bytes[20000];
  float* out;
};
struct __align__(64) Aligned {
  float* in;
  int n;
};
struct Empty {};

extern "C" __global__ void sizes(char a, short b, float* p, bool c, float3 v, Empty e, double d, char last) {
  p[a + b] = c ? v.x : static_cast<float>(d) + last;
}
extern "C" __global__ void large(Large b, int i) { b.out[i] = b.bytes[i]; }
extern "C" __global__ void aligned(float* p, Aligned a, char c, const __grid_constant__ Aligned b) {
  *p = a.in[a.n] + b.in[b.n] + c;
}
extern "C" __global__ void none() {}
extern "C" __global__ void shares(float* p) {
  __shared__ float all[10000];
  all[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = all[threadIdx.x ^ 1];
}
