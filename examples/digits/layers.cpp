// Launches of the kernels in kernels.cu.
#include "layers.h"

namespace digits {
namespace {

// As kernels.cu declares it.
struct ConvSizes {
  int batch, in_channels, out_channels, size;
};

int element_count(const ConvShape& shape, int channels, int batch) {
  return channels * batch * shape.size * shape.size;
}

}  // namespace

// The kernels in C++ are found by their mangled names: conv_forward<3>(const float*, const float*, const float*,
// float*, int, int, int, int), and so on.
Layers::Layers(const Device& device, Stream& stream)
    : stream_(stream),
      conv_forward_(by_window(device, "_Z12conv_forwardILi", "EEvPKfS1_S1_Pfiiii")),
      conv_backward_data_(by_window(device, "_Z18conv_backward_dataILi", "EEvPKfS1_Pfiiii")),
      conv_backward_weights_(by_window(device, "_Z21conv_backward_weightsILi", "EEvPKfS1_Pf9ConvSizesi")),
      conv_backward_bias_(device.function("_Z18conv_backward_biasPKfPfiiii")),
      sum_slices_(device.function("digits_sum_slices")),
      normalize_(device.function("digits_normalize")),
      relu_forward_(device.function("digits_relu_forward")),
      relu_backward_(device.function("digits_relu_backward")),
      pool2_forward_(device.function("digits_pool2_forward")),
      pool2_backward_(device.function("digits_pool2_backward")),
      pool3_forward_(device.function("digits_pool3_forward")),
      pool3_backward_(device.function("digits_pool3_backward")),
      add4_(device.function("digits_add4")),
      flatten_forward_(device.function("digits_flatten_forward")),
      flatten_backward_(device.function("digits_flatten_backward")),
      softmax_loss_(device.function("digits_softmax_loss")),
      mean_(device.function("digits_mean")),
      sgd_(device.function("digits_sgd")) {}

Layers::ByWindow Layers::by_window(const Device& device, const std::string& before, const std::string& after) {
  return {device.function(before + "1" + after), device.function(before + "3" + after),
          device.function(before + "5" + after)};
}

Tensor Layers::upload(const void* from, std::size_t bytes) {
  Tensor to(stream_, bytes);
  stream_.copy_in(to.address(), from, bytes);
  return to;
}

Tensor Layers::normalize(const Tensor& pixels, int count) {
  Tensor x = floats(count);
  stream_.launch(normalize_, count, pixels, x, kPixelScale, kPixelOffset, count);
  return x;
}

Tensor Layers::conv(const Conv& conv, const Tensor& x, int batch) {
  const ConvShape& shape = conv.shape;
  Tensor y = floats(element_count(shape, shape.out_channels, batch));
  stream_.launch(conv_forward_.of(shape.window), y.count(), x, conv.weights, conv.biases, y, batch, shape.in_channels,
                 shape.out_channels, shape.size);
  return y;
}

Tensor Layers::conv_relu(const Conv& layer, const Tensor& x, int batch) {
  Tensor y = conv(layer, x, batch);
  stream_.launch(relu_forward_, y.count(), y, y.count());
  return y;
}

// The four branches read the same input, and nothing of each other's.
Tensor Layers::block(const BlockLayers& block, const Tensor& x, int batch, BlockTape& tape) {
  stream_.fork();
  tape.one = conv_relu(block.one, x, batch);

  stream_.branch();
  tape.three_reduced = conv_relu(block.three_reduce, x, batch);
  tape.three = conv_relu(block.three, tape.three_reduced, batch);

  stream_.branch();
  tape.five_reduced = conv_relu(block.five_reduce, x, batch);
  tape.five = conv_relu(block.five, tape.five_reduced, batch);

  stream_.branch();
  const ConvShape& project = block.project.shape;
  tape.pooled = pool3(x, project.in_channels * batch, project.size);
  tape.projected = conv_relu(block.project, tape.pooled.y, batch);
  stream_.join();

  return concatenate({&tape.one, &tape.three, &tape.five, &tape.projected});
}

ConvGradients Layers::conv_gradients(const Conv& conv, const Tensor& x, const Tensor& dy, int batch) {
  const ConvShape& shape = conv.shape;
  ConvGradients gradients;
  stream_.fork();
  {
    const Tensor partial = floats(kSlices * shape.weight_count());
    const ConvSizes sizes = {batch, shape.in_channels, shape.out_channels, shape.size};
    stream_.launch(conv_backward_weights_.of(shape.window), partial.count(), x, dy, partial, sizes, kSlices);
    gradients.weights = sum_slices(partial, shape.weight_count());
  }
  stream_.branch();
  const Tensor partial = floats(kSlices * shape.out_channels);
  stream_.launch(conv_backward_bias_, partial.count(), dy, partial, batch, shape.out_channels, shape.size * shape.size,
                 kSlices);
  gradients.biases = sum_slices(partial, shape.out_channels);
  stream_.join();
  return gradients;
}

Tensor Layers::sum_slices(const Tensor& partial, int count) {
  Tensor sum = floats(count);
  stream_.launch(sum_slices_, count, partial, sum, count, kSlices);
  return sum;
}

Tensor Layers::conv_backward_data(const Conv& conv, const Tensor& dy, int batch) {
  const ConvShape& shape = conv.shape;
  Tensor dx = floats(element_count(shape, shape.in_channels, batch));
  stream_.launch(conv_backward_data_.of(shape.window), dx.count(), dy, conv.weights, dx, batch, shape.in_channels,
                 shape.out_channels, shape.size);
  return dx;
}

void Layers::relu_backward(const Tensor& y, Tensor& dy) { stream_.launch(relu_backward_, y.count(), y, dy, y.count()); }

Pooled Layers::pool2(const Tensor& x, int planes, int size) {
  const int count = planes * (size / 2) * (size / 2);
  Pooled pooled = {floats(count), Tensor(stream_, sizeof(int) * static_cast<std::size_t>(count))};
  stream_.launch(pool2_forward_, count, x, pooled.y, pooled.winner, planes, size);
  return pooled;
}

Tensor Layers::pool2_backward(const Tensor& dy, const Tensor& winner, int planes, int size) {
  Tensor dx = floats(planes * size * size);
  stream_.fill_zero(dx.address(), dx.bytes());
  stream_.launch(pool2_backward_, dy.count(), dy, winner, dx, planes, size);
  return dx;
}

Pooled Layers::pool3(const Tensor& x, int planes, int size) {
  Pooled pooled = {floats(x.count()), Tensor(stream_, x.bytes())};
  stream_.launch(pool3_forward_, x.count(), x, pooled.y, pooled.winner, planes, size);
  return pooled;
}

Tensor Layers::pool3_backward(const Tensor& dy, const Tensor& winner, int planes, int size) {
  Tensor dx = floats(dy.count());
  stream_.launch(pool3_backward_, dy.count(), dy, winner, dx, planes, size);
  return dx;
}

Tensor Layers::concatenate(std::initializer_list<const Tensor*> parts) {
  std::size_t bytes = 0;
  for (const Tensor* part : parts) bytes += part->bytes();
  Tensor whole(stream_, bytes);
  std::size_t at = 0;
  stream_.fork();
  for (const Tensor* part : parts) {
    if (at > 0) stream_.branch();
    stream_.copy(whole.address() + at, part->address(), part->bytes());
    at += part->bytes();
  }
  stream_.join();
  return whole;
}

Tensor Layers::slice(const Tensor& whole, std::size_t first_byte, std::size_t bytes) {
  Tensor part(stream_, bytes);
  stream_.copy(part.address(), whole.address() + first_byte, bytes);
  return part;
}

Tensor Layers::add4(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d) {
  Tensor sum = floats(a.count());
  stream_.launch(add4_, a.count(), a, b, c, d, sum, a.count());
  return sum;
}

Tensor Layers::flatten(const Tensor& x, int channels, int batch, int plane) {
  Tensor y = floats(x.count());
  stream_.launch(flatten_forward_, x.count(), x, y, channels, batch, plane);
  return y;
}

Tensor Layers::flatten_backward(const Tensor& dy, int channels, int batch, int plane) {
  Tensor dx = floats(dy.count());
  stream_.launch(flatten_backward_, dy.count(), dy, dx, channels, batch, plane);
  return dx;
}

Loss Layers::softmax_loss(const Tensor& logits, const Tensor& labels, int batch) {
  Loss loss = {floats(batch), floats(logits.count())};
  stream_.launch(softmax_loss_, batch, logits, labels, loss.d_logits, loss.of_images, batch, kClasses);
  return loss;
}

void Layers::mean(const Tensor& values, const DeviceBuffer& to) {
  stream_.launch(mean_, 1, values, to, values.count());
}

void Layers::sgd(const DeviceBuffer& parameter, const DeviceBuffer& velocity, const Tensor& gradient, float rate,
                 float momentum) {
  stream_.launch(sgd_, gradient.count(), parameter, velocity, gradient, rate, momentum, gradient.count());
}

}  // namespace digits
