// The whole network on the device: a training step, and a forward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "driver.h"
#include "layers.h"
#include "model.h"

namespace digits {

// The inputs of a step, in pinned memory.
struct Batch {
  const std::uint8_t* pixels;
  const std::int32_t* labels;
  int size;
};

class Network {
 public:
  Network(const Device& device, Stream& stream, const Parameters& initial);
  virtual ~Network() = default;

  // The steps to come take their input from this batch's memory and have this rate: what there is to get ready for them
  // is done before they are timed. Here that is nothing.
  virtual void prepare(const Batch& batch, float rate, float momentum, const Event& inputs_read) {}

  // Enqueues one step of SGD with momentum. Every tensor of it is allocated and freed in it. `inputs_read` is recorded
  // once the batch has been copied to the device: its memory may then be used again.
  virtual void train_step(const Batch& batch, float rate, float momentum, const Event& inputs_read);

  // The mean loss of the latest step's batch: one float.
  const DeviceBuffer& loss() const { return loss_; }

  // Enqueues a forward pass, and the copy of its logits, [class][image], to pinned memory.
  void classify(const std::uint8_t* pixels, int images, float* logits);

  // Waits for the stream.
  Parameters parameters();

 private:
  struct Tape {
    Tensor x, stem, block1, block2, flat, logits;
    BlockTape tape1, tape2;
    Pooled pooled;
  };
  using Gradients = std::vector<ConvGradients>;

  BlockLayers block_at(std::size_t first) const;
  const Conv& stem() const { return convolutions_.front(); }
  const Conv& classifier() const { return convolutions_.back(); }
  Tape forward(const Tensor& pixels, int batch);
  void backward(const Tape& tape, const Tensor& d_logits, int batch, Gradients& gradients);
  Tensor block_backward(const BlockLayers& block, const Tensor& x, const Tensor& dy, const BlockTape& tape, int batch,
                        Gradients& gradients);
  void keep_gradients(const Conv& conv, const Tensor& x, const Tensor& dy, int batch, Gradients& gradients);
  Tensor conv_relu_backward(const Conv& conv, const Tensor& x, const Tensor& y, Tensor dy, int batch,
                            Gradients& gradients);
  void update(const Gradients& gradients, float rate, float momentum);

  const ModelShape& shape_ = model_shape();
  Stream& stream_;
  Layers layers_;
  std::vector<Conv> convolutions_;  // in the order of model_convolutions()
  BlockLayers block1_, block2_;
  DeviceBuffer loss_;
};

}  // namespace digits
