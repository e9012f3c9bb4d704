#include "shim/rewrite/program_memory/library_memory.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <sstream>
#include <string>
#include <utility>

#include "nimble/internal/process/quiet_file.h"

namespace nimble::shim {

namespace {

constexpr std::size_t kMostMaps = std::size_t{256} << 20;

constexpr std::string_view kLibraries[] = {
    "libcudnn",
    "libcudnn_adv",
    "libcudnn_cnn",
    "libcudnn_engines_precompiled",
    "libcudnn_engines_runtime_compiled",
    "libcudnn_engines_tensor_ir",
    "libcudnn_ext",
    "libcudnn_graph",
    "libcudnn_heuristic",
    "libcudnn_ops",
};

}  // namespace

std::string file_at(const void* place) {
  const auto address = reinterpret_cast<std::uintptr_t>(place);
  std::string text;
  read_quiet("/proc/self/maps", kMostMaps, text);
  std::istringstream maps(std::move(text));
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) continue;
    if (address < begin || address >= end) continue;
    const std::size_t slash = line.rfind('/');
    return slash == std::string::npos ? std::string() : line.substr(slash + 1);
  }
  return {};
}

void LibraryMemory::came(std::uint64_t address, const void* caller) {
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = is_a_librarys_.try_emplace(caller);
  if (is_new) known->second = is_in_library_(caller);
  if (known->second) {
    memory_.insert(address);
  } else {
    memory_.erase(address);
  }
}

void LibraryMemory::goes(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  memory_.erase(address);
}

void LibraryMemory::forget() {
  const std::lock_guard lock(mutex_);
  memory_.clear();
}

void LibraryMemory::code_goes() {
  const std::lock_guard lock(mutex_);
  is_a_librarys_.clear();
}

bool LibraryMemory::holds(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  return memory_.contains(address);
}

bool is_in_such_a_library(const void* place) { return is_such_a_library(file_at(place)); }

bool is_such_a_library(std::string_view name) {
  const std::size_t suffix = name.find(".so");
  if (suffix == std::string_view::npos) return false;
  const std::string_view version = name.substr(suffix + 3);
  const bool is_version = version.find_first_not_of(".0123456789") == std::string_view::npos;
  return is_version && std::ranges::find(kLibraries, name.substr(0, suffix)) != std::end(kLibraries);
}

}  // namespace nimble::shim
