// The kernels of the digits network: forward, backward and SGD.
//
// One source for two compilers: nvcc builds it into digits.fatbin, the host's compiler into digits.simcuda, which the
// simulated driver runs on the CPU. Activations are [channel][image][row][column]; "plane" is the pixels of one image.
//
// Each thread computes one output, and every sum has a fixed order, so a result never depends on the schedule. Build it
// without fused multiply-add (nvcc --fmad=false, -ffp-contract=off), and it does not depend on the compiler either: the
// CPU reference of the tests computes the same bits.
#include "examples/digits/portable_math.h"
#include "tests/simcuda/image/kernel.h"

__device__ inline int thread_index() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

// Bytes as they come from the data file, to numbers around zero.
extern "C" __global__ void digits_normalize(const unsigned char* pixels, float* x, float scale, float offset,
                                            int count) {
  const int i = thread_index();
  if (i < count) x[i] = static_cast<float>(pixels[i]) * scale + offset;
}
NIMBLE_KERNEL(digits_normalize)

// ---- convolution, Window x Window, padded with zeros, stride 1 ----
// x: [in][batch][size][size]   w: [out][in][Window][Window]   b: [out]   y: [out][batch][size][size]

template <int Window>
__global__ void conv_forward(const float* x, const float* w, const float* b, float* y, int batch, int in_channels,
                             int out_channels, int size) {
  const int i = thread_index();
  const int plane = size * size;
  if (i >= out_channels * batch * plane) return;
  const int column = i % size, row = i / size % size;
  const int image = i / plane % batch, out = i / (plane * batch);
  float sum = b[out];
  for (int in = 0; in < in_channels; ++in) {
    const float* source = x + (in * batch + image) * plane;
    const float* filter = w + (out * in_channels + in) * Window * Window;
    for (int wy = 0; wy < Window; ++wy) {
      const int source_row = row + wy - Window / 2;
      if (source_row < 0 || source_row >= size) continue;
      for (int wx = 0; wx < Window; ++wx) {
        const int source_column = column + wx - Window / 2;
        if (source_column < 0 || source_column >= size) continue;
        sum += source[source_row * size + source_column] * filter[wy * Window + wx];
      }
    }
  }
  y[i] = sum;
}
NIMBLE_KERNEL(conv_forward<1>)
NIMBLE_KERNEL(conv_forward<3>)
NIMBLE_KERNEL(conv_forward<5>)

// The gradient of x from that of y.
template <int Window>
__global__ void conv_backward_data(const float* dy, const float* w, float* dx, int batch, int in_channels,
                                   int out_channels, int size) {
  const int i = thread_index();
  const int plane = size * size;
  if (i >= in_channels * batch * plane) return;
  const int column = i % size, row = i / size % size;
  const int image = i / plane % batch, in = i / (plane * batch);
  float sum = 0.0f;
  for (int out = 0; out < out_channels; ++out) {
    const float* gradient = dy + (out * batch + image) * plane;
    const float* filter = w + (out * in_channels + in) * Window * Window;
    for (int wy = 0; wy < Window; ++wy) {
      const int target_row = row - wy + Window / 2;
      if (target_row < 0 || target_row >= size) continue;
      for (int wx = 0; wx < Window; ++wx) {
        const int target_column = column - wx + Window / 2;
        if (target_column < 0 || target_column >= size) continue;
        sum += gradient[target_row * size + target_column] * filter[wy * Window + wx];
      }
    }
  }
  dx[i] = sum;
}
NIMBLE_KERNEL(conv_backward_data<1>)
NIMBLE_KERNEL(conv_backward_data<3>)
NIMBLE_KERNEL(conv_backward_data<5>)

struct ConvSizes {
  int batch, in_channels, out_channels, size;
};

