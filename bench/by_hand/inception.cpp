// Inference at batch 1 through the driver API: a network of Inception blocks, whose layers are those of
// examples/digits. Each block has four branches of small kernels; in a step the GPU could do four times as much at
// once.
//
//   inception eager            one stream, in order, like programs without graphs
//   inception line|branches    the step as a CUDA graph by hand: in a line; or with its branches concurrent
//
// Makes steps on command, and prints their times and results (gpu_suite/programs/stepped.h). A step copies a different
// image to the device each time, runs the network, and copies ten numbers back. All variants compute the same bits.
#include <bit>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/by_hand/capture_stream.h"
#include "bench/gpu_suite/programs/stepped.h"
#include "examples/digits/layers.h"
#include "examples/digits/random.h"

namespace nimble::bench {
namespace {

using digits::BlockTape;
using digits::Conv;
using digits::ConvShape;
using digits::Tensor;

constexpr int kSize = 16, kColours = 3, kStem = 32, kBlocks = 8, kClasses = 10;
constexpr int kPoolAfter[] = {3, 6};  // blocks the image gets half as high and wide

int size_of_block(int block) {
  int size = kSize;
  for (const int pool : kPoolAfter) size /= block >= pool ? 2 : 1;
  return size;
}

// He initialisation, as that of digits.
Conv make_conv(digits::Stream& stream, digits::Random& random, const ConvShape& shape) {
  Conv conv(shape);
  std::vector<float> weights(static_cast<std::size_t>(shape.weight_count()));
  for (float& weight : weights) weight = std::sqrt(6.0f / static_cast<float>(shape.fan_in())) * random.uniform();
  stream.copy_in(conv.weights.address(), weights.data(), conv.weights.bytes());
  stream.fill_zero(conv.biases.address(), conv.biases.bytes());
  stream.synchronize();
  return conv;
}

class Inception {
 public:
  explicit Inception(const std::string& variant)
      : device_(std::filesystem::read_symlink("/proc/self/exe").parent_path()),
        stream_(variant == "line" ? Shape::line : Shape::branches),
        layers_(device_, stream_) {
    digits::Random random(1);
    const auto add = [&](const char* name, int window, int in, int out, int size) {
      convolutions_.push_back(make_conv(stream_, random, {name, window, in, out, size}));
    };
    add("stem", 3, kColours, kStem, kSize);
    int channels = kStem;
    for (int block = 0; block < kBlocks; ++block) {
      const int size = size_of_block(block);
      add("one", 1, channels, 16, size);
      add("three_reduce", 1, channels, 24, size);
      add("three", 3, 24, 32, size);
      add("five_reduce", 1, channels, 4, size);
      add("five", 5, 4, 8, size);
      add("project", 1, channels, 8, size);
      channels = 16 + 32 + 8 + 8;
    }
    const int last = size_of_block(kBlocks - 1);
    add("classifier", 1, channels * last * last, kClasses, 1);
    if (variant == "eager") return;
    stream_.begin();
    enqueue();
    graph_ = stream_.end();
    stream_.synchronize();
  }

  void step() {
    image_.data()[steps_++ % (image_.bytes() / sizeof(float))] += 0.25f;
    if (graph_)
      stream_.launch_graph(*graph_);
    else
      enqueue();
  }

  // The current step's result is kept, so that a failed one is not forgotten.
  void synchronize() {
    stream_.synchronize();
    for (int i = 0; i < kClasses; ++i) outputs_.push_back(std::bit_cast<unsigned>(logits_.data()[i]));
  }

  std::vector<unsigned> take_outputs() { return std::exchange(outputs_, {}); }

 private:
  void enqueue() {
    const Tensor image = layers_.upload(image_.data(), image_.bytes());
    Tensor x = layers_.conv_relu(convolutions_.front(), image, 1);
    for (int block = 0; block < kBlocks; ++block) {
      const Conv* const conv = &convolutions_[1 + 6 * static_cast<std::size_t>(block)];
      const int size = size_of_block(block);
      if (block > 0 && size < size_of_block(block - 1)) x = layers_.pool2(x, conv->shape.in_channels, 2 * size).y;
      BlockTape tape;
      x = layers_.block({conv[0], conv[1], conv[2], conv[3], conv[4], conv[5]}, x, 1, tape);
    }
    const Conv& classifier = convolutions_.back();
    const int last = size_of_block(kBlocks - 1);
    const Tensor flat = layers_.flatten(x, classifier.shape.in_channels / (last * last), 1, last * last);
    const Tensor logits = layers_.conv(classifier, flat, 1);
    stream_.copy_out(logits_.data(), logits.address(), logits.bytes());
  }

  const digits::Device device_;
  CaptureStream stream_;  // an ordinary stream while nothing is captured
  digits::Layers layers_;
  std::vector<Conv> convolutions_;
  digits::PinnedBuffer<float> image_{kColours * kSize * kSize}, logits_{kClasses};
  std::unique_ptr<Graph> graph_;
  std::size_t steps_ = 0;
  std::vector<unsigned> outputs_;
};

}  // namespace
}  // namespace nimble::bench

int main(int argc, char** argv) {
  const std::string variant = argc == 2 ? argv[1] : "";
  if (variant != "eager" && variant != "line" && variant != "branches") {
    std::fprintf(stderr, "usage: inception eager|line|branches\n");
    return 2;
  }
  try {
    nimble::bench::Inception program(variant);
    serve([&] { program.step(); }, [&] { program.synchronize(); }, [&] { return program.take_outputs(); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "inception: %s\n", error.what());
    return 1;
  }
  return 0;
}
