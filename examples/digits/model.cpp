// The network's shape and its initial values.
#include "model.h"

#include <cmath>

#include "random.h"

namespace digits {
namespace {

BlockShape make_block(const std::string& name, int size, int in, int one, int three_reduce, int three, int five_reduce,
                      int five, int project) {
  return {
      .one = {name + ".one", 1, in, one, size},
      .three_reduce = {name + ".three_reduce", 1, in, three_reduce, size},
      .three = {name + ".three", 3, three_reduce, three, size},
      .five_reduce = {name + ".five_reduce", 1, in, five_reduce, size},
      .five = {name + ".five", 5, five_reduce, five, size},
      .project = {name + ".project", 1, in, project, size},
  };
}

ModelShape make_model() {
  ModelShape model;
  model.stem = {"stem", 3, 1, 16, kImageSize};
  model.block1 = make_block("block1", kImageSize, 16, 8, 8, 8, 4, 4, 4);
  model.block2 = make_block("block2", kImageSize / 2, model.block1.out_channels(), 16, 12, 16, 6, 12, 12);
  model.classifier = {"classifier", 1, model.block2.out_channels() * model.block2.size() * model.block2.size(),
                      kClasses, 1};
  return model;
}

}  // namespace

const ModelShape& model_shape() {
  static const ModelShape model = make_model();
  return model;
}

std::vector<ConvShape> model_convolutions() {
  const ModelShape& model = model_shape();
  std::vector<ConvShape> list = {model.stem};
  for (const BlockShape* block : {&model.block1, &model.block2})
    list.insert(list.end(),
                {block->one, block->three_reduce, block->three, block->five_reduce, block->five, block->project});
  list.push_back(model.classifier);
  return list;
}

// He initialisation: uniform, with the variance 2 / fan_in that keeps the signal's strength through a ReLU.
Parameters initial_parameters(std::uint64_t seed) {
  Random random(seed);
  Parameters parameters;
  for (const ConvShape& conv : model_convolutions()) {
    const float limit = std::sqrt(6.0f / static_cast<float>(conv.fan_in()));
    std::vector<float> weights(conv.weight_count());
    for (float& weight : weights) weight = limit * random.uniform();
    parameters.push_back(std::move(weights));
    parameters.emplace_back(conv.out_channels, 0.0f);
  }
  return parameters;
}

}  // namespace digits
