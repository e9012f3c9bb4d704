// Op graphs of published networks, written down as small generators, with durations from a roofline, to compare
// policies on. They keep only what matters for that: which op reads which, and how large it is.
//
// Pure; the same every time. Owned by the benchmarks and by the analyzer's tests. Ops are numbered in the order in
// which a framework would launch them, which is a topological order. No errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/graph/dag.h"
#include "analyzer/model/predict.h"

namespace nimble::bench {

struct OpGraph {
  std::string name;
  analyzer::Dag reads;  // data dependencies
  analyzer::Dag dag;    // the same without redundant edges
  std::vector<analyzer::OpCost> costs;
};

// The roofline: NVIDIA's data sheet of the H200 SXM, and the share that a good kernel reaches.
inline constexpr double kFp32Flops = 67e12;       // data sheet
inline constexpr double kFlopsReached = 0.6;      // of it, by a large matrix product in single precision
inline constexpr std::uint64_t kTile = 32;        // rows and columns of a product per block
inline constexpr std::uint64_t kElements = 1024;  // a block of an elementwise kernel, in floats

OpGraph googlenet();      // Szegedy et al. 2015, with batch normalisation as torchvision has it; 224 x 224
OpGraph inception_v3();   // Szegedy et al. 2016; 299 x 299
OpGraph nasnet_mobile();  // Zoph et al. 2018: NASNet-A, 4 @ 1056; 224 x 224
OpGraph nasnet_large();   // the same, 6 @ 4032; 331 x 331
OpGraph darts();          // Liu et al. 2019: the second-order genotype, 14 cells; 224 x 224
OpGraph transformer();    // Vaswani et al. 2017: one block of an encoder, 1024 wide, 128 tokens
OpGraph training_step();  // a residual net of 9 layers on 32 x 32, batch 32: forward, backward, one update per weight
// Layers of `width` ops, each reading one to three of the previous layer. `heavy`: the share of ops bound by memory
// bandwidth.
OpGraph layered(std::uint32_t layers, std::uint32_t width, double heavy, std::uint64_t seed);

// All of these, and random ones of several shapes.
std::vector<OpGraph> all_graphs();

}  // namespace nimble::bench
