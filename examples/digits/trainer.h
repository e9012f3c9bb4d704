// The training loop.
#pragma once

#include <cstdint>
#include <functional>

#include "dataset.h"
#include "driver.h"
#include "network.h"

namespace digits {

struct TrainOptions {
  int epochs = 10;
  int steps = 0;  // stop after so many steps; 0: only after the epochs
  int batch = 32;
  std::uint64_t seed = 1;  // of the initial weights and of the order of the images
  float rate = 0.03f;      // of the first epoch; it falls linearly to the last
  float momentum = 0.9f;
};

struct EpochReport {
  int epoch = 0;  // from 1
  int steps = 0;
  double loss = 0;  // mean of those that were copied back: every tenth step's
  double accuracy = 0;
};

struct TrainReport {
  int steps = 0;
  std::uint64_t operations_per_step = 0;
  double host_us_per_step = 0;      // median host time in which a step is enqueued; waits are not counted
  double host_cpu_us_per_step = 0;  // the same by the clock of the thread, which stands still while it does not run
  double gpu_us_per_step = 0;       // from the device's own clock, over whole epochs
  double loss = 0, accuracy = 0;
  std::uint64_t seed = 0;
};

// Trains the network in place. Batches that would not be full are left out.
TrainReport train(Network& network, Stream& stream, const Split& data, const TrainOptions& options,
                  const std::function<void(const EpochReport&)>& on_epoch);

}  // namespace digits