// The gradient of w, summed over one slice of the batch: partial is [slice][out][in][Window][Window]. There are too few
// weights to fill a GPU with a thread for each; sum_slices adds the slices.
template <int Window>
__global__ void conv_backward_weights(const float* x, const float* dy, float* partial, ConvSizes sizes, int slices) {
  const int i = thread_index();
  const int weights = sizes.out_channels * sizes.in_channels * Window * Window;
  if (i >= slices * weights) return;
  const int wx = i % Window, wy = i / Window % Window;
  const int in = i / (Window * Window) % sizes.in_channels;
  const int out = i % weights / (Window * Window * sizes.in_channels);
  const int slice = i / weights;
  const int size = sizes.size, plane = size * size;
  // The pixels of y whose window position (wy, wx) lies inside the image.
  const int shift_y = wy - Window / 2, shift_x = wx - Window / 2;
  const int first_row = shift_y < 0 ? -shift_y : 0, last_row = shift_y > 0 ? size - shift_y : size;
  const int first_column = shift_x < 0 ? -shift_x : 0, last_column = shift_x > 0 ? size - shift_x : size;
  float sum = 0.0f;
  const int last_image = (slice + 1) * sizes.batch / slices;
  for (int image = slice * sizes.batch / slices; image < last_image; ++image) {
    const float* source = x + (in * sizes.batch + image) * plane;
    const float* gradient = dy + (out * sizes.batch + image) * plane;
    for (int row = first_row; row < last_row; ++row)
      for (int column = first_column; column < last_column; ++column)
        sum += source[(row + shift_y) * size + column + shift_x] * gradient[row * size + column];
  }
  partial[i] = sum;
}
NIMBLE_KERNEL(conv_backward_weights<1>)
NIMBLE_KERNEL(conv_backward_weights<3>)
NIMBLE_KERNEL(conv_backward_weights<5>)

// The gradient of b, likewise: partial is [slice][channel].
__global__ void conv_backward_bias(const float* dy, float* partial, int batch, int channels, int plane, int slices) {
  const int i = thread_index();
  if (i >= slices * channels) return;
  const int channel = i % channels, slice = i / channels;
  const int first = slice * batch / slices, last = (slice + 1) * batch / slices;
  const float* gradient = dy + (channel * batch + first) * plane;
  float sum = 0.0f;
  for (int k = 0; k < (last - first) * plane; ++k) sum += gradient[k];
  partial[i] = sum;
}
NIMBLE_KERNEL(conv_backward_bias)

extern "C" __global__ void digits_sum_slices(const float* partial, float* sum, int count, int slices) {
  const int i = thread_index();
  if (i >= count) return;
  float total = 0.0f;
  for (int slice = 0; slice < slices; ++slice) total += partial[slice * count + i];
  sum[i] = total;
}
NIMBLE_KERNEL(digits_sum_slices)

// ---- activation, in place ----

extern "C" __global__ void digits_relu_forward(float* y, int count) {
  const int i = thread_index();
  if (i < count) y[i] = y[i] > 0.0f ? y[i] : 0.0f;
}
NIMBLE_KERNEL(digits_relu_forward)

extern "C" __global__ void digits_relu_backward(const float* y, float* dy, int count) {
  const int i = thread_index();
  if (i < count && !(y[i] > 0.0f)) dy[i] = 0.0f;
}
NIMBLE_KERNEL(digits_relu_backward)

// ---- max pooling ----
// `winner` keeps, for each output, which pixel of its plane was the largest (the first, of several).

// Windows of 2x2 that do not overlap: the output is half as high and wide.
extern "C" __global__ void digits_pool2_forward(const float* x, float* y, int* winner, int planes, int size) {
  const int i = thread_index();
  const int half = size / 2;
  if (i >= planes * half * half) return;
  const float* source = x + i / (half * half) * size * size;
  const int first = i / half % half * 2 * size + i % half * 2;
  int best = first;
  if (source[first + 1] > source[best]) best = first + 1;
  if (source[first + size] > source[best]) best = first + size;
  if (source[first + size + 1] > source[best]) best = first + size + 1;
  y[i] = source[best];
  winner[i] = best;
}
NIMBLE_KERNEL(digits_pool2_forward)

// Writes the winners' gradients only: the caller has set dx to zero.
extern "C" __global__ void digits_pool2_backward(const float* dy, const int* winner, float* dx, int planes, int size) {
  const int i = thread_index();
  const int half_plane = size / 2 * (size / 2);
  if (i < planes * half_plane) dx[i / half_plane * size * size + winner[i]] = dy[i];
}
NIMBLE_KERNEL(digits_pool2_backward)

