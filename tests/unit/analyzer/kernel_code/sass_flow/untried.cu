// Instructions of sm_100a that the emulator of tests/sass does not run.
extern "C" __global__ void takes_tensor_memory(int* out) {
  __shared__ int where;
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(&where)))
               : "memory");
  __syncthreads();
  out[threadIdx.x] = where;
}
extern "C" __global__ void plain(int* out) { out[threadIdx.x] = 1; }
