// Packs the shared objects of one set of kernels into an image file that the simulated driver loads (image_abi.h).
//
//   simcuda_pack_image OUTPUT PLAIN [INSTRUMENTED [PTX]]
//
// Writes to a file beside OUTPUT and renames it, so that a broken build leaves no partial image.
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
  if (argc < 3 || argc > 5) {
    std::cerr << "usage: simcuda_pack_image OUTPUT PLAIN [INSTRUMENTED [PTX]]\n";
    return 2;
  }
  std::string parts[3];
  for (int i = 2; i < argc; ++i) {
    if (!read_file(argv[i], parts[i - 2])) {
      std::cerr << "simcuda_pack_image: cannot read " << argv[i] << "\n";
      return 1;
    }
  }

  SimImageHeader header{};
  std::memcpy(header.magic, SIMCUDA_IMAGE_MAGIC, sizeof header.magic);
  std::string image(sizeof header, '\0');
  const auto add = [&](const std::string& part, std::uint64_t& offset, std::uint64_t& size) {
    if (part.empty()) return;
    image.resize(aligned(image.size()));
    offset = image.size();
    size = part.size();
    image += part;
  };
  add(parts[0], header.plain_offset, header.plain_size);
  add(parts[1], header.instrumented_offset, header.instrumented_size);
  add(parts[2], header.ptx_offset, header.ptx_size);
  std::memcpy(image.data(), &header, sizeof header);

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
