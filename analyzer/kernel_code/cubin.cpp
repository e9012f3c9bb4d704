#include "analyzer/kernel_code/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cctype>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "analyzer/kernel_code/elf.h"
#include "analyzer/kernel_code/ptx/compiler_names.h"

namespace nimble::code {
namespace {

// The parts of NVIDIA's additions to ELF that are used here.
constexpr unsigned kTextureSymbol = 10, kSurfaceSymbol = 11;  // symbol types
constexpr std::uint8_t kExternsAttribute = 0x0f;              // .nv.info: symbols from outside that the kernel uses
constexpr std::uint32_t kFirstSpecialCallee = 0xfffffff0u;    // .nv.callgraph: no symbol, but a kind of call

// Functions from outside that change nothing that another kernel could see. A failing assertion ends the program.
bool harmless_call(std::string_view name) { return name.empty() || name[0] == '.' || name == "__assertfail"; }

// The rest of a name with internal linkage: nvcc puts the file's own name before it. Empty if the name is not such.
std::string_view internal(std::string_view name) {
  if (!name.starts_with("_ZN")) return {};
  name.remove_prefix(3);
  std::size_t size = 0, at = 0;
  for (; at < name.size() && at < 4 && std::isdigit(static_cast<unsigned char>(name[at])) != 0; ++at)
    size = 10 * size + static_cast<std::size_t>(name[at] - '0');
  if (at == 0 || size > name.size() - at || !name.substr(at).starts_with("_INTERNAL_")) return {};
  return name.substr(at + size);
}

// Tags of NVIDIA's header libraries: thrust::placeholders::_1, cuda::std::ranges::begin, cute::_ and so on. nvcc gives
// every file that includes these headers a private copy of them all: objects of empty classes, which hold nothing.
bool tag(std::string_view name) {
  const std::string_view rest = internal(name);
  for (const std::string_view library : {"6thrust", "3cub", "4cuda3std", "4cute"})
    if (rest.starts_with(library)) return true;
  return false;
}

// Constants of cooperative_groups.h, by the beginning and end of their names after the library's name space: a
// template's arguments come in between. NVRTC gives each program that includes the header all of them, and its kernels
// a list of their addresses.
struct GroupConstant {
  std::string_view begin, end;
  std::uint64_t size;
};
constexpr GroupConstant kGroupConstants[] = {
    // Kinds of groups.
    {"7details18coalesced_group_idE", "", 4},
    {"7details19multi_grid_group_idE", "", 4},
    {"7details13grid_group_idE", "", 4},
    {"7details15thread_block_idE", "", 4},
    {"7details19multi_tile_group_idE", "", 4},
    {"7details16cluster_group_idE", "", 4},
    {"7details7_unusedE", "", 4},
    {"17thread_group_baseILj", "E2idE", 4},
    {"10grid_group9_group_idE", "", 4},
    {"12thread_block9_group_idE", "", 4},
    {"15coalesced_group9_group_idE", "", 4},
    {"36__static_size_thread_block_tile_baseILj", "E9_group_idE", 4},
    // Tiles, by their size.
    {"36__static_size_thread_block_tile_baseILj", "E8fullMaskE", 4},
    {"23__static_size_tile_baseILj", "E10numThreadsE", 4},
    {"31__single_warp_thread_block_tileILj", "E10numThreadsE", 4},
    {"7details4tile13_tile_helpersILj", "E9tileCountE", 4},
    {"7details4tile13_tile_helpersILj", "E8tileMaskE", 4},
    {"7details4tile13_tile_helpersILj", "E8laneMaskE", 4},
    {"7details4tile13_tile_helpersILj", "E10shiftCountE", 4},
    // How large an element is that is exchanged through memory, and the memory for it.
    {"7details4tile20_MemoryShuffleCutoffE", "", 8},
    {"7details22default_max_block_sizeE", "", 4},
    {"7details26scratch_num_reserved_bytesE", "", 4},
    {"7details18multi_warp_scratch21memory_barriers_countE", "", 4},
    {"7details18multi_warp_scratch16sync_memory_sizeE", "", 8},
    {"7details18multi_warp_scratch18communication_sizeE", "", 8},
    // true_type and false_type.
    {"7details9templates17integral_constantIbLb1EE5valueE", "", 1},
    {"7details9templates17integral_constantIbLb0EE5valueE", "", 1},
};

bool group_constant(std::string_view name, std::uint64_t size) {
  std::string_view rest = name.starts_with("_ZN18") ? name.substr(3) : internal(name);
  constexpr std::string_view kLibrary = "18cooperative_groups4__v1", kArguments = "0123456789LjEv";
  if (!rest.starts_with(kLibrary)) return false;
  rest.remove_prefix(kLibrary.size());
  return std::ranges::any_of(kGroupConstants, [&](const GroupConstant& known) {
    if (!rest.starts_with(known.begin) || rest.size() < known.begin.size() + known.end.size()) return false;
    const std::string_view rest_of_name = rest.substr(known.begin.size());
    const std::string_view arguments = rest_of_name.substr(0, rest_of_name.size() - known.end.size());
    return rest_of_name.ends_with(known.end) && size == known.size && (!known.end.empty() || arguments.empty()) &&
           arguments.find_first_not_of(kArguments) == std::string_view::npos;
  });
}

// The tables of the generators in curand_kernel.h, in unsigned ints: each file that includes it has its own, and what
// it reads of them for one generator shares the list of addresses with all others.
bool generator_table(std::string_view name, std::uint64_t size) {
  const auto words = [&](std::uint64_t count) { return size == count * sizeof(std::uint32_t); };
  for (const std::string_view one : {"mrg32k3aM1", "mrg32k3aM2", "mrg32k3aM1Seq", "mrg32k3aM2Seq"})
    if (name == one) return words(std::uint64_t{64} * 3 * 3);
  for (const std::string_view one : {"mrg32k3aM1SubSeq", "mrg32k3aM2SubSeq"})
    if (name == one) return words(std::uint64_t{56} * 3 * 3);
  for (const std::string_view one : {"precalc_xorwow_matrix", "precalc_xorwow_offset_matrix"})
    if (name == one) return words(std::uint64_t{32} * 800);
  return false;
}

bool holds_variables(const ElfSection& section) { return section.name.starts_with(".nv.global"); }

class Reader {
 public:
  explicit Reader(Bytes bytes) : elf_(bytes), sections_(elf_.sections()), symbols_(elf_.symbols()) {}

