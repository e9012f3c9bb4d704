__constant__ int table[64];
__global__ void constant(int* out) { out[threadIdx.x] = table[threadIdx.x]; }
