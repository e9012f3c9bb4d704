#include "shim/state/code/image_facts.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>

#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/process/quiet_file.h"
#include "shim/process/host_memory.h"

namespace nimble::shim {

namespace {

using code::Bytes;

constexpr std::size_t kAlwaysCopied = std::size_t{64} << 10, kMostCopied = std::size_t{64} << 20;
constexpr std::size_t kSimulatedHeader = 56;  // tests/simcuda/image/image_abi.h
constexpr std::size_t kMostRead = std::size_t{1} << 30, kFingerprint = 4096;

ImageFacts no(std::string why) { return {false, std::move(why)}; }
ImageFacts yes() { return {true, {}}; }

// Whether the driver is told to compile PTX even if there is machine code: then what we read in an image is not what
// runs.
bool forces_ptx() {
  return std::ranges::any_of(std::array{"CUDA_FORCE_PTX_JIT", "CUDA_FORCE_JIT"}, [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value && std::string_view(value) != "0";
  });
}

// Whether these bytes are part of a library or program that is loaded, in memory that is not written.
bool is_loaded_code(Bytes bytes) {
  struct Search {
    std::uintptr_t begin, end;
    bool found = false;
  } search{reinterpret_cast<std::uintptr_t>(bytes.data()),
           reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size()};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          const std::uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
          if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
          if (wanted.begin >= begin && wanted.end <= begin + segment.p_filesz) wanted.found = true;
        }
        return wanted.found ? 1 : 0;
      },
      &search);
  return search.found;
}

// A copy of memory that may be gone by now; nothing if it is. Takes no lock.
std::optional<std::string> copy_of(const char* at, std::size_t size) {
  std::string copy(size, '\0');
  if (!read_host_memory(reinterpret_cast<std::uintptr_t>(at), {reinterpret_cast<std::uint8_t*>(copy.data()), size}))
    return std::nullopt;
  return copy;
}

template <class T>
T read_at(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// An image of the simulated driver (tests/simcuda/image/image_abi.h): a shared object per build, which exports its
// kernels, its variables, and simcuda_image. It cannot call out: the simulator provides nothing to call.
bool is_simulated(const char* image) { return std::memcmp(image, "SIMCUDA1", 8) == 0; }

ImageFacts simulated_facts(const char* image) {
  const auto offset = read_at<std::uint64_t>(image + 8), size = read_at<std::uint64_t>(image + 16);
  const char* elf = image + offset;
  if (size < sizeof(Elf64_Ehdr) || std::memcmp(elf, ELFMAG, SELFMAG) != 0) return no("damaged simulated image");
  const auto header = read_at<Elf64_Ehdr>(elf);
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const auto s = read_at<Elf64_Shdr>(elf + header.e_shoff + i * sizeof(Elf64_Shdr));
    if (s.sh_type != SHT_DYNSYM) continue;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= s.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read_at<Elf64_Sym>(elf + s.sh_offset + at);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && symbol.st_shndx != SHN_UNDEF)
        return no("it has global variables");
    }
  }
  return yes();
}

LoadedImage simulated_image(const char* image) {
  LoadedImage result{simulated_facts(image), nullptr, 0, false, nullptr, 0};
  result.digest = code::digest_of({image + read_at<std::uint64_t>(image + 8), read_at<std::uint64_t>(image + 16)});
  const auto offset = read_at<std::uint64_t>(image + 40), size = read_at<std::uint64_t>(image + 48);
  if (size) result.code = std::make_shared<code::Image>(std::string(image + offset, size), proofs());
  result.fingerprint = result.digest ^ code::digest_of({image + offset, size});
  return result;
}

LoadedImage unknown(const char* why) { return {no(why), nullptr, 0, false, nullptr, 0}; }

LoadedImage by_kernel(std::shared_ptr<code::Image> code, std::uint64_t fingerprint) {
  return {no("its code is read kernel by kernel"), std::move(code), 0, true, nullptr, fingerprint};
}

LoadedImage copied(std::string bytes) {
  const std::uint64_t fingerprint = code::digest_of(bytes);
  return by_kernel(std::make_shared<code::Image>(std::move(bytes), proofs()), fingerprint);
}

