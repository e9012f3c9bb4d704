// The images and labels, and how they are split.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "model.h"

namespace digits {

struct Dataset {
  std::vector<std::uint8_t> pixels;  // kPixels per image, 0..16
  std::vector<std::int32_t> labels;  // 0..9

  int size() const { return static_cast<int>(labels.size()); }
};

// Reads lines of 64 pixels and a label. Throws Error, naming the line, on anything else.
Dataset read_dataset(const std::filesystem::path& file);

struct Split {
  Dataset train, test;
};

// Four fifths train (1437 of the file's 1797 images), the rest tests (360): after one fixed shuffle, whatever the seed
// of the training.
Split split_dataset(const Dataset& all);

}  // namespace digits
