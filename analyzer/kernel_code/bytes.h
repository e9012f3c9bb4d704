// Bounded reading of binary files: every read says whether it stayed inside.
//
// Plain functions over memory that the caller owns; any thread. An image comes from outside: no offset in it is
// trusted.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace nimble::code {

// The bytes of an image or of a part of one. The memory belongs to whoever read the image.
using Bytes = std::string_view;

// A plain value at an offset, aligned or not; nothing if it would reach past the end.
template <class T>
std::optional<T> read_at(Bytes bytes, std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// A part of it; nothing if it would reach past the end.
inline std::optional<Bytes> part(Bytes bytes, std::uint64_t offset, std::uint64_t size) {
  if (offset > bytes.size() || bytes.size() - offset < size) return std::nullopt;
  return bytes.substr(offset, size);
}

// The text that ends with a zero byte, or with the bytes; empty if the offset is outside.
inline std::string_view text_at(Bytes bytes, std::uint64_t offset) {
  if (offset >= bytes.size()) return {};
  const std::string_view rest = bytes.substr(offset);
  return rest.substr(0, rest.find('\0'));
}

}  // namespace nimble::code
