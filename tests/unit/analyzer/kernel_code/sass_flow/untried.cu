// Instructions of sm_100 that the emulator of tests/sass does not run.
extern "C" __global__ void takes_work(int* out) {
  __shared__ alignas(16) int answer[4];
  __shared__ unsigned long long barrier;
  const auto where = [](const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); };
  asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(
                   where(answer)),
               "r"(where(&barrier))
               : "memory");
  __syncthreads();
  out[threadIdx.x] = answer[0];
}
extern "C" __global__ void plain(int* out) { out[threadIdx.x] = 1; }
