// The digits network on the CPU, in the plainest form: the reference that the GPU's kernels are tested against.
//
// Real is float, to compare with the kernels byte for byte (every sum has the same order as theirs), or double, to
// check the gradients by finite differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "examples/digits/model.h"
#include "examples/digits/portable_math.h"

namespace digits::test {

inline float exp_of(float x) { return portable_exp(x); }
inline float log_of(float x) { return portable_log(x); }
inline double exp_of(double x) { return std::exp(x); }
inline double log_of(double x) { return std::log(x); }

// Activations: [channel][image][row][column].
template <class Real>
struct Images {
  int channels = 0, count = 0, size = 0;
  std::vector<Real> values;

  Images() = default;
  Images(int channel_count, int image_count, int image_size)
      : channels(channel_count),
        count(image_count),
        size(image_size),
        values(static_cast<std::size_t>(channel_count) * image_count * image_size * image_size) {}

  Real& at(int channel, int image, int row, int column) {
    return values[((static_cast<std::size_t>(channel) * count + image) * size + row) * size + column];
  }
  const Real& at(int channel, int image, int row, int column) const {
    return const_cast<Images*>(this)->at(channel, image, row, column);
  }
  bool inside(int row, int column) const { return row >= 0 && row < size && column >= 0 && column < size; }
};

template <class Real>
class Reference {
 public:
  using Tensors = std::vector<std::vector<Real>>;

  explicit Reference(const Parameters& initial) {
    for (const std::vector<float>& tensor : initial) {
      parameters_.emplace_back(tensor.begin(), tensor.end());
      momenta_.emplace_back(tensor.size(), Real(0));
    }
    gradients_ = momenta_;
  }

  Tensors& parameters() { return parameters_; }
  const Tensors& gradients() const { return gradients_; }

  // The logits, [class][image].
  std::vector<Real> logits(const std::vector<std::uint8_t>& pixels) { return forward(pixels).values; }

  Real loss(const std::vector<std::uint8_t>& pixels, const std::vector<std::int32_t>& labels) {
    return softmax(forward(pixels), labels, nullptr);
  }

  // Fills gradients() and returns the loss.
  Real backward(const std::vector<std::uint8_t>& pixels, const std::vector<std::int32_t>& labels) {
    const Images<Real> logits = forward(pixels);
    Images<Real> d_logits(kClasses, logits.count, 1);
    const Real loss = softmax(logits, labels, &d_logits);

    const Images<Real> d_flat = conv_backward(kClassifier, flat_, d_logits);
    Images<Real> d_block2 = block2_;
    for_each(block2_,
             [&](int c, int n, int y, int x) { d_block2.at(c, n, y, x) = d_flat.at(feature(c, y, x), n, 0, 0); });

    const Images<Real> d_pooled = block_backward(kBlock2, pooled_, d_block2, tape2_);
    Images<Real> d_block1(block1_.channels, block1_.count, block1_.size);
    for_each(d_pooled, [&](int c, int n, int y, int x) {
      const int winner = pool_winner(block1_, c, n, 2 * y, 2 * x, 2);
      d_block1.at(c, n, winner / block1_.size, winner % block1_.size) = d_pooled.at(c, n, y, x);
    });
    const Images<Real> d_stem = block_backward(kBlock1, stem_, d_block1, tape1_);
    conv_weight_gradients(kStem, input_, relu_backward(stem_, d_stem));
    return loss;
  }

  // One step of SGD with momentum. Returns the loss before it.
  Real step(const std::vector<std::uint8_t>& pixels, const std::vector<std::int32_t>& labels, Real rate,
            Real momentum) {
    const Real loss = backward(pixels, labels);
    for (std::size_t t = 0; t < parameters_.size(); ++t) {
      for (std::size_t i = 0; i < parameters_[t].size(); ++i) {
        momenta_[t][i] = momentum * momenta_[t][i] + gradients_[t][i];
        parameters_[t][i] = parameters_[t][i] - rate * momenta_[t][i];
      }
    }
    return loss;
  }

 private:
  // Positions in model_convolutions(). A block's six are one, three_reduce, three, five_reduce, five, project.
  static constexpr int kStem = 0, kBlock1 = 1, kBlock2 = 7, kClassifier = 13;

  struct Tape {
    Images<Real> one, three_reduced, three, five_reduced, five, pooled, projected;
  };

  template <class Function>
  static void for_each(const Images<Real>& images, Function function) {
    for (int c = 0; c < images.channels; ++c)
      for (int n = 0; n < images.count; ++n)
        for (int y = 0; y < images.size; ++y)
          for (int x = 0; x < images.size; ++x) function(c, n, y, x);
  }

