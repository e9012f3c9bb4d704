// Packs the shared objects of one set of kernels into an image file that the simulated driver loads (image_abi.h).
//
//   simcuda_pack_image OUTPUT PLAIN [INSTRUMENTED]
//
// Writes to a file beside OUTPUT and renames it, so that a broken build leaves no half image behind.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "tests/simcuda/image/image_abi.h"

namespace {

bool read_file(const char* path, std::string& bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  bytes.assign(std::istreambuf_iterator<char>(file), {});
  return !file.bad();
}

// Objects start at multiples of this: an ELF file is read in place, as structs.
constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::cerr << "usage: simcuda_pack_image OUTPUT PLAIN [INSTRUMENTED]\n";
    return 2;
  }
  std::string plain, instrumented;
  for (int i = 2; i < argc; ++i) {
    if (!read_file(argv[i], i == 2 ? plain : instrumented)) {
      std::cerr << "simcuda_pack_image: cannot read " << argv[i] << "\n";
      return 1;
    }
  }

  SimImageHeader header{};
  std::memcpy(header.magic, SIMCUDA_IMAGE_MAGIC, sizeof header.magic);
  header.plain_offset = aligned(sizeof header);
  header.plain_size = plain.size();
  if (!instrumented.empty()) {
    header.instrumented_offset = aligned(header.plain_offset + header.plain_size);
    header.instrumented_size = instrumented.size();
  }

  std::string image(reinterpret_cast<const char*>(&header), sizeof header);
  image.resize(header.plain_offset);
  image += plain;
  if (!instrumented.empty()) {
    image.resize(header.instrumented_offset);
    image += instrumented;
  }

  const std::filesystem::path output = argv[1], partial = output.string() + ".partial";
  std::ofstream(partial, std::ios::binary) << image << std::flush;
  std::error_code error;
  if (std::filesystem::file_size(partial, error) != image.size() || error) {
    std::cerr << "simcuda_pack_image: cannot write " << partial << "\n";
    return 1;
  }
  std::filesystem::rename(partial, output, error);
  if (error) {
    std::cerr << "simcuda_pack_image: cannot write " << output << ": " << error.message() << "\n";
    return 1;
  }
  return 0;
}
