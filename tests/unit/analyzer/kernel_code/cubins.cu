// Code for the tests of cubins and fatbins. WITH_CONSTANT, WITH_VARIABLE, WITH_FLAG, WITH_OTHER_GROUP and
// WITH_OTHER_TABLE add variables, which change what is known of the other kernels as well; WITH_TAGS, WITH_GROUPS and
// WITH_TABLES add those of NVIDIA's header libraries, which do not.
#include <cassert>
#include <cstdio>

extern "C" __global__ void plain(float* w, const float* r) { w[threadIdx.x] = r[threadIdx.x]; }

__device__ __noinline__ float twice(float value) { return value * 2.0f; }
__device__ __noinline__ float loud(float value) {
  printf("%f\n", value);
  return value;
}

extern "C" __global__ void calls(float* w) { w[0] = twice(w[1]); }

extern "C" __global__ void asserts(int* w, const int* r) {
  assert(r[0] > 3);
  w[0] = r[1];
}

extern "C" __global__ void prints(float* w) { printf("%f\n", w[0]); }

extern "C" __global__ void prints_deep_inside(float* w) { w[0] = loud(w[1]); }

using Function = float (*)(float);
extern "C" __global__ void calls_pointer(float* w, Function function) { w[0] = function(w[1]); }

#ifdef WITH_CONSTANT
__constant__ float a_constant[4];
extern "C" __global__ void reads_constant(float* w, int i) { w[0] = a_constant[i]; }
#endif

#ifdef WITH_VARIABLE
__device__ float a_variable[4];
extern "C" __global__ void writes_variable(const float* r, int i) { a_variable[i] = r[0]; }
#endif

#ifdef WITH_TAGS
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <cuda/std/tuple>
template <class Function>
__global__ void transform(float* w, const float* r, Function function) {
  w[threadIdx.x] = function(r[threadIdx.x]);
}
struct Twice {
  __device__ float operator()(float value) const { return 2.0f * value; }
};
template __global__ void transform(float*, const float*, Twice);
#endif

#ifdef WITH_FLAG
namespace {
__device__ bool flag;
}
extern "C" __global__ void raises_flag(int* w) {
  w[0] = flag;
  flag = true;
}
#endif

#ifdef WITH_TABLES
// As curand_kernel.h has them.
static __device__ unsigned int mrg32k3aM2Seq[64][3][3] = {{{1}}};
static __device__ unsigned int precalc_xorwow_matrix[32][800] = {{2}};
#ifdef WITH_OTHER_TABLE
static __device__ unsigned int mrg32k3aM1[64][3] = {{3}};  // of another size than theirs
#endif
extern "C" __global__ void draws(unsigned* w, int i) {
  w[0] = mrg32k3aM2Seq[i][0][1] + precalc_xorwow_matrix[i][i];
#ifdef WITH_OTHER_TABLE
  mrg32k3aM1[i][0] = 4;
#endif
}
#endif

#ifdef WITH_GROUPS
// As cooperative_groups.h has them, and older compilers leave them.
namespace cooperative_groups::__v1::details {
static constexpr __device__ unsigned int cluster_group_id = 6;
#ifdef WITH_OTHER_GROUP
static __device__ unsigned int latest_group_id = 7;
#endif
namespace tile {
static constexpr __device__ unsigned long long _MemoryShuffleCutoff = 32;
}
}  // namespace cooperative_groups::__v1::details
extern "C" __global__ void tells_group(const unsigned** w, const unsigned long long** cutoff) {
  w[0] = &cooperative_groups::__v1::details::cluster_group_id;
  cutoff[0] = &cooperative_groups::__v1::details::tile::_MemoryShuffleCutoff;
#ifdef WITH_OTHER_GROUP
  cooperative_groups::__v1::details::latest_group_id += threadIdx.x;
#endif
}
#endif