  Images<Real> forward(const std::vector<std::uint8_t>& pixels) {
    input_ = Images<Real>(1, static_cast<int>(pixels.size()) / kPixels, kImageSize);
    for (std::size_t i = 0; i < pixels.size(); ++i)
      input_.values[i] = static_cast<Real>(pixels[i]) * Real(kPixelScale) + Real(kPixelOffset);
    stem_ = conv_relu(kStem, input_);
    block1_ = block_forward(kBlock1, stem_, tape1_);
    pooled_ = Images<Real>(block1_.channels, block1_.count, block1_.size / 2);
    for_each(pooled_, [&](int c, int n, int y, int x) {
      const int winner = pool_winner(block1_, c, n, 2 * y, 2 * x, 2);
      pooled_.at(c, n, y, x) = block1_.at(c, n, winner / block1_.size, winner % block1_.size);
    });
    block2_ = block_forward(kBlock2, pooled_, tape2_);
    flat_ = Images<Real>(block2_.channels * block2_.size * block2_.size, block2_.count, 1);
    for_each(block2_,
             [&](int c, int n, int y, int x) { flat_.at(feature(c, y, x), n, 0, 0) = block2_.at(c, n, y, x); });
    return conv(kClassifier, flat_);
  }

  // The channel that a pixel of the second block's output becomes when it is flattened.
  int feature(int channel, int row, int column) const { return (channel * block2_.size + row) * block2_.size + column; }

  // The mean cross-entropy, and its gradient.
  Real softmax(const Images<Real>& logits, const std::vector<std::int32_t>& labels, Images<Real>* gradient) {
    const Real count = static_cast<Real>(logits.count);
    Real total = 0;
    for (int n = 0; n < logits.count; ++n) {
      Real highest = logits.at(0, n, 0, 0);
      for (int c = 1; c < kClasses; ++c) highest = std::max(highest, logits.at(c, n, 0, 0));
      Real sum = 0;
      for (int c = 0; c < kClasses; ++c) sum += exp_of(logits.at(c, n, 0, 0) - highest);
      total += log_of(sum) - (logits.at(labels[n], n, 0, 0) - highest);
      for (int c = 0; gradient && c < kClasses; ++c)
        gradient->at(c, n, 0, 0) =
            (exp_of(logits.at(c, n, 0, 0) - highest) / sum - (c == labels[n] ? Real(1) : Real(0))) / count;
    }
    return total / count;
  }

  Images<Real> block_forward(int first, const Images<Real>& input, Tape& tape) {
    tape.one = conv_relu(first, input);
    tape.three_reduced = conv_relu(first + 1, input);
    tape.three = conv_relu(first + 2, tape.three_reduced);
    tape.five_reduced = conv_relu(first + 3, input);
    tape.five = conv_relu(first + 4, tape.five_reduced);
    tape.pooled = Images<Real>(input.channels, input.count, input.size);
    for_each(input, [&](int c, int n, int y, int x) {
      const int winner = pool_winner(input, c, n, y - 1, x - 1, 3);
      tape.pooled.at(c, n, y, x) = input.at(c, n, winner / input.size, winner % input.size);
    });
    tape.projected = conv_relu(first + 5, tape.pooled);

    Images<Real> output(0, input.count, input.size);
    for (const Images<Real>* branch : {&tape.one, &tape.three, &tape.five, &tape.projected}) {
      output.channels += branch->channels;
      output.values.insert(output.values.end(), branch->values.begin(), branch->values.end());
    }
    return output;
  }

  // The gradient of the block's input, from the gradient of its output.
  Images<Real> block_backward(int first, const Images<Real>& input, const Images<Real>& d_output, const Tape& tape) {
    auto at = d_output.values.begin();
    const auto branch_gradient = [&](const Images<Real>& branch) {
      Images<Real> part = branch;
      std::copy(at, at + branch.values.size(), part.values.begin());
      at += branch.values.size();
      return part;
    };
    const Images<Real> d_one = conv_backward(first, input, relu_backward(tape.one, branch_gradient(tape.one)));
    const Images<Real> d_three_reduced =
        conv_backward(first + 2, tape.three_reduced, relu_backward(tape.three, branch_gradient(tape.three)));
    const Images<Real> d_three = conv_backward(first + 1, input, relu_backward(tape.three_reduced, d_three_reduced));
    const Images<Real> d_five_reduced =
        conv_backward(first + 4, tape.five_reduced, relu_backward(tape.five, branch_gradient(tape.five)));
    const Images<Real> d_five = conv_backward(first + 3, input, relu_backward(tape.five_reduced, d_five_reduced));
    const Images<Real> d_pooled =
        conv_backward(first + 5, tape.pooled, relu_backward(tape.projected, branch_gradient(tape.projected)));
    Images<Real> d_project(input.channels, input.count, input.size);
    for_each(d_pooled, [&](int c, int n, int y, int x) {
      const int winner = pool_winner(input, c, n, y - 1, x - 1, 3);
      d_project.at(c, n, winner / input.size, winner % input.size) += d_pooled.at(c, n, y, x);
    });

    Images<Real> d_input = d_one;
    for (std::size_t i = 0; i < d_input.values.size(); ++i)
      d_input.values[i] = ((d_one.values[i] + d_three.values[i]) + d_five.values[i]) + d_project.values[i];
    return d_input;
  }