// Not a pipe: bytes read from it would be lost to the driver.
std::string read_file(const char* path) {
  const auto there = what_is_at(path, /*follow=*/true);
  std::string bytes;
  if (!there || !S_ISREG(there->stx_mode)) return bytes;
  return read_quiet(path, kMostRead, bytes) == 0 ? bytes : std::string();
}

ImageFacts facts_of_whole(const LoadedImage& image) {
  if (!image.by_kernel) return image.facts;
  const code::KernelFacts facts = image.code->whole();
  return {facts.self_contained, facts.why};
}

}  // namespace

const std::shared_ptr<code::ProofCache>& proofs() {
  // Never destroyed: threads may launch while the process ends.
  static const auto* const cache = new std::shared_ptr<code::ProofCache>(std::make_shared<code::ProofCache>());
  return *cache;
}

code::Image::Source read_in_place(Bytes bytes) {
  const std::size_t edge = std::min(kFingerprint, bytes.size());
  std::string first(bytes.substr(0, edge)), last(bytes.substr(bytes.size() - edge));
  return [bytes, first = std::move(first), last = std::move(last)]() -> std::optional<std::string> {
    auto copy = copy_of(bytes.data(), bytes.size());
    if (!copy || !copy->starts_with(first) || !copy->ends_with(last)) return std::nullopt;
    return copy;
  };
}

namespace {

LoadedImage read_image(const void* image) {
  if (!image) return unknown("no image");
  if (is_simulated(static_cast<const char*>(image))) return simulated_image(static_cast<const char*>(image));
  if (forces_ptx()) return unknown("the driver is told to compile PTX (CUDA_FORCE_PTX_JIT or CUDA_FORCE_JIT)");
  const auto bytes = code::image_in_memory(image);
  if (!bytes) return unknown("unknown image format");
  if (bytes->size() > kAlwaysCopied && is_loaded_code(*bytes))
    return by_kernel(std::make_shared<code::Image>(read_in_place(*bytes), proofs()), 0);
  if (bytes->size() > kMostCopied) return unknown("it is too large to be copied");
  return copied(std::string(*bytes));
}

LoadedImage read_image_file(std::string bytes) {
  if (bytes.empty()) return unknown("the image file could not be read");
  if (bytes.size() >= kSimulatedHeader && is_simulated(bytes.data())) return simulated_image(bytes.data());
  if (forces_ptx()) return unknown("the driver is told to compile PTX (CUDA_FORCE_PTX_JIT or CUDA_FORCE_JIT)");
  return copied(std::move(bytes));
}

std::atomic<bool> g_keep_bytes{false};

code::Image::Source held(std::string bytes) {
  return [bytes = std::make_shared<const std::string>(std::move(bytes))] { return std::optional(*bytes); };
}

// The size of a simulated driver's image: its header, and three parts.
std::size_t simulated_bytes(const char* image) {
  std::uint64_t end = kSimulatedHeader;
  for (const int at : {8, 24, 40})
    end = std::max(end, read_at<std::uint64_t>(image + at) + read_at<std::uint64_t>(image + at + 8));
  return end;
}

// Reads a whole image in memory; nothing if its end is not known.
code::Image::Source source_of(const void* image) {
  const auto* const first = static_cast<const char*>(image);
  if (is_simulated(first)) return held(std::string(first, simulated_bytes(first)));
  const auto bytes = code::image_in_memory(image);
  if (!bytes) return nullptr;
  return bytes->size() > kAlwaysCopied && is_loaded_code(*bytes) ? read_in_place(*bytes) : held(std::string(*bytes));
}

}  // namespace

void keep_image_bytes() { g_keep_bytes = true; }

LoadedImage load_image(const void* image) {
  LoadedImage loaded = read_image(image);
  if (image && g_keep_bytes) loaded.source = source_of(image);
  return loaded;
}

LoadedImage load_image_file(const char* path) {
  std::string bytes = path ? read_file(path) : std::string();
  code::Image::Source source = g_keep_bytes && !bytes.empty() ? held(bytes) : nullptr;
  LoadedImage loaded = read_image_file(std::move(bytes));
  loaded.source = std::move(source);
  return loaded;
}

ImageFacts image_facts(const void* image) { return facts_of_whole(load_image(image)); }
ImageFacts image_facts_of_file(const char* path) { return facts_of_whole(load_image_file(path)); }

}  // namespace nimble::shim
