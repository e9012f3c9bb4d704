// Files being written, by any process: NAME.PID.TIME.part beside the file of that name.
//
// Throws only std::bad_alloc. No state; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nimble {

inline constexpr std::string_view kPartEnding = ".part";

struct PartFile {
  std::string path;
  std::uint64_t time = 0;

  // Whether a process is still writing it.
  bool is_written() const;
};

// Those beside the file of that name, by time.
std::vector<PartFile> parts_of(const std::string& wanted);

}  // namespace nimble
