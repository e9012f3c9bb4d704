// Reads and writes the weights file.
#include "weights.h"

#include <xxhash.h>

#include <bit>
#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "error.h"

namespace digits {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is written as the memory lies");

constexpr std::string_view kMagic = "DIGITSW1";

void append_bytes(std::string& to, const void* data, std::size_t bytes) {
  to.append(static_cast<const char*>(data), bytes);
}

void append_number(std::string& to, std::size_t number) {
  const auto value = static_cast<std::uint32_t>(number);
  append_bytes(to, &value, sizeof(value));
}

class Reader {
 public:
  Reader(const std::string& bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  void take(void* to, std::size_t bytes) {
    if (bytes > bytes_.size() - at_) fail("it is cut short");
    std::memcpy(to, bytes_.data() + at_, bytes);
    at_ += bytes;
  }

  std::uint32_t take_number() {
    std::uint32_t value = 0;
    take(&value, sizeof(value));
    return value;
  }

  bool at_end() const { return at_ == bytes_.size(); }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(name_ + " is no weights file for this network: " + why);
  }

 private:
  const std::string& bytes_;
  const std::string& name_;
  std::size_t at_ = 0;
};

}  // namespace

std::string encode_weights(const Parameters& parameters) {
  std::string bytes(kMagic);
  append_number(bytes, parameters.size());
  for (const std::vector<float>& tensor : parameters) {
    append_number(bytes, tensor.size());
    append_bytes(bytes, tensor.data(), tensor.size() * sizeof(float));
  }
  return bytes;
}

Parameters decode_weights(const std::string& bytes, const std::string& name) {
  Reader reader(bytes, name);
  char magic[kMagic.size()];
  reader.take(magic, sizeof(magic));
  if (std::string_view(magic, sizeof(magic)) != kMagic) reader.fail("it does not start with " + std::string(kMagic));

  Parameters parameters;
  for (const ConvShape& shape : model_convolutions()) {
    parameters.emplace_back(shape.weight_count());
    parameters.emplace_back(shape.out_channels);
  }
  const std::uint32_t tensors = reader.take_number();
  if (tensors != parameters.size())
    reader.fail("it has " + std::to_string(tensors) + " tensors, not " + std::to_string(parameters.size()));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<float>& tensor = parameters[i];
    const std::uint32_t count = reader.take_number();
    if (count != tensor.size())
      reader.fail("tensor " + std::to_string(i) + " has " + std::to_string(count) + " values, not " +
                  std::to_string(tensor.size()));
    reader.take(tensor.data(), tensor.size() * sizeof(float));
    for (const float value : tensor)
      if (!std::isfinite(value)) reader.fail("tensor " + std::to_string(i) + " has a value that is not finite");
  }
  if (!reader.at_end()) reader.fail("there is more after the last tensor");
  return parameters;
}

void save_weights(const Parameters& parameters, const std::filesystem::path& file) {
  const std::string bytes = encode_weights(parameters);
  const std::filesystem::path unfinished = file.string() + ".part";
  {
    std::ofstream out(unfinished, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) throw Error("cannot write " + unfinished.string());
  }
  std::error_code error;
  std::filesystem::rename(unfinished, file, error);
  if (error) throw Error("cannot write " + file.string() + ": " + error.message());
}

std::string weights_digest(const Parameters& parameters) {
  const std::string bytes = encode_weights(parameters);
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, std::uint64_t{XXH3_64bits(bytes.data(), bytes.size())});
  return text;
}

Parameters load_weights(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error("cannot read the weights file " + file.string());
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  return decode_weights(bytes, file.string());
}

}  // namespace digits
