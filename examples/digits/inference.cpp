// Forward passes and what is measured on them.
#include "inference.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

namespace digits {

Accuracy::Accuracy(const Dataset& data)
    : data_(data), pixels_(data.pixels.size()), logits_(static_cast<std::size_t>(data.size()) * kClasses) {
  std::memcpy(pixels_.data(), data.pixels.data(), data.pixels.size());
}

double Accuracy::measure(Network& network, Stream& stream) {
  const int images = data_.size();
  network.classify(pixels_.data(), images, logits_.data());
  stream.synchronize();
  int right = 0;
  for (int image = 0; image < images; ++image) {
    int best = 0;
    for (int c = 1; c < kClasses; ++c)
      if (logits_.data()[c * images + image] > logits_.data()[best * images + image]) best = c;
    if (best == data_.labels[static_cast<std::size_t>(image)]) ++right;
  }
  return static_cast<double>(right) / images;
}

std::vector<double> measure_latency(Network& network, Stream& stream, const Dataset& data, int batch, int repeat) {
  const PinnedBuffer<std::uint8_t> pixels(static_cast<std::size_t>(batch) * kPixels);
  const PinnedBuffer<float> logits(static_cast<std::size_t>(batch) * kClasses);
  std::vector<double> latencies;
  latencies.reserve(static_cast<std::size_t>(repeat));
  int next = 0;
  for (int i = 0; i < repeat; ++i) {
    if (next + batch > data.size()) next = 0;
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(pixels.data(), data.pixels.data() + static_cast<std::size_t>(next) * kPixels, pixels.bytes());
    network.classify(pixels.data(), batch, logits.data());
    stream.synchronize();
    latencies.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    next += batch;
  }
  return latencies;
}

double percentile(std::vector<double> values, double part) {
  const auto at = values.begin() + std::lround(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace digits
