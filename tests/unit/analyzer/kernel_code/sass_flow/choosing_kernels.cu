// Kernels that take a pointer from an array of pointers, or a number for one, where their parameters say so.
struct Mode {
  short kind;
  unsigned char batched, flags;
};
__noinline__ __device__ float* element(float** array, int i) { return array ? array[i] : nullptr; }

extern "C" __global__ void by_mode(float* out, float* base, long stride, float** array, int mode) {
  float* p = mode == 3 ? array[blockIdx.x] : base + blockIdx.x * stride;
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void by_null(float* out, float* base, long stride, float** array) {
  float* p = array ? array[blockIdx.x] : base + blockIdx.x * stride;
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void by_one_of_two(float* out, float* base, float** array, int mode) {
  float* p = base;
  if (mode == 1 || mode == 4) p = array[blockIdx.x];
  for (int i = 0; i < 100; ++i) out[i] = p[i * 3 + threadIdx.x];
}
extern "C" __global__ void by_field(float* out, float* base, float** array, Mode mode) {
  float* p = base;
  if (mode.kind > 1) {
    p += 3;
    if (mode.batched) p = array[blockIdx.x];
  }
  __syncthreads();
  p[threadIdx.x] = out[threadIdx.x];
}
extern "C" __global__ void by_shape(float* out, float* base, float** array) {
  float* p = gridDim.y > 1 ? array[blockIdx.y] : base;
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void by_number(float* out, float* base, unsigned long long address, int is_tagged) {
  float* p = base;
  if (is_tagged) p = (float*)(address << 4);
  out[threadIdx.x] = p[threadIdx.x];
}
// What decides, and what is decided, lies in local memory in between, since some element is taken by an index.
extern "C" __global__ void by_kept(float* out, float* base, float** array, int mode, int other) {
  volatile int kept[40] = {mode, mode, mode, mode};
  if (*out == 1) kept[0] = other;
  if (*out == 7) *out = kept[threadIdx.x & 31];
  float* p = kept[0] == 3 ? array[blockIdx.x] : base;
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void by_kept_pointer(float* out, float* base, float** array) {
  float** volatile kept[40] = {array, array};
  if (*out == 7) *out = kept[threadIdx.x & 31] != nullptr;
  float* p = base;
  float** elements = kept[0];
  if (elements) p = elements[blockIdx.x];
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void in_a_function(float* out, float** array, int mode) {
  if (mode == 7) out[1] = *element(array, 3);
  if (mode == 9) out[2] = *element(array, 4);
}
// No launch's numbers exclude these, unless it has nothing to do.
extern "C" __global__ void by_size(float* out, float** array, int n) {
  for (int i = 0; i < n; ++i) out[i] = array[i][threadIdx.x];
}
extern "C" __global__ void by_what_is_loaded(float* out, float* base, float** array) {
  float* p = *out == 1 ? array[blockIdx.x] : base;
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void by_thread(float* out, float* base, float** array, int n) {
  float* p = threadIdx.x < n ? array[blockIdx.x] : base;
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void one_of_two_ways(float* out, float* base, float** array, int mode) {
  float* p = base;
  if (mode == 3 || *out == 1) p = array[blockIdx.x];
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void by_kept_byte(float* out, float* base, float** array, int mode) {
  volatile int kept[40] = {mode, mode, mode, mode};
  ((volatile unsigned char*)kept)[1] = 0;
  if (*out == 7) *out = kept[threadIdx.x & 31];
  float* p = kept[0] == 3 ? array[blockIdx.x] : base;
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void by_one_of_kept(float* out, float* base, float** array, int mode) {
  volatile int kept[1000] = {mode, mode, mode, mode};
  kept[threadIdx.x] = 4;
  if (*out == 7) *out = kept[threadIdx.y];
  float* p = kept[0] == 3 ? array[blockIdx.x] : base;
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void by_what_a_pointer_leads_to(float* out, float* base, float** array, int mode) {
  volatile int kept[40] = {mode, mode, mode, mode};
  *(*out == 1 ? (volatile int*)out : (volatile int*)kept) = 3;
  float* p = kept[0] == 3 ? array[blockIdx.x] : base;
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void by_what_was_not_kept(float* out, float* base, float** array, int mode) {
  volatile int kept[40];
  if (*out == 1) kept[0] = mode;
  if (*out == 7) *out = kept[threadIdx.x & 31];
  float* p = kept[0] == 3 ? array[blockIdx.x] : base;
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void by_kept_count(float* out, float* base, float** array, int mode) {
  volatile int kept[40] = {mode, mode, mode, mode};
  for (int i = 0; i < *out; ++i) kept[0] = kept[0] + mode;
  if (*out == 7) *out = kept[threadIdx.x & 31];
  float* p = kept[0] == 3 ? array[blockIdx.x] : base;
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void by_flag(float* out, float* base, float** array, int mode) {
  unsigned flags = threadIdx.x;
  asm volatile(
      "{ .reg .pred p; and.b32 %0, %0, 0xfffffffb; setp.eq.s32 p, %1, 3; @p or.b32 %0, %0, 4; and.b32 %0, %0, "
      "0xffffffef; }"
      : "+r"(flags)
      : "r"(mode));
  float* p = base;
  if (flags & 4) p = array[blockIdx.x];
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void by_kept_again(float* out, float* base, float** array, int mode) {
  float* volatile kept[40] = {base, base};
  if (*out == 7) *out = kept[threadIdx.x & 31] == nullptr;
  if (mode == 3) kept[0] = array[blockIdx.x];
  float* p = kept[0];
  if (*out == 8) kept[0] = array[threadIdx.x];
  out[threadIdx.x] = p[threadIdx.x];
}
extern "C" __global__ void by_guard(float* out, float** array, int batched, int plain) {
  for (int i = blockIdx.x; i < *out; i += gridDim.x) {
    long long at = 8ll * i, loaded = 0;
    asm volatile(
        "{ .reg .pred p; setp.eq.s32 p, %2, 0; setp.ne.and.s32 p, %3, 0, p; @p add.s64 %0, %0, %4; "
        "@p ld.global.b64 %1, [%0]; }"
        : "+l"(at), "+l"(loaded)
        : "r"(plain), "r"(batched), "l"(array));
    out[threadIdx.x] = static_cast<float>(loaded);
  }
}
