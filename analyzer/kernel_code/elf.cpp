#include "analyzer/kernel_code/elf.h"

#include <elf.h>

#include <algorithm>
#include <cstddef>

namespace nimble::code {
namespace {

constexpr unsigned char kEntryPoint = 0x10;  // st_other: a kernel, not a function of the device
constexpr unsigned char kManaged = 0x04;     // a variable in memory that the host reaches, too

// The shared memory of code that is yet to be linked: like SHT_NOBITS, it takes no bytes in the file.
constexpr std::uint32_t kUnlinkedShared = SHT_LOPROC + 0xa;

// From this version of the ABI on, the architecture is in the second byte of the flags, not in the first.
constexpr unsigned kFirstNewFlags = 8;

}  // namespace

Elf::Elf(Bytes bytes) : bytes_(bytes) {
  if (read_sections()) read_symbols();
}

bool Elf::read_sections() {
  const auto header = read_at<Elf64_Ehdr>(bytes_, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return fail("no ELF file");
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shnum == 0)
    return fail("unknown ELF layout");
  arch_ = header->e_ident[EI_ABIVERSION] >= kFirstNewFlags ? header->e_flags >> 8 & 0xff : header->e_flags & 0xff;
  const auto table = part(bytes_, header->e_shoff, std::uint64_t{header->e_shnum} * sizeof(Elf64_Shdr));
  if (!table || header->e_shstrndx >= header->e_shnum) return fail("damaged ELF");
  std::vector<Elf64_Shdr> headers(header->e_shnum);
  std::memcpy(headers.data(), table->data(), table->size());
  const auto names = part(bytes_, headers[header->e_shstrndx].sh_offset, headers[header->e_shstrndx].sh_size);
  if (!names) return fail("damaged ELF");
  for (const Elf64_Shdr& each : headers) {
    ElfSection section{text_at(*names, each.sh_name), each.sh_type, each.sh_info, each.sh_size, {}};
    if (each.sh_type != SHT_NOBITS && each.sh_type != SHT_NULL && each.sh_type != kUnlinkedShared) {
      const auto bytes = part(bytes_, each.sh_offset, each.sh_size);
      if (!bytes) return fail("damaged ELF");
      section.bytes = *bytes;
    }
    if (each.sh_type == SHT_SYMTAB) {
      if (symbol_table_ != 0 || each.sh_link >= headers.size()) return fail("damaged ELF");
      symbol_table_ = sections_.size();
      symbol_names_ = each.sh_link;
    }
    sections_.push_back(section);
  }
  return symbol_table_ != 0 || fail("ELF without symbols");
}

bool Elf::read_symbols() {
  const Bytes table = sections_[symbol_table_].bytes, names = sections_[symbol_names_].bytes;
  for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.size(); at += sizeof(Elf64_Sym)) {
    const auto each = *read_at<Elf64_Sym>(table, at);
    ElfSymbol symbol;
    symbol.name = text_at(names, each.st_name);
    symbol.type = ELF64_ST_TYPE(each.st_info);
    symbol.local = ELF64_ST_BIND(each.st_info) == STB_LOCAL;
    symbol.section = each.st_shndx;
    symbol.value = each.st_value;
    symbol.size = each.st_size;
    symbol.kernel = symbol.type == STT_FUNC && (each.st_other & kEntryPoint) != 0 && each.st_shndx != SHN_UNDEF;
    symbol.managed = symbol.type == STT_OBJECT && (each.st_other & kManaged) != 0;
    if (symbol.kernel && symbol.section >= sections_.size()) return fail("damaged ELF");
    symbols_.push_back(symbol);
  }
  return true;
}

const ElfSection* Elf::section(std::string_view name) const {
  const auto found =
      std::find_if(sections_.begin(), sections_.end(), [&](const ElfSection& each) { return each.name == name; });
  return found == sections_.end() ? nullptr : &*found;
}

std::vector<ElfRelocation> Elf::relocations(const ElfSection& table, bool& good) const {
  std::vector<ElfRelocation> all;
  const bool has_addend = table.type == SHT_RELA;
  const std::uint64_t step = has_addend ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
  for (std::uint64_t at = 0; at + step <= table.bytes.size(); at += step) {
    const auto info = *read_at<std::uint64_t>(table.bytes, at + offsetof(Elf64_Rel, r_info));
    ElfRelocation each;
    each.at = *read_at<std::uint64_t>(table.bytes, at + offsetof(Elf64_Rel, r_offset));
    each.symbol = static_cast<std::uint32_t>(ELF64_R_SYM(info));
    each.type = static_cast<std::uint32_t>(ELF64_R_TYPE(info));
    if (has_addend) each.addend = *read_at<std::int64_t>(table.bytes, at + offsetof(Elf64_Rela, r_addend));
    if (each.symbol >= symbols_.size()) {
      good = false;
      return all;
    }
    all.push_back(each);
  }
  return all;
}

std::vector<NvInfo> Elf::infos(Bytes section) {
  std::vector<NvInfo> all;
  for (std::uint64_t at = 0; at + 4 <= section.size();) {
    const auto format = *read_at<std::uint8_t>(section, at);
    NvInfo info;
    info.attribute = *read_at<std::uint8_t>(section, at + 1);
    info.value = *read_at<std::uint16_t>(section, at + 2);
    const std::uint64_t size = format == 4 ? info.value : 0;
    const auto bytes = part(section, at + 4, size);
    if (!bytes) return all;
    info.bytes = *bytes;
    all.push_back(info);
    at += 4 + size;
  }
  return all;
}

}  // namespace nimble::code
