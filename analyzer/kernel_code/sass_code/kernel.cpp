#include "analyzer/kernel_code/sass_code/kernel.h"

#include <elf.h>

#include <algorithm>

#include "analyzer/kernel_code/sass/instruction.h"

namespace nimble::code::sass {
namespace {

// Attributes of .nv.info.
constexpr std::uint8_t kParamCbank = 0x0a, kKparamInfo = 0x17, kCbankParamSize = 0x19, kIndirectBranches = 0x34,
                       kKparamInfoV2 = 0x45;  // of kernels with more than 4 KiB of parameters

constexpr std::uint32_t kMostParams = 32764;  // bytes, of sm_70 and later

class Reader {
 public:
  Reader(const Elf& elf, std::string_view name) : elf_(elf), name_(name) {}

  Kernel run() {
    kernel_.arch = elf_.arch();
    if (find_text() && read_infos()) {
      read_variables();
      read_relocations();
    }
    return std::move(kernel_);
  }

 private:
  bool fail(std::string why) {
    kernel_.error = std::move(why);
    return false;
  }

  bool find_text() {
    for (const ElfSymbol& symbol : elf_.symbols()) {
      if (!symbol.kernel || symbol.name != name_) continue;
      text_ = symbol.section;
      kernel_.text = elf_.sections()[text_].bytes;
      if (kernel_.text.size() % kInstructionBytes != 0 || symbol.value % kInstructionBytes != 0 ||
          symbol.value >= kernel_.text.size() || kernel_.text.size() > UINT32_MAX)
        return fail("its code lies outside of its section");
      kernel_.entry = static_cast<std::uint32_t>(symbol.value);
      return true;
    }
    return fail("the file has no such kernel");
  }

  bool read_infos() {
    const ElfSection* const section = elf_.section(".nv.info." + std::string(name_));
    if (!section) return fail("the file does not say where its parameters are");
    bool has_place = false;
    for (const NvInfo& info : Elf::infos(section->bytes)) {
      if (info.attribute == kParamCbank && info.bytes.size() >= 8) {
        kernel_.params_at = *read_at<std::uint16_t>(info.bytes, 4);
        kernel_.param_bytes = *read_at<std::uint16_t>(info.bytes, 6);
        has_place = true;
      } else if (info.attribute == kKparamInfo && info.bytes.size() >= 12) {
        kernel_.params.push_back(
            {*read_at<std::uint16_t>(info.bytes, 6), *read_at<std::uint32_t>(info.bytes, 8) >> 18});
      } else if (info.attribute == kKparamInfoV2 && info.bytes.size() >= 12) {
        kernel_.params.push_back({*read_at<std::uint16_t>(info.bytes, 6), *read_at<std::uint32_t>(info.bytes, 8)});
      } else if (info.attribute == kCbankParamSize) {
        size_ = info.value;
      } else if (info.attribute == kIndirectBranches) {
        if (!read_branches(info.bytes)) return fail("a table of branches is damaged");
      }
    }
    if (!has_place && (size_ != 0 || !kernel_.params.empty()))
      return fail("the file does not say where its parameters are");
    if (kernel_.param_bytes > kMostParams || kernel_.params_at % 8 != 0)
      return fail("its parameters are where none can be");
    std::sort(kernel_.params.begin(), kernel_.params.end(),
              [](const KernelParam& a, const KernelParam& b) { return a.offset < b.offset; });
    std::uint32_t end = 0;
    for (const KernelParam& param : kernel_.params) {
      if (param.offset < end || param.bytes == 0 || param.bytes > kernel_.param_bytes ||
          param.offset + param.bytes > kernel_.param_bytes)
        return fail("its parameters overlap");
      end = param.offset + param.bytes;
    }
    return true;
  }

  // Of each branch: its offset, a zero, how many targets, and these.
  bool read_branches(Bytes bytes) {
    for (std::uint64_t at = 0; at < bytes.size();) {
      const auto branch = read_at<std::uint32_t>(bytes, at), count = read_at<std::uint32_t>(bytes, at + 8);
      if (!branch || !count || !part(bytes, at + 12, std::uint64_t{*count} * 4)) return false;
      std::vector<std::uint32_t>& targets = kernel_.indirect[*branch];
      for (std::uint32_t i = 0; i < *count; ++i)
        targets.push_back(*read_at<std::uint32_t>(bytes, at + 12 + std::uint64_t{i} * 4));
      at += 12 + std::uint64_t{*count} * 4;
    }
    return true;
  }

  void read_variables() {
    for (const ElfSymbol& symbol : elf_.symbols()) {
      if (symbol.managed) kernel_.managed.push_back(symbol.name);
      if (symbol.section < elf_.sections().size() && symbol.type == STT_OBJECT &&
          elf_.sections()[symbol.section].name.starts_with(".nv.constant3"))
        kernel_.in_bank3.push_back({symbol.value, symbol.size, symbol.name});
    }
  }

  SymbolAt symbol_of(const ElfRelocation& relocation) const {
    const ElfSymbol& symbol = elf_.symbols()[relocation.symbol];
    SymbolAt found;
    found.name = symbol.name;
    if (symbol.section == SHN_UNDEF || symbol.section >= elf_.sections().size()) {
      found.kind = SymbolAt::Kind::outside;
    } else if (elf_.sections()[symbol.section].name.starts_with(".nv.global") ||
               elf_.sections()[symbol.section].name.starts_with(".nv.constant3")) {
      found.kind = SymbolAt::Kind::variable;
    } else if (symbol.type == STT_FUNC && symbol.section == text_) {
      found.kind = SymbolAt::Kind::function;
    } else if (symbol.type == STT_FUNC) {
      found.kind = SymbolAt::Kind::outside;
    }
    return found;
  }

  void read_relocations() {
    for (const ElfSection& table : elf_.sections()) {
      if (table.type != SHT_REL && table.type != SHT_RELA) continue;
      if (table.info >= elf_.sections().size()) continue;
      const std::string_view into = elf_.sections()[table.info].name;
      std::map<std::uint32_t, SymbolAt>* places = nullptr;
      if (table.info == text_) places = &kernel_.in_text;
      if (into == ".nv.constant4" || into == ".nv.constant4." + std::string(name_)) places = &kernel_.in_bank4;
      if (!places) continue;
      bool good = true;
      for (const ElfRelocation& each : elf_.relocations(table, good))
        if (each.at <= UINT32_MAX) places->emplace(static_cast<std::uint32_t>(each.at), symbol_of(each));
      if (!good) fail("damaged relocations");
    }
  }

  const Elf& elf_;
  const std::string_view name_;
  Kernel kernel_;
  unsigned text_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace

Kernel read_kernel(const Elf& elf, std::string_view name) { return Reader(elf, name).run(); }

}  // namespace nimble::code::sass
