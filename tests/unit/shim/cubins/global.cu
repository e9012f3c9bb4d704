__device__ int variable;
__global__ void global(int* out) { out[threadIdx.x] = variable; }