  Cubin read() {
    if (elf_.error()) {
      result_.error = elf_.error();
      return std::move(result_);
    }
    for (std::size_t i = 0; i < symbols_.size(); ++i)
      if (symbols_[i].kernel) kernel_of_section_.emplace(symbols_[i].section, i);
    judge_sections();
    judge_relocations();
    judge_calls();
    for (std::size_t i = 0; i < symbols_.size(); ++i) {
      if (!symbols_[i].kernel) continue;
      const auto own = whys_.find(symbols_[i].section);
      std::string why = !all_.empty() ? all_ : own != whys_.end() ? own->second : calls_of(i);
      const bool constants = why.empty() && constants_;
      if (constants) why = "it has constant variables (.nv.constant3)";
      result_.kernels.push_back({std::string(symbols_[i].name), why.empty(), constants, std::move(why)});
    }
    std::sort(result_.kernels.begin(), result_.kernels.end(),
              [](const CubinKernel& a, const CubinKernel& b) { return a.name < b.name; });
    return std::move(result_);
  }

 private:
  void none_self_contained(std::string why) {
    if (all_.empty()) all_ = std::move(why);
  }

  void judge_sections() {
    for (const ElfSection& section : sections_) {
      // Any kernel reaches constant bank 3 by offsets that are only visible in its instructions.
      if (section.name.starts_with(".nv.constant3") && section.size != 0) constants_ = true;
      // Tables by which linked programs share functions and variables.
      for (const std::string_view name : {".nv.uft", ".nv.udt", ".nv.ugt"})
        if (section.name.starts_with(name)) none_self_contained("it has a section " + std::string(section.name));
      if (section.name == ".note.nv.cuinfo") {
        constexpr std::uint64_t kNoteHeader = 12, kArch = 2;
        const auto name_bytes = read_at<std::uint32_t>(section.bytes, 0);
        if (!name_bytes || *name_bytes > section.bytes.size()) continue;
        const auto arch = read_at<std::uint16_t>(section.bytes, kNoteHeader + ((*name_bytes + 3) & ~3u) + kArch);
        if (arch) result_.virtual_arch = *arch;
      }
    }
    for (const ElfSymbol& symbol : symbols_)
      if (symbol.type == kTextureSymbol || symbol.type == kSurfaceSymbol)
        none_self_contained("it has texture references");
  }

