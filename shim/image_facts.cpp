#include "shim/image_facts.h"

#include <elf.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

namespace nimble::shim {

namespace {

ImageFacts no(std::string why) { return {false, std::move(why)}; }
ImageFacts yes() { return {true, {}}; }

template <class T>
T read_at(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Calls that a kernel makes out of its image. A failing assertion ends the program, so its order means nothing.
bool harmless_call(std::string_view name) { return name.empty() || name == "__assertfail"; }

// A cubin: variables live in .nv.global[.init] and .nv.constant3; calls out of it are undefined symbols. Constant bank
// 3 is for __constant__ variables, the others are for parameters and the compiler. (CUDA Binary Utilities, ELF section
// names.)
ImageFacts cubin_facts(const char* elf, std::uint64_t limit) {
  const auto header = read_at<Elf64_Ehdr>(elf);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr))
    return no("unknown ELF layout");
  const std::uint64_t table_end = header.e_shoff + std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
  if (table_end > limit || header.e_shoff > table_end || header.e_shstrndx >= header.e_shnum) return no("damaged ELF");
  const auto section = [&](unsigned i) { return read_at<Elf64_Shdr>(elf + header.e_shoff + i * sizeof(Elf64_Shdr)); };
  const auto inside = [&](const Elf64_Shdr& s) { return s.sh_offset <= limit && s.sh_size <= limit - s.sh_offset; };
  const auto text = [&](const Elf64_Shdr& strings, std::uint64_t offset) -> std::string_view {
    if (!inside(strings) || offset >= strings.sh_size) return {};
    const char* begin = elf + strings.sh_offset + offset;
    return {begin, strnlen(begin, strings.sh_size - offset)};
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    const std::string_view name = text(names, s.sh_name);
    if ((name.starts_with(".nv.global") || name.starts_with(".nv.constant3")) && s.sh_size) {
      return no("it has global variables (" + std::string(name) + ")");
    }
    if (s.sh_type != SHT_SYMTAB || !inside(s) || s.sh_link >= header.e_shnum) continue;
    const Elf64_Shdr strings = section(s.sh_link);
    for (std::uint64_t at = sizeof(Elf64_Sym); at + sizeof(Elf64_Sym) <= s.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read_at<Elf64_Sym>(elf + s.sh_offset + at);
      if (symbol.st_shndx != SHN_UNDEF || ELF64_ST_TYPE(symbol.st_info) == STT_SECTION) continue;
      const std::string_view called = text(strings, symbol.st_name);
      // Names that start with a dot are the assembler's own.
      if (!harmless_call(called) && called[0] != '.') return no("it calls " + std::string(called));
    }
  }
  return yes();
}

// PTX: module-scope variables and external functions, by their directives at the start of a line.
ImageFacts ptx_facts(std::string_view ptx) {
  while (!ptx.empty()) {
    const std::size_t end = ptx.find('\n');
    std::string_view line = ptx.substr(0, end);
    ptx.remove_prefix(end == std::string_view::npos ? ptx.size() : end + 1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    for (const std::string_view linkage : {".visible ", ".weak ", ".common ", ".extern "}) {
      if (line.starts_with(linkage)) line.remove_prefix(linkage.size());
    }
    for (const std::string_view space : {".global ", ".const ", ".tex ", ".surfref ", ".texref ", ".samplerref "}) {
      if (line.starts_with(space)) return no("its PTX has global variables");
    }
    for (const std::string_view name : {"vprintf", "malloc", "free", "cudaLaunchDevice", "cudaGetParameterBuffer"}) {
      if (line.starts_with("call") && line.find(name) != std::string_view::npos)
        return no("its PTX calls " + std::string(name));
      if (line.starts_with(name)) return no("its PTX calls " + std::string(name));
    }
  }
  return yes();
}

// A fatbin: a header and entries, each with PTX or a cubin. Layout as nvcc 13 writes it and cuobjdump reads it.
constexpr std::uint32_t kFatbinMagic = 0xBA55ED50, kFatbinWrapperMagic = 0x466243B1;
constexpr std::uint64_t kCompressedLz4 = 0x2000, kCompressedZstd = 0x8000;
constexpr std::uint16_t kEntryPtx = 1, kEntryElf = 2;

struct FatbinHeader {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;
};

struct FatbinEntry {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;
  std::uint32_t compressed_bytes, options_offset;
  std::uint16_t minor, major;
  std::uint32_t arch, name_offset, name_bytes;
  std::uint64_t flags;
};

ImageFacts fatbin_facts(const char* fatbin) {
  const auto header = read_at<FatbinHeader>(fatbin);
  const char* at = fatbin + header.header_bytes;
  const char* const end = at + header.bytes;
  bool any = false;
  while (at + sizeof(FatbinEntry) <= end) {
    const auto entry = read_at<FatbinEntry>(at);
    if (entry.header_bytes < sizeof(FatbinEntry) || entry.bytes > static_cast<std::uint64_t>(end - at))
      return no("damaged fatbin");
    if (entry.flags & (kCompressedLz4 | kCompressedZstd)) return no("its fatbin is compressed (nvcc --no-compress)");
    const char* const payload = at + entry.header_bytes;
    ImageFacts facts = no("an entry of unknown kind in its fatbin");
    if (entry.kind == kEntryElf) facts = cubin_facts(payload, entry.bytes);
    if (entry.kind == kEntryPtx) facts = ptx_facts({payload, strnlen(payload, entry.bytes)});
    if (!facts.self_contained) return facts;
    any = true;
    at = payload + entry.bytes;
  }
  return any ? yes() : no("empty fatbin");
}

// An image of the simulated driver (tests/simcuda/image/image_abi.h): a shared object per build, which exports its
// kernels, its variables, and simcuda_image. It cannot call out: the simulator offers it nothing to call.
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

}  // namespace

ImageFacts image_facts(const void* image) {
  const char* bytes = static_cast<const char*>(image);
  if (!bytes) return no("no image");
  if (std::memcmp(bytes, ELFMAG, SELFMAG) == 0) {
    // The driver's callers pass no size: an ELF file's section table stands at its end.
    const auto header = read_at<Elf64_Ehdr>(bytes);
    return cubin_facts(bytes, header.e_shoff + std::uint64_t{header.e_shnum} * header.e_shentsize);
  }
  const auto magic = read_at<std::uint32_t>(bytes);
  if (magic == kFatbinMagic) return fatbin_facts(bytes);
  if (magic == kFatbinWrapperMagic) {
    struct Wrapper {
      std::uint32_t magic, version;
      const char* data;
    };
    return image_facts(read_at<Wrapper>(bytes).data);
  }
  if (std::memcmp(bytes, "SIMCUDA1", 8) == 0) return simulated_facts(bytes);
  const std::string_view text(bytes, strnlen(bytes, 4096));
  if (text.find(".version") != std::string_view::npos) return ptx_facts({bytes, std::strlen(bytes)});
  return no("unknown image format");
}

ImageFacts image_facts_of_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() < sizeof(Elf64_Ehdr)) return no("the image file could not be read");
  bytes.insert(bytes.end(), 64, '\0');  // ends PTX text
  const bool elf = std::memcmp(bytes.data(), ELFMAG, SELFMAG) == 0;
  return elf ? cubin_facts(bytes.data(), bytes.size() - 64) : image_facts(bytes.data());
}

}  // namespace nimble::shim
