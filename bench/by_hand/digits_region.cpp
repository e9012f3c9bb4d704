// digits with its training step as a region of Nimble's C API (include/nimble/nimble.h): run once, and launched from
// then on. To compare with the hand-written graphs of digits_graph.cpp; needs NIMBLE_MODE=regions.
//
//   digits_region ARGUMENTS...      as `digits ARGUMENTS...`
//
// There is a region for each pair of pinned buffers that the trainer fills, and a new one when the learning rate
// changes, which is a scalar of its kernels: the step that makes a region is the program's own.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "examples/digits/error.h"
#include "examples/digits/program.h"
#include "nimble/nimble.h"

namespace nimble::bench {
namespace {

// A stream that regions are launched on.
class RegionStream final : public digits::Stream {
 public:
  nimble_result launch_region(nimble_region* region) {
    ++operations_;
    return nimble_region_launch(region, stream_);
  }
};

class RegionNetwork final : public digits::Network {
 public:
  RegionNetwork(const digits::Device& device, RegionStream& stream, const digits::Parameters& initial)
      : Network(device, stream, initial), stream_(stream) {}

  void train_step(const digits::Batch& batch, float rate, float momentum, const digits::Event& inputs_read) override {
    for (const Step& step : steps_) {
      if (step.batch.pixels != batch.pixels || step.batch.labels != batch.labels || step.batch.size != batch.size ||
          step.rate != rate || step.momentum != momentum)
        continue;
      return check(stream_.launch_region(step.region.get()), "launch", step.region.get());
    }
    if (!steps_.empty() && steps_.front().rate != rate) {
      stream_.synchronize();
      steps_.clear();
    }
    nimble_region* region = nullptr;
    check(nimble_region_begin(&region), "begin", nullptr);
    steps_.push_back({batch, rate, momentum, std::unique_ptr<nimble_region, Destroy>(region)});
    Network::train_step(batch, rate, momentum, inputs_read);
    check(nimble_region_end(region), "end", region);
    check(nimble_region_compile(region), "compile", region);
  }

 private:
  struct Destroy {
    void operator()(nimble_region* region) const { nimble_region_destroy(region); }
  };
  struct Step {
    digits::Batch batch;
    float rate, momentum;
    std::unique_ptr<nimble_region, Destroy> region;
  };

  static void check(nimble_result result, const char* what, nimble_region* region) {
    if (result == NIMBLE_SUCCESS) return;
    char why[300] = "";
    if (region) nimble_region_why(region, why, sizeof why);
    throw digits::Error(std::string("nimble_region_") + what + ": " + std::to_string(result) + " " + why);
  }

  RegionStream& stream_;
  std::vector<Step> steps_;
};

}  // namespace
}  // namespace nimble::bench

int main(int argc, char** argv) {
  using namespace nimble::bench;
  const digits::Makers makers = {
      .stream = [] { return std::make_unique<RegionStream>(); },
      .network =
          [](const digits::Device& device, digits::Stream& stream, const digits::Parameters& parameters) {
            return std::make_unique<RegionNetwork>(device, dynamic_cast<RegionStream&>(stream), parameters);
          }};
  return digits::program(argc, argv, makers);
}