  // Variables are reached by addresses that the driver fills in: into one kernel's instructions, or into constant bank
  // 4, from which any kernel may take them. A variable that no relocation names cannot be reached.
  // Each kind of symbol has its own reason.
  void judge_relocations() {
    for (const ElfSection& table : sections_) {
      if (table.type != SHT_REL && table.type != SHT_RELA) continue;
      if (table.name.starts_with(".rel.debug") || table.name.starts_with(".rela.debug")) continue;
      std::string_view into = table.name;
      for (const std::string_view prefix : {".rela", ".rel"})
        if (into.starts_with(prefix) && into.size() == table.name.size()) into.remove_prefix(prefix.size());
      const auto kernel = kernel_of_section_.find(table.info);
      const bool own = kernel != kernel_of_section_.end() && sections_[table.info].name == into;
      bool good = true;
      for (const ElfRelocation& each : elf_.relocations(table, good)) {
        const ElfSymbol& symbol = symbols_[each.symbol];
        std::string why;
        const bool elsewhere =
            symbol.section == SHN_COMMON || (symbol.section == SHN_UNDEF && symbol.type != STT_FUNC &&
                                             !symbol.name.empty() && !harmless_call(symbol.name));
        if (elsewhere) {
          // For a program that is yet to be linked: it is not known whose variable it is.
          why = "it reaches the variable " + std::string(symbol.name) + " of another file";
        } else if (symbol.section < sections_.size() && holds_variables(sections_[symbol.section])) {
          if (symbol.type == STT_SECTION ? only_constants(static_cast<unsigned>(symbol.section)) : is_constant(symbol))
            continue;
          why = "it reaches the global variable ";
          why.append(symbol.name.empty() ? "?" : symbol.name).append(" (");
          why.append(sections_[symbol.section].name).append(")");
        } else if (symbol.type == STT_FUNC && symbol.section != SHN_UNDEF && !own && into.starts_with(".nv.constant")) {
          why = "it has pointers to functions";
        } else {
          continue;
        }
        if (own)
          whys_.emplace(table.info, std::move(why));
        else
          none_self_contained(std::move(why));
      }
      if (!good) return none_self_contained("damaged relocations");
    }
  }

  // A variable that is never written, or with nothing in it to be written. Variables that a compiler has made, without
  // a name that tells, are initialised.
  bool is_constant(const ElfSymbol& symbol) const {
    if (!symbol.local) return false;
    const bool is_filled = sections_[symbol.section].name.starts_with(".nv.global.init");
    return (is_filled && names_constant(symbol.name)) || (symbol.size == 1 && tag(symbol.name)) ||
           group_constant(symbol.name, symbol.size) || generator_table(symbol.name, symbol.size);
  }

  bool only_constants(unsigned section) const {
    return std::all_of(symbols_.begin(), symbols_.end(), [&](const ElfSymbol& symbol) {
      return symbol.section != section || symbol.type == STT_SECTION || is_constant(symbol);
    });
  }

