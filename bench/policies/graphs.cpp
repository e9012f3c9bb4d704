#include "bench/policies/graphs.h"

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "analyzer/graph/transitive_reduction.h"

namespace nimble::bench {
namespace {

using analyzer::Dag;
using analyzer::OpCost;

// An op's output. `by` is the op, or kInput.
struct Tensor {
  std::uint32_t by;
  std::uint64_t channels, rows, columns;
  std::uint64_t pixels() const { return rows * columns; }
  std::uint64_t elements() const { return channels * pixels(); }
};

constexpr std::uint32_t kInput = 0xffffffffu;

std::uint64_t divided(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

class Builder {
 public:
  OpGraph done(std::string name) {
    auto nodes = static_cast<std::uint32_t>(costs_.size());
    Dag reads(nodes, std::move(edges_));
    Dag reduced = analyzer::transitive_reduction(reads);
    return {std::move(name), std::move(reads), std::move(reduced), std::move(costs_)};
  }

  // A product of matrices: rows x inner, inner x columns.
  std::uint32_t product(std::uint64_t rows, std::uint64_t inner, std::uint64_t columns,
                        const std::vector<std::uint32_t>& reads) {
    std::uint64_t blocks = divided(rows, kTile) * divided(columns, kTile);
    double per_multiprocessor = kFp32Flops * kFlopsReached / device_.multiprocessors;
    double block_us = 2.0 * kTile * kTile * static_cast<double>(inner) / per_multiprocessor * 1e6;
    return add(blocks, block_us, 4 * (rows * inner + inner * columns + rows * columns), reads);
  }

  // Reads and writes this many floats, and computes next to nothing.
  std::uint32_t pass(std::uint64_t read, std::uint64_t written, const std::vector<std::uint32_t>& reads) {
    return add(divided(divided(std::max(read, written), kElements), 8), 0, 4 * (read + written), reads);
  }

  Tensor conv(Tensor x, std::uint64_t channels, std::uint64_t high, std::uint64_t wide, std::uint64_t stride = 1,
              bool padded = true) {
    Tensor y{0, channels, padded ? divided(x.rows, stride) : (x.rows - high) / stride + 1,
             padded ? divided(x.columns, stride) : (x.columns - wide) / stride + 1};
    y.by = product(y.pixels(), x.channels * high * wide, channels, {x.by});
    return y;
  }
  Tensor depthwise(Tensor x, std::uint64_t stride) {
    Tensor y{0, x.channels, divided(x.rows, stride), divided(x.columns, stride)};
    y.by = pass(x.elements(), y.elements(), {x.by});
    return y;
  }
  Tensor pool(Tensor x, std::uint64_t stride, bool padded = true) {
    Tensor y{0, x.channels, padded ? divided(x.rows, stride) : (x.rows - 3) / stride + 1,
             padded ? divided(x.columns, stride) : (x.columns - 3) / stride + 1};
    y.by = pass(x.elements(), y.elements(), {x.by});
    return y;
  }
  // Batch normalisation, an activation, and the like.
  Tensor each(Tensor x) {
    x.by = pass(x.elements(), x.elements(), {x.by});
    return x;
  }
  Tensor add(Tensor x, Tensor y) {
    x.by = pass(2 * x.elements(), x.elements(), {x.by, y.by});
    return x;
  }
  Tensor join(const std::vector<Tensor>& parts) {
    Tensor all = parts.front();
    all.channels = 0;
    std::vector<std::uint32_t> reads;
    for (const Tensor& part : parts) {
      all.channels += part.channels;
      reads.push_back(part.by);
    }
    all.by = pass(all.elements(), all.elements(), reads);
    return all;
  }
  Tensor conv_norm_relu(Tensor x, std::uint64_t channels, std::uint64_t high, std::uint64_t wide,
                        std::uint64_t stride = 1, bool padded = true) {
    return each(each(conv(x, channels, high, wide, stride, padded)));
  }

  // Adds an op of `blocks` blocks, one on a multiprocessor at a time, each with `block_us` of arithmetic.
  std::uint32_t add(std::uint64_t blocks, double block_us, std::uint64_t bytes,
                    const std::vector<std::uint32_t>& reads) {
    auto most = static_cast<std::uint64_t>(device_.multiprocessors);
    OpCost cost;
    cost.engine = Engine::multiprocessors;
    cost.host_us = device_.launch_host_us;
    cost.multiprocessors = static_cast<int>(std::clamp<std::uint64_t>(blocks, 1, most));
    cost.waves = static_cast<int>(std::max<std::uint64_t>(divided(blocks, most), 1));
    double gb_s = std::min(cost.multiprocessors * device_.multiprocessor_gb_s, device_.memory_gb_s);
    cost.device_us = std::max({device_.kernel_base_us, block_us * cost.waves, static_cast<double>(bytes) / gb_s / 1e3});
    cost.bandwidth = analyzer::bandwidth_share(device_, cost, bytes, true);
    return add(cost, reads);
  }
  std::uint32_t add(const OpCost& cost, const std::vector<std::uint32_t>& reads) {
    auto node = static_cast<std::uint32_t>(costs_.size());
    for (std::uint32_t from : reads)
      if (from != kInput) edges_.push_back({from, node});
    costs_.push_back(cost);
    return node;
  }

 private:
  DeviceModel device_;
  std::vector<OpCost> costs_;
  std::vector<Dag::Edge> edges_;
};

void classify(Builder& b, Tensor x, std::uint64_t classes) {
  std::uint32_t mean = b.pass(x.elements(), x.channels, {x.by});
  b.product(1, x.channels, classes, {mean});
}

// ---- GoogLeNet

Tensor inception(Builder& b, Tensor x, std::array<std::uint64_t, 6> width) {
  Tensor one = b.conv_norm_relu(x, width[0], 1, 1);
  Tensor three = b.conv_norm_relu(b.conv_norm_relu(x, width[1], 1, 1), width[2], 3, 3);
  Tensor five = b.conv_norm_relu(b.conv_norm_relu(x, width[3], 1, 1), width[4], 3, 3);
  Tensor pooled = b.conv_norm_relu(b.pool(x, 1), width[5], 1, 1);
  return b.join({one, three, five, pooled});
}

// ---- Inception-v3. Its convolutions outside the modules and those that halve the picture have no padding.

Tensor inception_a(Builder& b, Tensor x, std::uint64_t pooled) {
  Tensor one = b.conv_norm_relu(x, 64, 1, 1);
  Tensor five = b.conv_norm_relu(b.conv_norm_relu(x, 48, 1, 1), 64, 5, 5);
  Tensor three = b.conv_norm_relu(b.conv_norm_relu(b.conv_norm_relu(x, 64, 1, 1), 96, 3, 3), 96, 3, 3);
  return b.join({one, five, three, b.conv_norm_relu(b.pool(x, 1), pooled, 1, 1)});
}

Tensor inception_b(Builder& b, Tensor x) {
  Tensor three = b.conv_norm_relu(x, 384, 3, 3, 2, false);
  Tensor twice = b.conv_norm_relu(b.conv_norm_relu(x, 64, 1, 1), 96, 3, 3);
  twice = b.conv_norm_relu(twice, 96, 3, 3, 2, false);
  return b.join({three, twice, b.pool(x, 2, false)});
}

Tensor inception_c(Builder& b, Tensor x, std::uint64_t width) {
  Tensor one = b.conv_norm_relu(x, 192, 1, 1);
  Tensor seven = b.conv_norm_relu(x, width, 1, 1);
  seven = b.conv_norm_relu(b.conv_norm_relu(seven, width, 1, 7), 192, 7, 1);
  Tensor twice = b.conv_norm_relu(b.conv_norm_relu(x, width, 1, 1), width, 7, 1);
  twice = b.conv_norm_relu(b.conv_norm_relu(twice, width, 1, 7), width, 7, 1);
  twice = b.conv_norm_relu(twice, 192, 1, 7);
  return b.join({one, seven, twice, b.conv_norm_relu(b.pool(x, 1), 192, 1, 1)});
}

Tensor inception_d(Builder& b, Tensor x) {
  Tensor three = b.conv_norm_relu(b.conv_norm_relu(x, 192, 1, 1), 320, 3, 3, 2, false);
  Tensor seven = b.conv_norm_relu(b.conv_norm_relu(b.conv_norm_relu(x, 192, 1, 1), 192, 1, 7), 192, 7, 1);
  seven = b.conv_norm_relu(seven, 192, 3, 3, 2, false);
  return b.join({three, seven, b.pool(x, 2, false)});
}

Tensor inception_e(Builder& b, Tensor x) {
  Tensor one = b.conv_norm_relu(x, 320, 1, 1);
  Tensor three = b.conv_norm_relu(x, 384, 1, 1);
  Tensor left = b.conv_norm_relu(three, 384, 1, 3), right = b.conv_norm_relu(three, 384, 3, 1);
  Tensor joined = b.join({left, right});
  Tensor twice = b.conv_norm_relu(b.conv_norm_relu(x, 448, 1, 1), 384, 3, 3);
  left = b.conv_norm_relu(twice, 384, 1, 3);
  right = b.conv_norm_relu(twice, 384, 3, 1);
  Tensor also = b.join({left, right});
  return b.join({one, joined, also, b.conv_norm_relu(b.pool(x, 1), 192, 1, 1)});
}

// ---- NASNet-A

// ReLU, 1 x 1 convolution, normalisation.
Tensor squeezed(Builder& b, Tensor x, std::uint64_t channels) { return b.each(b.conv(b.each(x), channels, 1, 1)); }

// A separable convolution, applied twice.
Tensor separable(Builder& b, Tensor x, std::uint64_t channels, std::uint64_t stride) {
  for (std::uint64_t step : {stride, std::uint64_t{1}})
    x = b.each(b.conv(b.depthwise(b.each(x), step), channels, 1, 1));
  return x;
}

// Fits the picture before last to the last: halves it on two paths where it is larger.
Tensor fitted(Builder& b, Tensor x, Tensor to, std::uint64_t channels) {
  if (x.rows == to.rows) return squeezed(b, x, channels);
  Tensor start = b.each(x);
  Tensor left = b.conv(b.pool(start, 2), channels / 2, 1, 1);
  Tensor right = b.conv(b.pool(b.each(start), 2), channels - channels / 2, 1, 1);
  return b.each(b.join({left, right}));
}

Tensor nasnet_normal(Builder& b, Tensor before, Tensor last, std::uint64_t channels) {
  Tensor p = fitted(b, before, last, channels), h = squeezed(b, last, channels);
  Tensor c0 = b.add(separable(b, h, channels, 1), separable(b, p, channels, 1));
  Tensor c1 = b.add(separable(b, p, channels, 1), separable(b, p, channels, 1));
  Tensor c2 = b.add(b.pool(h, 1), p);
  Tensor c3 = b.add(b.pool(p, 1), b.pool(p, 1));
  Tensor c4 = b.add(separable(b, h, channels, 1), h);
  return b.join({p, c0, c1, c2, c3, c4});
}

Tensor nasnet_reduction(Builder& b, Tensor before, Tensor last, std::uint64_t channels) {
  Tensor p = fitted(b, before, last, channels), h = squeezed(b, last, channels);
  Tensor c0 = b.add(separable(b, h, channels, 2), separable(b, p, channels, 2));
  Tensor c1 = b.add(b.pool(h, 2), separable(b, p, channels, 2));
  Tensor c2 = b.add(b.pool(h, 2), separable(b, p, channels, 2));
  Tensor c3 = b.add(b.pool(c0, 1), c1);
  Tensor c4 = b.add(separable(b, c0, channels, 1), b.pool(h, 2));
  return b.join({c1, c2, c3, c4});
}

OpGraph nasnet(const char* name, std::uint64_t size, std::uint64_t stem, std::uint64_t channels, int repeats) {
  Builder b;
  Tensor last = b.each(b.conv({kInput, 3, size, size}, stem, 3, 3, 2, false)), before = last;
  auto next = [&](Tensor cell) {
    before = last;
    last = cell;
  };
  next(nasnet_reduction(b, before, last, channels / 4));
  next(nasnet_reduction(b, before, last, channels / 2));
  for (int third = 0; third < 3; ++third) {
    if (third > 0) next(nasnet_reduction(b, before, last, channels <<= 1));
    for (int i = 0; i < repeats; ++i) next(nasnet_normal(b, before, last, channels));
  }
  classify(b, b.each(last), 1000);
  return b.done(name);
}

// ---- DARTS

enum class Edge { separable3, dilated3, skip, max_pool };
struct Link {
  Edge op;
  std::size_t from;
};

Tensor darts_edge(Builder& b, Tensor x, Link link, std::uint64_t channels, std::uint64_t stride) {
  switch (link.op) {
    case Edge::separable3:
      return separable(b, x, channels, stride);
    case Edge::dilated3:
      return b.each(b.conv(b.depthwise(b.each(x), stride), channels, 1, 1));
    case Edge::skip:
      if (stride == 1) return x;
      x = b.each(x);
      return b.each(b.join({b.conv(x, channels / 2, 1, 1, 2), b.conv(x, channels / 2, 1, 1, 2)}));
    case Edge::max_pool:
      return b.each(b.pool(x, stride));
  }
  return x;
}

Tensor darts_cell(Builder& b, Tensor before, Tensor last, std::uint64_t channels, bool reduction) {
  static constexpr Link kNormal[8] = {{Edge::separable3, 0}, {Edge::separable3, 1}, {Edge::separable3, 0},
                                      {Edge::separable3, 1}, {Edge::separable3, 1}, {Edge::skip, 0},
                                      {Edge::skip, 0},       {Edge::dilated3, 2}};
  static constexpr Link kReduction[8] = {{Edge::max_pool, 0}, {Edge::max_pool, 1}, {Edge::skip, 2},
                                         {Edge::max_pool, 1}, {Edge::max_pool, 0}, {Edge::skip, 2},
                                         {Edge::skip, 2},     {Edge::max_pool, 1}};
  const Link* links = reduction ? kReduction : kNormal;
  std::vector<Tensor> states{fitted(b, before, last, channels), squeezed(b, last, channels)};
  for (int state = 0; state < 4; ++state) {
    std::array<Tensor, 2> in{states[0], states[0]};
    for (std::size_t i = 0; i < 2; ++i) {
      Link link = links[2 * state + static_cast<int>(i)];
      in[i] = darts_edge(b, states[link.from], link, channels, reduction && link.from < 2 ? 2 : 1);
    }
    states.push_back(b.add(in[0], in[1]));
  }
  return b.join({states[2], states[3], states[4], states[5]});
}

}  // namespace

OpGraph googlenet() {
  Builder b;
  Tensor x = b.pool(b.conv_norm_relu({kInput, 3, 224, 224}, 64, 7, 7, 2), 2);
  x = b.pool(b.conv_norm_relu(b.conv_norm_relu(x, 64, 1, 1), 192, 3, 3), 2);
  x = inception(b, x, {64, 96, 128, 16, 32, 32});
  x = b.pool(inception(b, x, {128, 128, 192, 32, 96, 64}), 2);
  x = inception(b, x, {192, 96, 208, 16, 48, 64});
  x = inception(b, x, {160, 112, 224, 24, 64, 64});
  x = inception(b, x, {128, 128, 256, 24, 64, 64});
  x = inception(b, x, {112, 144, 288, 32, 64, 64});
  x = b.pool(inception(b, x, {256, 160, 320, 32, 128, 128}), 2);
  x = inception(b, x, {256, 160, 320, 32, 128, 128});
  classify(b, inception(b, x, {384, 192, 384, 48, 128, 128}), 1000);
  return b.done("GoogLeNet");
}

OpGraph inception_v3() {
  Builder b;
  Tensor x = b.conv_norm_relu({kInput, 3, 299, 299}, 32, 3, 3, 2, false);
  x = b.pool(b.conv_norm_relu(b.conv_norm_relu(x, 32, 3, 3, 1, false), 64, 3, 3), 2, false);
  x = b.pool(b.conv_norm_relu(b.conv_norm_relu(x, 80, 1, 1), 192, 3, 3, 1, false), 2, false);
  for (std::uint64_t pooled : {32, 64, 64}) x = inception_a(b, x, pooled);
  x = inception_b(b, x);
  for (std::uint64_t width : {128, 160, 160, 192}) x = inception_c(b, x, width);
  x = inception_d(b, x);
  x = inception_e(b, x);
  classify(b, inception_e(b, x), 1000);
  return b.done("Inception-v3");
}

OpGraph nasnet_mobile() { return nasnet("NASNet-A mobile", 224, 32, 44, 4); }
OpGraph nasnet_large() { return nasnet("NASNet-A large", 331, 96, 168, 6); }

OpGraph darts() {
  Builder b;
  std::uint64_t channels = 48;
  Tensor half = b.each(b.conv({kInput, 3, 224, 224}, channels / 2, 3, 3, 2));
  Tensor before = b.each(b.conv(b.each(half), channels, 3, 3, 2));
  Tensor last = b.each(b.conv(b.each(before), channels, 3, 3, 2));
  constexpr int kCells = 14;
  for (int cell = 0; cell < kCells; ++cell) {
    bool reduction = cell == kCells / 3 || cell == 2 * kCells / 3;
    if (reduction) channels *= 2;
    Tensor next = darts_cell(b, before, last, channels, reduction);
    before = last;
    last = next;
  }
  classify(b, last, 1000);
  return b.done("DARTS");
}

OpGraph transformer() {
  constexpr std::uint64_t kWidth = 1024, kTokens = 128, kHeads = 16, kInner = 4 * kWidth;
  Builder b;
  auto pass = [&](std::uint64_t read, std::uint64_t written, const std::vector<std::uint32_t>& reads) {
    return b.pass(read * kTokens, written * kTokens, reads);
  };
  std::uint32_t x = pass(kWidth, kWidth, {});  // embeddings and positions
  std::array<std::uint32_t, 3> parts{};        // queries, keys, values: product, bias, heads apart
  for (std::uint32_t& part : parts) {
    part = pass(kWidth, kWidth, {b.product(kTokens, kWidth, kWidth, {x})});
    part = pass(kWidth, kWidth, {part});
  }
  std::uint32_t scores = b.product(kTokens * kHeads, kWidth / kHeads, kTokens, {parts[0], parts[1]});
  std::uint32_t weights =
      pass(kTokens * kHeads, kTokens * kHeads, {pass(kTokens * kHeads, kTokens * kHeads, {scores})});
  std::uint32_t mixed = b.product(kTokens * kHeads, kTokens, kWidth / kHeads, {weights, parts[2]});
  std::uint32_t out = b.product(kTokens, kWidth, kWidth, {pass(kWidth, kWidth, {mixed})});
  std::uint32_t sum = pass(2 * kWidth, kWidth, {pass(kWidth, kWidth, {out}), x});
  std::uint32_t normal = pass(kWidth, kWidth, {sum});
  std::uint32_t inner = pass(kInner, kInner, {pass(kInner, kInner, {b.product(kTokens, kWidth, kInner, {normal})})});
  std::uint32_t outer = pass(kWidth, kWidth, {b.product(kTokens, kInner, kWidth, {inner})});
  pass(kWidth, kWidth, {pass(2 * kWidth, kWidth, {outer, normal})});
  return b.done("transformer block");
}

OpGraph training_step() {
  constexpr std::uint64_t kBatch = 32;
  struct Layer {
    std::uint64_t in, out, pixels;  // of all pictures of the batch
    std::uint32_t input, normal, active;
  };
  Builder b;
  std::vector<Layer> layers;
  std::uint32_t x = b.pass(3 * 1024 * kBatch, 3 * 1024 * kBatch, {});
  std::uint64_t channels = 3;
  std::uint32_t kept = x;
  for (std::uint64_t i = 0; i < 9; ++i) {
    std::uint64_t out = std::uint64_t{16} << (i / 3), side = 32 >> (i / 3), pixels = side * side * kBatch;
    Layer layer{channels, out, pixels, x, 0, 0};
    layer.normal = b.pass(out * pixels, out * pixels, {b.product(pixels, 9 * channels, out, {x})});
    // Every second layer adds the input of two layers before.
    std::uint32_t sum =
        i > 0 && i % 2 == 0 ? b.pass(2 * out * pixels, out * pixels, {layer.normal, kept}) : layer.normal;
    if (i % 2 == 0) kept = sum;
    layer.active = b.pass(out * pixels, out * pixels, {sum});
    x = layer.active;
    layers.push_back(layer);
    channels = out;
  }
  std::uint32_t scores =
      b.product(kBatch, channels, 10, {b.pass(channels * layers.back().pixels, channels * kBatch, {x})});
  std::uint32_t gradient = b.pass(10 * kBatch, 10 * kBatch, {scores});
  b.pass(3 * channels * 10, channels * 10, {b.product(channels, kBatch, 10, {gradient, x})});
  gradient = b.product(kBatch, 10, channels, {gradient});
  for (std::size_t i = layers.size(); i-- > 0;) {
    const Layer& layer = layers[i];
    std::uint64_t size = layer.out * layer.pixels, weights = 9 * layer.in * layer.out;
    std::uint32_t active = b.pass(2 * size, size, {gradient, layer.active});
    std::uint32_t normal = b.pass(2 * size, size, {active, layer.normal});
    std::uint32_t of_weights = b.product(9 * layer.in, layer.pixels, layer.out, {normal, layer.input});
    std::uint32_t of_normal = b.pass(size, layer.out, {active});
    if (i > 0) gradient = b.product(layer.pixels, 9 * layer.out, layer.in, {normal});
    b.pass(3 * weights, 2 * weights, {of_weights});  // with momentum
    b.pass(3 * layer.out, 2 * layer.out, {of_normal});
  }
  return b.done("training step");
}

OpGraph layered(std::uint32_t layers, std::uint32_t width, double heavy, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  auto below = [&](std::uint64_t n) { return random() % n; };
  Builder b;
  std::vector<std::uint32_t> last, next;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    next.clear();
    for (std::uint32_t i = 0; i < width; ++i) {
      std::vector<std::uint32_t> reads;
      if (layer > 0)
        for (std::uint64_t r = 1 + below(3); r > 0; --r) reads.push_back(last[below(width)]);
      if (static_cast<double>(below(1000)) < 1000 * heavy)
        next.push_back(b.pass(below(4) << 20, std::uint64_t{1} << 20, reads));
      else
        next.push_back(b.product(32 + 32 * below(8), 64 + 64 * below(32), 32 + 32 * below(4), reads));
    }
    last.swap(next);
  }
  std::string name = "layers ";
  name.append(std::to_string(layers)).append(" x ").append(std::to_string(width));
  if (heavy > 0) name.append(", ").append(std::to_string(static_cast<int>(100 * heavy))).append(" % heavy");
  return b.done(std::move(name));
}

std::vector<OpGraph> all_graphs() {
  std::vector<OpGraph> graphs;
  graphs.push_back(googlenet());
  graphs.push_back(inception_v3());
  graphs.push_back(nasnet_mobile());
  graphs.push_back(nasnet_large());
  graphs.push_back(darts());
  graphs.push_back(transformer());
  graphs.push_back(training_step());
  for (std::uint32_t width : {4, 8, 16, 32}) graphs.push_back(layered(40, width, 0, width));
  for (std::uint32_t width : {4, 8, 16}) graphs.push_back(layered(40, width, 0.4, 100 + width));
  return graphs;
}

}  // namespace nimble::bench
