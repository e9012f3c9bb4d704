// The network's layers on the device: each function allocates what it returns and enqueues the work on the stream.
//
// Tensors are [channel][image][row][column], so images of several branches are concatenated along the channels by plain
// copies, one after another.
#pragma once

#include <initializer_list>

#include "driver.h"
#include "model.h"

namespace digits {

// A convolution's parameters and their velocities, which live as long as the network.
struct Conv {
  explicit Conv(const ConvShape& conv_shape)
      : shape(conv_shape),
        weights(bytes(shape.weight_count())),
        biases(bytes(shape.out_channels)),
        weight_velocity(bytes(shape.weight_count())),
        bias_velocity(bytes(shape.out_channels)) {}

  static std::size_t bytes(int count) { return sizeof(float) * static_cast<std::size_t>(count); }

  ConvShape shape;
  DeviceBuffer weights, biases, weight_velocity, bias_velocity;
};

struct ConvGradients {
  Tensor weights, biases;
};

// The result of a max pool, and the position of the pixel that gave each of its values.
struct Pooled {
  Tensor y, winner;
};

struct BlockLayers {
  const Conv &one, &three_reduce, &three, &five_reduce, &five, &project;
};

// What a block's forward pass leaves for its backward pass.
struct BlockTape {
  Tensor one, three_reduced, three, five_reduced, five, projected;
  Pooled pooled;
};

struct Loss {
  Tensor of_images, d_logits;
};

class Layers {
 public:
  Layers(const Device& device, Stream& stream);

  Tensor upload(const void* from, std::size_t bytes);
  Tensor normalize(const Tensor& pixels, int count);

  Tensor conv(const Conv& conv, const Tensor& x, int batch);
  Tensor conv_relu(const Conv& conv, const Tensor& x, int batch);
  Tensor block(const BlockLayers& block, const Tensor& x, int batch, BlockTape& tape);
  ConvGradients conv_gradients(const Conv& conv, const Tensor& x, const Tensor& dy, int batch);
  Tensor conv_backward_data(const Conv& conv, const Tensor& dy, int batch);
  void relu_backward(const Tensor& y, Tensor& dy);

  Pooled pool2(const Tensor& x, int planes, int size);
  Tensor pool2_backward(const Tensor& dy, const Tensor& winner, int planes, int size);
  Pooled pool3(const Tensor& x, int planes, int size);
  Tensor pool3_backward(const Tensor& dy, const Tensor& winner, int planes, int size);

  Tensor concatenate(std::initializer_list<const Tensor*> parts);
  Tensor slice(const Tensor& whole, std::size_t first_byte, std::size_t bytes);
  Tensor add4(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d);

  Tensor flatten(const Tensor& x, int channels, int batch, int plane);
  Tensor flatten_backward(const Tensor& dy, int channels, int batch, int plane);

  Loss softmax_loss(const Tensor& logits, const Tensor& labels, int batch);
  void mean(const Tensor& values, const DeviceBuffer& to);
  void sgd(const DeviceBuffer& parameter, const DeviceBuffer& velocity, const Tensor& gradient, float rate,
           float momentum);

 private:
  struct ByWindow {
    CUfunction one, three, five;
    CUfunction of(int window) const { return window == 1 ? one : window == 3 ? three : five; }
  };

  static ByWindow by_window(const Device& device, const std::string& before, const std::string& after);
  Tensor floats(int count) { return Tensor(stream_, sizeof(float) * static_cast<std::size_t>(count)); }
  Tensor sum_slices(const Tensor& partial, int count);

  Stream& stream_;
  ByWindow conv_forward_, conv_backward_data_, conv_backward_weights_;
  CUfunction conv_backward_bias_, sum_slices_;
  CUfunction normalize_, relu_forward_, relu_backward_;
  CUfunction pool2_forward_, pool2_backward_, pool3_forward_, pool3_backward_;
  CUfunction add4_, flatten_forward_, flatten_backward_, softmax_loss_, mean_, sgd_;
};

}  // namespace digits
