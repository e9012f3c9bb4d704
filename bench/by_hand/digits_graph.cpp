// digits with its training step as a CUDA graph, written by hand: the gain of a program that is rewritten for graphs,
// to compare Nimble with. The kernels, the network and the program around it are those of examples/digits.
//
//   digits_graph line|branches ARGUMENTS...      as `digits ARGUMENTS...`
//
// There is a graph for each pair of pinned buffers that the trainer fills, so that a step is one cuGraphLaunch and
// nothing is changed in a graph before it. The learning rate is a constant of theirs: they are recreated, before the
// epoch's steps are timed, when it changes. `branches` is the graph with the step's parallelism, `line` a capture of
// the program as it is, each of them without allocations.
#include <cstdio>
#include <cstring>

#include "bench/by_hand/capture_stream.h"
#include "examples/digits/program.h"

namespace nimble::bench {
namespace {

class GraphNetwork final : public digits::Network {
 public:
  GraphNetwork(const digits::Device& device, CaptureStream& stream, const digits::Parameters& initial)
      : Network(device, stream, initial), stream_(stream) {}

  void prepare(const digits::Batch& batch, float rate, float momentum, const digits::Event& inputs_read) override {
    Step* step = find(batch);
    if (step && step->rate == rate && step->momentum == momentum) return;
    if (!step) step = &steps_.emplace_back(Step{batch, 0, 0, nullptr});
    stream_.synchronize();
    step->graph = nullptr;
    stream_.begin();
    Network::train_step(batch, rate, momentum, inputs_read);
    step->graph = stream_.end();
    step->rate = rate;
    step->momentum = momentum;
  }

  void train_step(const digits::Batch& batch, float rate, float momentum, const digits::Event& inputs_read) override {
    const Step* const step = find(batch);
    if (step && step->rate == rate && step->momentum == momentum) return stream_.launch_graph(*step->graph);
    Network::train_step(batch, rate, momentum, inputs_read);
  }

 private:
  struct Step {
    digits::Batch batch;
    float rate, momentum;
    std::unique_ptr<Graph> graph;
  };

  Step* find(const digits::Batch& batch) {
    for (Step& step : steps_) {
      if (step.batch.pixels == batch.pixels && step.batch.labels == batch.labels && step.batch.size == batch.size)
        return &step;
    }
    return nullptr;
  }

  CaptureStream& stream_;
  std::vector<Step> steps_;
};

}  // namespace
}  // namespace nimble::bench

int main(int argc, char** argv) {
  using namespace nimble::bench;
  const bool line = argc > 1 && std::strcmp(argv[1], "line") == 0;
  if (!line && !(argc > 1 && std::strcmp(argv[1], "branches") == 0)) {
    std::fprintf(stderr, "usage: digits_graph line|branches ARGUMENTS..., as for digits\n");
    return 2;
  }
  const digits::Makers makers = {
      .stream = [&] { return std::make_unique<CaptureStream>(line ? Shape::line : Shape::branches); },
      .network =
          [](const digits::Device& device, digits::Stream& stream, const digits::Parameters& parameters) {
            return std::make_unique<GraphNetwork>(device, dynamic_cast<CaptureStream&>(stream), parameters);
          }};
  return digits::program(argc - 1, argv + 1, makers);
}
