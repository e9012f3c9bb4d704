// The CPU reference itself: its gradients against finite differences, and the arithmetic that it shares with the
// kernels.
#include "reference.h"

#include <gtest/gtest.h>

#include <cmath>

#include "examples/digits/random.h"
#include "test_data.h"

namespace digits::test {
namespace {

TEST(Reference, GradientsAreTheFiniteDifferencesOfTheLoss) {
  const Dataset images = some_images(100, 2);
  Reference<double> network(initial_parameters(5));
  // Biases away from zero, so that no unit sits on the kink of its ReLU.
  Random random(6);
  for (auto& tensor : network.parameters())
    for (double& value : tensor) value += 0.02 * static_cast<double>(random.uniform());
  network.backward(images.pixels, images.labels);
  const Reference<double>::Tensors gradients = network.gradients();

  constexpr double kStep = 1e-6;
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    for (int sample = 0; sample < 6; ++sample) {
      const std::size_t i = random.below(gradients[t].size());
      double& parameter = network.parameters()[t][i];
      const double value = parameter;
      parameter = value + kStep;
      const double above = network.loss(images.pixels, images.labels);
      parameter = value - kStep;
      const double below = network.loss(images.pixels, images.labels);
      parameter = value;
      const double difference = (above - below) / (2 * kStep);
      EXPECT_NEAR(gradients[t][i], difference, 1e-7 + 1e-5 * std::abs(difference)) << "tensor " << t << ", value " << i;
    }
  }
}

TEST(Reference, StepsLowerTheLoss) {
  const Dataset images = some_images(0, 16);
  Reference<float> network(initial_parameters(1));
  const float before = network.step(images.pixels, images.labels, 0.03f, 0.9f);
  for (int i = 0; i < 5; ++i) network.step(images.pixels, images.labels, 0.03f, 0.9f);
  EXPECT_LT(network.loss(images.pixels, images.labels), 0.7f * before);
}

TEST(PortableMath, ExpIsCloseToTheLibrarys) {
  for (float x = 0.0f; x > -79.0f; x -= 0.0137f) {
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(portable_exp(x), exact, 3e-7 * exact) << x;
  }
  EXPECT_EQ(portable_exp(0.0f), 1.0f);
  EXPECT_EQ(portable_exp(-1000.0f), 0.0f);
}

TEST(PortableMath, LogIsCloseToTheLibrarys) {
  for (float x = 1.0f; x < 1000.0f; x *= 1.0013f)
    ASSERT_NEAR(portable_log(x), std::log(static_cast<double>(x)), 1e-6) << x;
  EXPECT_EQ(portable_log(1.0f), 0.0f);
}

}  // namespace
}  // namespace digits::test