  // Position (row * size + column) of the first largest value in the window whose first corner is (row, column).
  static int pool_winner(const Images<Real>& images, int c, int n, int row, int column, int window) {
    int winner = -1;
    for (int y = row; y < row + window; ++y)
      for (int x = column; x < column + window; ++x)
        if (images.inside(y, x) &&
            (winner < 0 || images.at(c, n, y, x) > images.at(c, n, winner / images.size, winner % images.size)))
          winner = y * images.size + x;
    return winner;
  }

  Real weight(const ConvShape& shape, int layer, int out, int in, int y, int x) const {
    return parameters_[2 * layer][((out * shape.in_channels + in) * shape.window + y) * shape.window + x];
  }

  Images<Real> conv(int layer, const Images<Real>& input) {
    const ConvShape& shape = convolutions_[layer];
    Images<Real> output(shape.out_channels, input.count, input.size);
    const int reach = shape.window / 2;
    for_each(output, [&](int o, int n, int row, int column) {
      Real sum = parameters_[2 * layer + 1][o];
      for (int c = 0; c < shape.in_channels; ++c)
        for (int y = 0; y < shape.window; ++y)
          for (int x = 0; x < shape.window; ++x)
            if (input.inside(row + y - reach, column + x - reach))
              sum += input.at(c, n, row + y - reach, column + x - reach) * weight(shape, layer, o, c, y, x);
      output.at(o, n, row, column) = sum;
    });
    return output;
  }

  Images<Real> conv_relu(int layer, const Images<Real>& input) {
    Images<Real> output = conv(layer, input);
    for (Real& value : output.values) value = value > 0 ? value : 0;
    return output;
  }

  static Images<Real> relu_backward(const Images<Real>& output, Images<Real> gradient) {
    for (std::size_t i = 0; i < gradient.values.size(); ++i)
      if (!(output.values[i] > 0)) gradient.values[i] = 0;
    return gradient;
  }

  // The gradients of the layer's weights and biases. The batch is summed in kSlices parts, then the parts.
  void conv_weight_gradients(int layer, const Images<Real>& input, const Images<Real>& d_output) {
    const ConvShape& shape = convolutions_[layer];
    const int reach = shape.window / 2;
    const auto slices_sum = [&](auto&& term) {
      Real total = 0;
      for (int slice = 0; slice < kSlices; ++slice) {
        Real part = 0;
        for (int n = slice * input.count / kSlices; n < (slice + 1) * input.count / kSlices; ++n)
          for (int row = 0; row < input.size; ++row)
            for (int column = 0; column < input.size; ++column) term(part, n, row, column);
        total += part;
      }
      return total;
    };
    for (int o = 0; o < shape.out_channels; ++o) {
      for (int c = 0; c < shape.in_channels; ++c)
        for (int y = 0; y < shape.window; ++y)
          for (int x = 0; x < shape.window; ++x)
            gradients_[2 * layer][((o * shape.in_channels + c) * shape.window + y) * shape.window + x] =
                slices_sum([&](Real& part, int n, int row, int column) {
                  if (input.inside(row + y - reach, column + x - reach))
                    part += input.at(c, n, row + y - reach, column + x - reach) * d_output.at(o, n, row, column);
                });
      gradients_[2 * layer + 1][o] =
          slices_sum([&](Real& part, int n, int row, int column) { part += d_output.at(o, n, row, column); });
    }
  }

  Images<Real> conv_backward(int layer, const Images<Real>& input, const Images<Real>& d_output) {
    conv_weight_gradients(layer, input, d_output);
    const ConvShape& shape = convolutions_[layer];
    Images<Real> d_input(shape.in_channels, input.count, input.size);
    const int reach = shape.window / 2;
    for_each(d_input, [&](int c, int n, int row, int column) {
      Real sum = 0;
      for (int o = 0; o < shape.out_channels; ++o)
        for (int y = 0; y < shape.window; ++y)
          for (int x = 0; x < shape.window; ++x)
            if (d_output.inside(row + reach - y, column + reach - x))
              sum += d_output.at(o, n, row + reach - y, column + reach - x) * weight(shape, layer, o, c, y, x);
      d_input.at(c, n, row, column) = sum;
    });
    return d_input;
  }

  const std::vector<ConvShape> convolutions_ = model_convolutions();
  Tensors parameters_, momenta_, gradients_;
  Images<Real> input_, stem_, block1_, pooled_, block2_, flat_;
  Tape tape1_, tape2_;
};

}  // namespace digits::test
