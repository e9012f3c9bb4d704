// The ELF file that a cubin is: its sections and symbols, and the records of NVIDIA's .nv.info sections.
//
// Refers to the bytes that were read, which must outlive it. Bounds are checked: any input gives an answer or an error.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "analyzer/kernel_code/bytes.h"

namespace nimble::code {

struct ElfSection {
  std::string_view name;
  std::uint32_t type = 0, info = 0;
  std::uint64_t size = 0;
  Bytes bytes;  // empty if the section has none in the file
};

struct ElfSymbol {
  std::string_view name;
  unsigned type = 0, section = 0;
  std::uint64_t value = 0, size = 0;
  bool local = false, kernel = false, managed = false;
};

struct ElfRelocation {
  std::uint64_t at = 0;      // in the section that it is for
  std::uint32_t symbol = 0;  // index of the symbol, inside the table
  std::uint32_t type = 0;
  std::int64_t addend = 0;
};

// A record of an .nv.info section: a format, a name, and two bytes that are the value or, for format 4, its size.
struct NvInfo {
  std::uint8_t attribute = 0;
  std::uint16_t value = 0;  // for formats without bytes
  Bytes bytes;
};

class Elf {
 public:
  explicit Elf(Bytes bytes);

  const char* error() const { return error_; }  // null if it could be read
  const std::vector<ElfSection>& sections() const { return sections_; }
  const std::vector<ElfSymbol>& symbols() const { return symbols_; }
  // 90 for code of sm_90; 0 if the file could not be read.
  unsigned arch() const { return arch_; }
  // The section of that name; null if there is none.
  const ElfSection* section(std::string_view name) const;
  // Those of one table; `good` is false if one is damaged.
  std::vector<ElfRelocation> relocations(const ElfSection& table, bool& good) const;
  // Up to the first damaged one.
  static std::vector<NvInfo> infos(Bytes section);

 private:
  bool fail(const char* why) {
    error_ = why;
    return false;
  }
  bool read_sections();
  bool read_symbols();

  const Bytes bytes_;
  const char* error_ = nullptr;
  unsigned arch_ = 0;
  std::vector<ElfSection> sections_;
  std::vector<ElfSymbol> symbols_;
  std::size_t symbol_table_ = 0, symbol_names_ = 0;
};

}  // namespace nimble::code