// Windows of 3x3 around each pixel: the output is as large as the input.
extern "C" __global__ void digits_pool3_forward(const float* x, float* y, int* winner, int planes, int size) {
  const int i = thread_index();
  const int plane = size * size;
  if (i >= planes * plane) return;
  const int column = i % size, row = i / size % size;
  const float* source = x + i / plane * plane;
  int best = -1;
  for (int wy = row - 1; wy <= row + 1; ++wy) {
    for (int wx = column - 1; wx <= column + 1; ++wx) {
      if (wy < 0 || wy >= size || wx < 0 || wx >= size) continue;
      if (best < 0 || source[wy * size + wx] > source[best]) best = wy * size + wx;
    }
  }
  y[i] = source[best];
  winner[i] = best;
}
NIMBLE_KERNEL(digits_pool3_forward)

// A pixel's gradient is the sum of those of the windows that it won.
extern "C" __global__ void digits_pool3_backward(const float* dy, const int* winner, float* dx, int planes, int size) {
  const int i = thread_index();
  const int plane = size * size;
  if (i >= planes * plane) return;
  const int column = i % size, row = i / size % size;
  const int first = i / plane * plane;
  float sum = 0.0f;
  for (int wy = row - 1; wy <= row + 1; ++wy) {
    for (int wx = column - 1; wx <= column + 1; ++wx) {
      if (wy < 0 || wy >= size || wx < 0 || wx >= size) continue;
      if (winner[first + wy * size + wx] == row * size + column) sum += dy[first + wy * size + wx];
    }
  }
  dx[i] = sum;
}
NIMBLE_KERNEL(digits_pool3_backward)

// ---- the gradient of a block's input is the sum of what its branches give ----

extern "C" __global__ void digits_add4(const float* a, const float* b, const float* c, const float* d, float* sum,
                                       int count) {
  const int i = thread_index();
  if (i < count) sum[i] = ((a[i] + b[i]) + c[i]) + d[i];
}
NIMBLE_KERNEL(digits_add4)

// ---- flatten: [channel][image][pixel] to [channel][pixel][image], and back ----

extern "C" __global__ void digits_flatten_forward(const float* x, float* y, int channels, int batch, int plane) {
  const int i = thread_index();
  if (i >= channels * batch * plane) return;
  const int image = i % batch, pixel = i / batch % plane, channel = i / (batch * plane);
  y[i] = x[(channel * batch + image) * plane + pixel];
}
NIMBLE_KERNEL(digits_flatten_forward)

extern "C" __global__ void digits_flatten_backward(const float* dy, float* dx, int channels, int batch, int plane) {
  const int i = thread_index();
  if (i >= channels * batch * plane) return;
  const int pixel = i % plane, image = i / plane % batch, channel = i / (plane * batch);
  dx[i] = dy[(channel * plane + pixel) * batch + image];
}
NIMBLE_KERNEL(digits_flatten_backward)

// ---- loss ----

// logits and d_logits: [class][image]. One thread for each image; d_logits is the gradient of the mean of the losses.
extern "C" __global__ void digits_softmax_loss(const float* logits, const int* labels, float* d_logits, float* losses,
                                               int batch, int classes) {
  const int image = thread_index();
  if (image >= batch) return;
  float highest = logits[image];
  for (int c = 1; c < classes; ++c)
    if (logits[c * batch + image] > highest) highest = logits[c * batch + image];
  float sum = 0.0f;
  for (int c = 0; c < classes; ++c) sum += digits::portable_exp(logits[c * batch + image] - highest);
  const int label = labels[image];
  losses[image] = digits::portable_log(sum) - (logits[label * batch + image] - highest);
  for (int c = 0; c < classes; ++c) {
    const float probability = digits::portable_exp(logits[c * batch + image] - highest) / sum;
    d_logits[c * batch + image] = (probability - (c == label ? 1.0f : 0.0f)) / static_cast<float>(batch);
  }
}
NIMBLE_KERNEL(digits_softmax_loss)

// One thread: the order of the sum is fixed.
extern "C" __global__ void digits_mean(const float* values, float* mean, int count) {
  if (thread_index() != 0) return;
  float sum = 0.0f;
  for (int i = 0; i < count; ++i) sum += values[i];
  mean[0] = sum / static_cast<float>(count);
}
NIMBLE_KERNEL(digits_mean)

// ---- optimiser ----

extern "C" __global__ void digits_sgd(float* parameter, float* velocity, const float* gradient, float rate,
                                      float momentum, int count) {
  const int i = thread_index();
  if (i >= count) return;
  velocity[i] = momentum * velocity[i] + gradient[i];
  parameter[i] = parameter[i] - rate * velocity[i];
}
NIMBLE_KERNEL(digits_sgd)
