// Forward passes: accuracy over a data set, and the latency of single batches.
#pragma once

#include <vector>

#include "dataset.h"
#include "driver.h"
#include "network.h"

namespace digits {

// The part of a data set that the network labels rightly, from 0 to 1. The whole set is one batch.
class Accuracy {
 public:
  explicit Accuracy(const Dataset& data);
  double measure(Network& network, Stream& stream);

 private:
  const Dataset& data_;
  PinnedBuffer<std::uint8_t> pixels_;
  PinnedBuffer<float> logits_;
};

// Host time in microseconds of each of `repeat` passes over one batch, from the copy of its images into pinned memory
// to its logits being there. The batches walk through the data set.
std::vector<double> measure_latency(Network& network, Stream& stream, const Dataset& data, int batch, int repeat);

// The value below which the given part (0 to 1) of the values lies. The list is not empty.
double percentile(std::vector<double> values, double part);

}  // namespace digits
