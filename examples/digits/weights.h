// The weights file: magic and version, then each tensor's length and floats, little-endian.
//
//   8 bytes "DIGITSW1", u32 number of tensors, then for each tensor: u32 number of floats, the floats
#pragma once

#include <filesystem>
#include <string>

#include "model.h"

namespace digits {

std::string encode_weights(const Parameters& parameters);

// Throws Error unless the bytes are a whole weights file for model_convolutions(), with finite values. `name` is for
// messages.
Parameters decode_weights(const std::string& bytes, const std::string& name);

// Writes the file whole or not at all.
void save_weights(const Parameters& parameters, const std::filesystem::path& file);
// The XXH3 hash of the file's bytes, as 16 hexadecimal digits.
std::string weights_digest(const Parameters& parameters);
Parameters load_weights(const std::filesystem::path& file);

}  // namespace digits
