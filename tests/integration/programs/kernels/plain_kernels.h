// What the images of programs/hidden_state.cpp that come with PTX have in common: plain work beside what each is about.
#pragma once

#include "tests/simcuda/image/kernel.h"

extern "C" __global__ void plain_fill(unsigned* out, const unsigned* in, unsigned salt, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * 3 + salt * 2654435761u;
}
NIMBLE_KERNEL(plain_fill)

extern "C" __global__ void plain_add(unsigned* sum, const unsigned* in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] = sum[i] * 5 + in[i];
}
NIMBLE_KERNEL(plain_add)