  // Which code calls functions that the driver provides: the compiler's call graph, and the list that each kernel
  // carries.
  void judge_calls() {
    bool any = false;
    for (const ElfSymbol& symbol : symbols_)
      any |= symbol.section == SHN_UNDEF && symbol.type != STT_SECTION && !harmless_call(symbol.name);
    bool graph = false;
    for (const ElfSection& section : sections_) {
      if (section.name != ".nv.callgraph") continue;
      graph = true;
      for (std::uint64_t at = 0; at + 8 <= section.bytes.size(); at += 8) {
        const auto caller = *read_at<std::uint32_t>(section.bytes, at),
                   callee = *read_at<std::uint32_t>(section.bytes, at + 4);
        if (caller == 0) continue;
        if (caller >= symbols_.size() || (callee >= symbols_.size() && callee < kFirstSpecialCallee))
          return none_self_contained("damaged call graph");
        callees_[caller].push_back(callee);
      }
    }
    if (any && !graph)
      return none_self_contained("it calls " + first_foreign() + ", and does not say which function does");
    for (const ElfSection& section : sections_) {
      if (!section.name.starts_with(".nv.info.")) continue;
      const auto owner = std::find_if(symbols_.begin(), symbols_.end(), [&](const ElfSymbol& symbol) {
        return symbol.kernel && symbol.name == section.name.substr(9);
      });
      if (owner != symbols_.end()) externs_of(section.bytes, static_cast<std::uint32_t>(owner - symbols_.begin()));
    }
  }

  std::string first_foreign() const {
    for (const ElfSymbol& symbol : symbols_)
      if (symbol.section == SHN_UNDEF && symbol.type != STT_SECTION && !harmless_call(symbol.name))
        return std::string(symbol.name);
    return {};
  }

  void externs_of(Bytes section, std::uint32_t kernel) {
    for (const NvInfo& info : Elf::infos(section)) {
      if (info.attribute != kExternsAttribute) continue;
      for (std::uint64_t i = 0; i + 4 <= info.bytes.size(); i += 4)
        if (const auto symbol = *read_at<std::uint32_t>(info.bytes, i); symbol < symbols_.size())
          callees_[kernel].push_back(symbol);
    }
  }

  std::string calls_of(std::size_t kernel) const {
    std::vector<std::uint32_t> open{static_cast<std::uint32_t>(kernel)};
    std::unordered_set<std::uint32_t> seen(open.begin(), open.end());
    while (!open.empty()) {
      const auto found = callees_.find(open.back());
      open.pop_back();
      if (found == callees_.end()) continue;
      for (const std::uint32_t callee : found->second) {
        if (callee >= kFirstSpecialCallee) return "it calls through a pointer";
        const ElfSymbol& symbol = symbols_[callee];
        if (symbol.section == SHN_UNDEF && !harmless_call(symbol.name)) return "it calls " + std::string(symbol.name);
        if (seen.insert(callee).second) open.push_back(callee);
      }
    }
    return {};
  }

  const Elf elf_;
  const std::vector<ElfSection>& sections_;
  const std::vector<ElfSymbol>& symbols_;
  Cubin result_;
  std::unordered_map<unsigned, std::size_t> kernel_of_section_;
  bool constants_ = false;                          // there are constant variables
  std::string all_;                                 // why no kernel of this file is self-contained
  std::unordered_map<unsigned, std::string> whys_;  // why one is not, by the section of its instructions
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> callees_;
};

}  // namespace

const CubinKernel* Cubin::find(std::string_view name) const {
  const auto found =
      std::lower_bound(kernels.begin(), kernels.end(), name,
                       [](const CubinKernel& kernel, std::string_view key) { return kernel.name < key; });
  return found != kernels.end() && found->name == name ? &*found : nullptr;
}

std::uint64_t elf_bytes(Bytes first) {
  const auto header = read_at<Elf64_Ehdr>(first, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return 0;
  const std::uint64_t sections = std::uint64_t{header->e_shnum} * header->e_shentsize,
                      programs = std::uint64_t{header->e_phnum} * header->e_phentsize;
  if (header->e_shoff > UINT64_MAX - sections || header->e_phoff > UINT64_MAX - programs) return 0;
  return std::max(header->e_shoff + sections, header->e_phoff + programs);
}

Cubin read_cubin(Bytes bytes) { return Reader(bytes).read(); }

}  // namespace nimble::code
