// The network on the device against the CPU reference, byte for byte, and what the program promises of its steps.
//
// These tests run on whatever driver the process gets: the simulated one, or with LD_LIBRARY_PATH a GPU's.
#include "examples/digits/network.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "reference.h"
#include "test_data.h"

namespace digits::test {
namespace {

// Every test makes a device first: before that, there is no driver to call.
class OnDevice : public testing::Test {
 protected:
  const Device device_{DIGITS_HOME};
};

using Classify = OnDevice;
using Rules = OnDevice;

class Steps : public OnDevice {
 protected:
  static constexpr float kRate = 0.03f, kMomentum = 0.9f;

  // Each step takes the next `batch` images.
  Parameters train_on_device(int steps, int batch) {
    Stream stream;
    Network network(device_, stream, initial_parameters(7));
    const Dataset images = some_images(0, steps * batch);
    const PinnedBuffer<std::uint8_t> pixels(images.pixels.size());
    const PinnedBuffer<std::int32_t> labels(images.labels.size());
    std::copy(images.pixels.begin(), images.pixels.end(), pixels.data());
    std::copy(images.labels.begin(), images.labels.end(), labels.data());
    const Event read(CU_EVENT_DISABLE_TIMING);
    const PinnedBuffer<float> loss(1);
    for (int i = 0; i < steps; ++i) {
      const std::uint64_t before = stream.operations();
      network.train_step({pixels.data() + i * batch * kPixels, labels.data() + i * batch, batch}, kRate, kMomentum,
                         read);
      operations_ = stream.operations() - before;
    }
    stream.copy_out(loss.data(), network.loss().address(), sizeof(float));
    stream.synchronize();
    loss_ = *loss.data();
    return network.parameters();
  }

  static Parameters train_reference(int steps, int batch, float* loss) {
    Reference<float> reference(initial_parameters(7));
    for (int i = 0; i < steps; ++i) {
      const Dataset images = some_images(i * batch, batch);
      *loss = reference.step(images.pixels, images.labels, kRate, kMomentum);
    }
    return reference.parameters();
  }

  static void expect_same_bits(const Parameters& device, const Parameters& reference) {
    ASSERT_EQ(device.size(), reference.size());
    for (std::size_t t = 0; t < device.size(); ++t) {
      ASSERT_EQ(device[t].size(), reference[t].size());
      for (std::size_t i = 0; i < device[t].size(); ++i)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(device[t][i]), std::bit_cast<std::uint32_t>(reference[t][i]))
            << "tensor " << t << ", value " << i << ": " << device[t][i] << " on the device, " << reference[t][i]
            << " in the reference";
    }
  }

  std::uint64_t operations_ = 0;
  float loss_ = 0;
};

TEST_F(Steps, GiveTheReferencesWeights) {
  float loss = 0;
  const Parameters reference = train_reference(3, 32, &loss);
  const Parameters trained = train_on_device(3, 32);
  expect_same_bits(trained, reference);
  EXPECT_EQ(loss_, loss);
}

// Fewer images than slices, and not a divisor of a block of threads.
TEST_F(Steps, GiveTheReferencesWeightsForAnOddBatch) {
  float loss = 0;
  const Parameters reference = train_reference(2, 5, &loss);
  expect_same_bits(train_on_device(2, 5), reference);
  EXPECT_EQ(loss_, loss);
}

TEST_F(Steps, AreManySmallOperations) {
  train_on_device(1, 32);
  EXPECT_GE(operations_, 200u);
}

TEST_F(Steps, FreeWhatTheyAllocate) {
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
  train_on_device(2, 8);
  cuuint64_t used = 1;
  ASSERT_EQ(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used), CUDA_SUCCESS);
  EXPECT_EQ(used, 0u);
}

// A stream orders its work, so the order in which the simulated driver prefers to run things must not matter.
TEST_F(Steps, GiveTheSameWeightsInAnyOrderOfExecution) {
  const auto set_seed = reinterpret_cast<void (*)(std::uint64_t)>(dlsym(RTLD_DEFAULT, "simcuda_set_seed"));
  if (set_seed == nullptr) GTEST_SKIP() << "this is not the simulated driver";
  const Parameters expected = train_on_device(2, 6);
  for (const std::uint64_t seed : {1, 2, 3}) {
    set_seed(seed);
    expect_same_bits(train_on_device(2, 6), expected);
  }
  set_seed(0);
}

TEST_F(Classify, GivesTheReferencesLogits) {
  const Dataset images = some_images(500, 9);
  Stream stream;
  Network network(device_, stream, initial_parameters(11));
  const PinnedBuffer<std::uint8_t> pixels(images.pixels.size());
  std::copy(images.pixels.begin(), images.pixels.end(), pixels.data());
  const PinnedBuffer<float> logits(images.labels.size() * kClasses);
  network.classify(pixels.data(), images.size(), logits.data());
  stream.synchronize();
  const std::vector<float> expected = Reference<float>(initial_parameters(11)).logits(images.pixels);
  EXPECT_EQ(std::vector<float>(logits.data(), logits.data() + images.size() * kClasses), expected);
}

// The rules file has a rule for each kernel whose name tells no types, with a word of the right kind for each
// parameter. (It uses no regular expression but the names themselves.)
TEST_F(Rules, MatchTheKernels) {
  const nlohmann::json file = nlohmann::json::parse(std::ifstream(DIGITS_RULES));
  EXPECT_EQ(file.at("nimble_rules"), 1);
  std::set<std::string> kernels = {
      "digits_normalize",
      "digits_sum_slices",
      "digits_relu_forward",
      "digits_relu_backward",
      "digits_pool2_forward",
      "digits_pool2_backward",
      "digits_pool3_forward",
      "digits_pool3_backward",
      "digits_add4",
      "digits_mean",
      "digits_flatten_forward",
      "digits_flatten_backward",
      "digits_softmax_loss",
      "digits_sgd",
  };
  for (const nlohmann::json& rule : file.at("rules")) {
    const auto kernel = rule.at("kernel").get<std::string>();
    if (kernel.rfind("void ", 0) == 0) continue;
    const auto words = rule.at("params").get<std::vector<std::string>>();
    EXPECT_EQ(kernels.erase(kernel), 1u) << kernel;
    const CUfunction function = device_.function(kernel);
    std::size_t offset = 0, size = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
      ASSERT_EQ(cuFuncGetParamInfo(function, i, &offset, &size), CUDA_SUCCESS) << kernel << ", parameter " << i;
      EXPECT_EQ(words[i] == "value", size != sizeof(CUdeviceptr)) << kernel << ", parameter " << i;
    }
    EXPECT_EQ(cuFuncGetParamInfo(function, words.size(), &offset, &size), CUDA_ERROR_INVALID_VALUE) << kernel;
  }
  EXPECT_TRUE(kernels.empty()) << "no rule for " << *kernels.begin();
}

}  // namespace
}  // namespace digits::test
