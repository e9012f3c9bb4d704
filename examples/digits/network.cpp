// The network's forward pass, backward pass and update, as work on one stream.
#include "network.h"

namespace digits {
namespace {

std::vector<Conv> make_convolutions() {
  std::vector<Conv> list;
  for (const ConvShape& shape : model_convolutions()) list.emplace_back(shape);
  return list;
}

}  // namespace

Network::Network(const Device& device, Stream& stream, const Parameters& initial)
    : stream_(stream),
      layers_(device, stream),
      convolutions_(make_convolutions()),
      block1_(block_at(1)),
      block2_(block_at(7)),
      loss_(sizeof(float)) {
  for (std::size_t i = 0; i < convolutions_.size(); ++i) {
    const Conv& conv = convolutions_[i];
    stream_.copy_in(conv.weights.address(), initial[2 * i].data(), conv.weights.bytes());
    stream_.copy_in(conv.biases.address(), initial[2 * i + 1].data(), conv.biases.bytes());
    stream_.fill_zero(conv.weight_velocity.address(), conv.weight_velocity.bytes());
    stream_.fill_zero(conv.bias_velocity.address(), conv.bias_velocity.bytes());
  }
  stream_.synchronize();
}

BlockLayers Network::block_at(std::size_t first) const {
  const Conv* conv = &convolutions_[first];
  return {conv[0], conv[1], conv[2], conv[3], conv[4], conv[5]};
}

void Network::train_step(const Batch& batch, float rate, float momentum, const Event& inputs_read) {
  stream_.fork();
  const Tensor pixels = layers_.upload(batch.pixels, static_cast<std::size_t>(batch.size) * kPixels);
  stream_.branch();
  const Tensor labels = layers_.upload(batch.labels, static_cast<std::size_t>(batch.size) * sizeof(std::int32_t));
  stream_.join();
  stream_.begin_aside();
  stream_.record(inputs_read);
  stream_.end_aside();

  const Tape tape = forward(pixels, batch.size);
  const Loss loss = layers_.softmax_loss(tape.logits, labels, batch.size);
  stream_.begin_aside();
  layers_.mean(loss.of_images, loss_);
  stream_.end_aside();

  Gradients gradients(convolutions_.size());
  backward(tape, loss.d_logits, batch.size, gradients);
  update(gradients, rate, momentum);
}

void Network::classify(const std::uint8_t* pixels, int images, float* logits) {
  const Tensor on_device = layers_.upload(pixels, static_cast<std::size_t>(images) * kPixels);
  const Tape tape = forward(on_device, images);
  stream_.copy_out(logits, tape.logits.address(), tape.logits.bytes());
}

Parameters Network::parameters() {
  Parameters result;
  for (const Conv& conv : convolutions_) {
    for (const DeviceBuffer* buffer : {&conv.weights, &conv.biases}) {
      result.emplace_back(buffer->bytes() / sizeof(float));
      stream_.copy_out(result.back().data(), buffer->address(), buffer->bytes());
    }
  }
  stream_.synchronize();
  return result;
}

Network::Tape Network::forward(const Tensor& pixels, int batch) {
  Tape tape;
  tape.x = layers_.normalize(pixels, batch * kPixels);
  tape.stem = layers_.conv_relu(stem(), tape.x, batch);
  tape.block1 = layers_.block(block1_, tape.stem, batch, tape.tape1);
  tape.pooled = layers_.pool2(tape.block1, shape_.block1.out_channels() * batch, shape_.block1.size());
  tape.block2 = layers_.block(block2_, tape.pooled.y, batch, tape.tape2);
  const int size = shape_.block2.size();
  tape.flat = layers_.flatten(tape.block2, shape_.block2.out_channels(), batch, size * size);
  tape.logits = layers_.conv(classifier(), tape.flat, batch);
  return tape;
}

void Network::backward(const Tape& tape, const Tensor& d_logits, int batch, Gradients& gradients) {
  keep_gradients(classifier(), tape.flat, d_logits, batch, gradients);
  const Tensor d_flat = layers_.conv_backward_data(classifier(), d_logits, batch);
  const int size = shape_.block2.size();
  const Tensor d_block2 = layers_.flatten_backward(d_flat, shape_.block2.out_channels(), batch, size * size);

  const Tensor d_pooled = block_backward(block2_, tape.pooled.y, d_block2, tape.tape2, batch, gradients);
  const Tensor d_block1 =
      layers_.pool2_backward(d_pooled, tape.pooled.winner, shape_.block1.out_channels() * batch, shape_.block1.size());

  Tensor d_stem = block_backward(block1_, tape.stem, d_block1, tape.tape1, batch, gradients);
  layers_.relu_backward(tape.stem, d_stem);
  keep_gradients(stem(), tape.x, d_stem, batch, gradients);
}

// The gradient of the block's input. Each branch takes its part of dy, and gives its own gradient of x.
Tensor Network::block_backward(const BlockLayers& block, const Tensor& x, const Tensor& dy, const BlockTape& tape,
                               int batch, Gradients& gradients) {
  std::size_t at = 0;
  const auto part = [&](const Tensor& y) {
    const std::size_t first = at;
    at += y.bytes();
    return layers_.slice(dy, first, y.bytes());
  };
  stream_.fork();
  const Tensor dx_one = conv_relu_backward(block.one, x, tape.one, part(tape.one), batch, gradients);

  stream_.branch();
  Tensor d_three_reduced =
      conv_relu_backward(block.three, tape.three_reduced, tape.three, part(tape.three), batch, gradients);
  const Tensor dx_three =
      conv_relu_backward(block.three_reduce, x, tape.three_reduced, std::move(d_three_reduced), batch, gradients);

  stream_.branch();
  Tensor d_five_reduced =
      conv_relu_backward(block.five, tape.five_reduced, tape.five, part(tape.five), batch, gradients);
  const Tensor dx_five =
      conv_relu_backward(block.five_reduce, x, tape.five_reduced, std::move(d_five_reduced), batch, gradients);

  stream_.branch();
  const Tensor d_pooled =
      conv_relu_backward(block.project, tape.pooled.y, tape.projected, part(tape.projected), batch, gradients);
  const ConvShape& project = block.project.shape;
  const Tensor dx_project =
      layers_.pool3_backward(d_pooled, tape.pooled.winner, project.in_channels * batch, project.size);
  stream_.join();

  return layers_.add4(dx_one, dx_three, dx_five, dx_project);
}

void Network::keep_gradients(const Conv& conv, const Tensor& x, const Tensor& dy, int batch, Gradients& gradients) {
  stream_.begin_aside();
  gradients[static_cast<std::size_t>(&conv - convolutions_.data())] = layers_.conv_gradients(conv, x, dy, batch);
  stream_.end_aside();
}

// The gradient of x, from that of y = relu(conv(x)).
Tensor Network::conv_relu_backward(const Conv& conv, const Tensor& x, const Tensor& y, Tensor dy, int batch,
                                   Gradients& gradients) {
  layers_.relu_backward(y, dy);
  keep_gradients(conv, x, dy, batch, gradients);
  return layers_.conv_backward_data(conv, dy, batch);
}

void Network::update(const Gradients& gradients, float rate, float momentum) {
  stream_.join_asides();
  stream_.fork();
  for (std::size_t i = 0; i < convolutions_.size(); ++i) {
    if (i > 0) stream_.branch();
    const Conv& conv = convolutions_[i];
    layers_.sgd(conv.weights, conv.weight_velocity, gradients[i].weights, rate, momentum);
    layers_.sgd(conv.biases, conv.bias_velocity, gradients[i].biases, rate, momentum);
  }
  stream_.join();
}

}  // namespace digits
