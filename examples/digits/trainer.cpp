// The training loop: shuffle, fill a pinned slot, enqueue the step; now and then look at the loss.
#include "trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "error.h"
#include "inference.h"
#include "random.h"

namespace digits {
namespace {

constexpr int kSlots = 4;
constexpr int kLossEvery = 10;

double thread_us() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

// Pinned inputs of one step. Several of them let the host fill the next while the device still reads the last.
struct Slot {
  explicit Slot(int batch)
      : pixels(static_cast<std::size_t>(batch) * kPixels),
        labels(static_cast<std::size_t>(batch)),
        read(CU_EVENT_DISABLE_TIMING) {}

  void fill(const Dataset& data, const int* images, int count) {
    for (int i = 0; i < count; ++i) {
      const auto image = static_cast<std::size_t>(images[i]);
      std::copy_n(data.pixels.begin() + static_cast<std::ptrdiff_t>(image * kPixels), kPixels,
                  pixels.data() + static_cast<std::size_t>(i) * kPixels);
      labels.data()[i] = data.labels[image];
    }
  }

  PinnedBuffer<std::uint8_t> pixels;
  PinnedBuffer<std::int32_t> labels;
  Event read;  // recorded when the device has read them
};

class Training {
 public:
  Training(Network& network, Stream& stream, const Dataset& data, const TrainOptions& options)
      : network_(network),
        stream_(stream),
        data_(data),
        options_(options),
        order_(data.labels.size()),
        random_(options.seed ^ 0x5348554646ull) {
    for (auto& slot : slots_) slot = std::make_unique<Slot>(options.batch);
    std::iota(order_.begin(), order_.end(), 0);
  }

  // One epoch, or what is left of the steps. Returns the mean of the losses that were looked at.
  double run_epoch(float rate) {
    random_.shuffle(order_);
    const int batches = static_cast<int>(order_.size()) / options_.batch;
    double losses = 0;
    int loss_count = 0;
    for (auto& slot : slots_) network_.prepare(batch_in(*slot), rate, options_.momentum, slot->read);
    stream_.record(begin_);
    for (int i = 0; i < batches && !finished(); ++i) {
      run_step(order_.data() + static_cast<std::ptrdiff_t>(i) * options_.batch, rate);
      if (steps_ % kLossEvery == 0) {
        losses += read_loss();
        ++loss_count;
      }
    }
    stream_.record(end_);
    stream_.synchronize();
    float milliseconds = 0;
    check(cuEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cuEventElapsedTime");
    gpu_us_ += 1000.0 * static_cast<double>(milliseconds);
    return loss_count > 0 ? losses / loss_count : read_loss();
  }

  bool finished() const { return options_.steps > 0 && steps_ >= options_.steps; }
  int steps() const { return steps_; }
  std::uint64_t operations_per_step() const { return operations_per_step_; }
  double gpu_us_per_step() const { return gpu_us_ / steps_; }
  double host_us_per_step() const { return percentile(host_us_, 0.5); }
  double host_cpu_us_per_step() const { return percentile(host_cpu_us_, 0.5); }

 private:
  void run_step(const int* images, float rate) {
    Slot& slot = *slots_[static_cast<std::size_t>(steps_ % kSlots)];
    slot.read.synchronize();
    slot.fill(data_, images, options_.batch);

    const std::uint64_t operations = stream_.operations();
    const double cpu_start = thread_us();
    const auto start = std::chrono::steady_clock::now();
    network_.train_step(batch_in(slot), rate, options_.momentum, slot.read);
    host_us_.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    host_cpu_us_.push_back(thread_us() - cpu_start);
    operations_per_step_ = stream_.operations() - operations;
    ++steps_;
  }

  Batch batch_in(const Slot& slot) const { return {slot.pixels.data(), slot.labels.data(), options_.batch}; }

  float read_loss() {
    stream_.copy_out(loss_.data(), network_.loss().address(), sizeof(float));
    stream_.synchronize();
    return *loss_.data();
  }

  Network& network_;
  Stream& stream_;
  const Dataset& data_;
  const TrainOptions& options_;
  std::vector<int> order_;
  Random random_;
  std::array<std::unique_ptr<Slot>, kSlots> slots_;
  PinnedBuffer<float> loss_{1};
  Event begin_{CU_EVENT_DEFAULT}, end_{CU_EVENT_DEFAULT};
  int steps_ = 0;
  std::uint64_t operations_per_step_ = 0;
  std::vector<double> host_us_, host_cpu_us_;
  double gpu_us_ = 0;
};

}  // namespace

TrainReport train(Network& network, Stream& stream, const Split& data, const TrainOptions& options,
                  const std::function<void(const EpochReport&)>& on_epoch) {
  if (options.batch > data.train.size())
    throw Error("a batch of " + std::to_string(options.batch) + " is more than the " +
                std::to_string(data.train.size()) + " images for training");
  Training training(network, stream, data.train, options);
  Accuracy accuracy(data.test);
  EpochReport epoch;
  for (int i = 0; i < options.epochs && !training.finished(); ++i) {
    const float rate = options.rate * static_cast<float>(options.epochs - i) / static_cast<float>(options.epochs);
    epoch.epoch = i + 1;
    epoch.loss = training.run_epoch(rate);
    epoch.steps = training.steps();
    epoch.accuracy = accuracy.measure(network, stream);
    on_epoch(epoch);
  }
  TrainReport report;
  report.steps = training.steps();
  report.operations_per_step = training.operations_per_step();
  report.host_us_per_step = training.host_us_per_step();
  report.host_cpu_us_per_step = training.host_cpu_us_per_step();
  report.gpu_us_per_step = training.gpu_us_per_step();
  report.loss = epoch.loss;
  report.accuracy = epoch.accuracy;
  report.seed = options.seed;
  return report;
}

}  // namespace digits
