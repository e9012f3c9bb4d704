// Images for the tests.
#pragma once

#include <vector>

#include "examples/digits/dataset.h"

namespace digits::test {

// The data set's own images, in the order of the file.
inline Dataset all_images() { return read_dataset(DIGITS_HOME "/optdigits.csv"); }

inline Dataset some_images(int first, int count) {
  const Dataset all = all_images();
  Dataset some;
  some.pixels.assign(all.pixels.begin() + first * kPixels, all.pixels.begin() + (first + count) * kPixels);
  some.labels.assign(all.labels.begin() + first, all.labels.begin() + first + count);
  return some;
}

}  // namespace digits::test
