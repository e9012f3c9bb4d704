// The network's shape: its convolutions, their order, and the values that they start from. Free of any GPU.
//
//   images 8x8 -> stem -> block1 -> max pool to 4x4 -> block2 -> flatten -> classifier -> 10 logits
//
// `flatten` makes each pixel of each channel a channel of its own, so the classifier, which is a fully connected layer,
// is a 1x1 convolution over images of one pixel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace digits {

inline constexpr int kImageSize = 8;
inline constexpr int kPixels = kImageSize * kImageSize;
inline constexpr int kClasses = 10;

// What the network sees of a pixel from 0 to 16: roughly centred, roughly of unit variance. Exact in float.
inline constexpr float kPixelScale = 0.125f, kPixelOffset = -0.625f;

// Sums over a batch are split into this many parts, which are then added: more threads, and a fixed order of the sum.
inline constexpr int kSlices = 16;

struct ConvShape {
  std::string name;
  int window;  // 1, 3 or 5: the filters are window x window; the image is padded with zeros
  int in_channels, out_channels;
  int size;  // images are size x size, before and after

  int weight_count() const { return out_channels * in_channels * window * window; }
  int fan_in() const { return in_channels * window * window; }
};

// An Inception block: four branches over the same input, whose outputs are concatenated along the channels.
struct BlockShape {
  ConvShape one;                  // 1x1
  ConvShape three_reduce, three;  // 1x1, then 3x3
  ConvShape five_reduce, five;    // 1x1, then 5x5
  ConvShape project;              // 3x3 max pool, then 1x1

  int in_channels() const { return one.in_channels; }
  int out_channels() const { return one.out_channels + three.out_channels + five.out_channels + project.out_channels; }
  int size() const { return one.size; }
};

struct ModelShape {
  ConvShape stem;
  BlockShape block1, block2;
  ConvShape classifier;
};

const ModelShape& model_shape();

// Every convolution of the model, in the order in which parameters, gradients and weight files list them.
std::vector<ConvShape> model_convolutions();

// For each convolution its weights [out][in][row][column], then its biases [out].
using Parameters = std::vector<std::vector<float>>;

Parameters initial_parameters(std::uint64_t seed);

}  // namespace digits
