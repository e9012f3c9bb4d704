// exp and log in plain IEEE operations.
//
// The libraries' own differ in their last bits between a GPU and a host, and between hosts. These give the same bits
// everywhere, as long as the compiler does not fuse a product with a sum (-ffp-contract=off, nvcc --fmad=false). So
// what a GPU computes can be compared with the CPU reference byte for byte.
#pragma once

#ifdef __CUDACC__
#define DIGITS_PORTABLE __host__ __device__ inline
#else
#define DIGITS_PORTABLE inline
#endif

namespace digits {

// e^x for x <= 0, the range that softmax needs. Relative error below 3e-7.
DIGITS_PORTABLE float portable_exp(float x) {
  if (x < -80.0f) return 0.0f;
  // x = r - halvings * ln 2, with r in [-ln 2, 0]; ln 2 is split so that the product with its first part is exact.
  const int halvings = static_cast<int>(x * -1.44269504f);
  const float r = (x + static_cast<float>(halvings) * 0.693359375f) - static_cast<float>(halvings) * 2.12194440e-4f;
  float power = 1.0f;
  for (int term = 9; term > 0; --term) power = 1.0f + power * (r * (1.0f / static_cast<float>(term)));
  for (int i = 0; i < halvings; ++i) power *= 0.5f;
  return power;
}

// ln(x) for x >= 1. Absolute error below 1e-6 for x up to 1000.
DIGITS_PORTABLE float portable_log(float x) {
  int halvings = 0;
  while (x > 1.41421356f) {
    x *= 0.5f;
    ++halvings;
  }
  // ln x = 2 artanh t with t = (x - 1) / (x + 1), and |t| < 0.18.
  const float t = (x - 1.0f) / (x + 1.0f);
  const float square = t * t;
  float series = 0.0f;
  for (int odd = 11; odd > 0; odd -= 2) series = series * square + 1.0f / static_cast<float>(odd);
  return 2.0f * t * series + static_cast<float>(halvings) * 0.693147181f;
}

}  // namespace digits
