#include "analyzer/kernel_code/ptx_flow/opcodes.h"

#include <algorithm>
#include <unordered_map>

namespace nimble::code {
namespace {

using enum PtxClass;

const std::unordered_map<std::string_view, PtxClass>& classes() {
  static const auto* table = [] {
    auto* result = new std::unordered_map<std::string_view, PtxClass>;
    const auto add = [result](PtxClass what, std::initializer_list<std::string_view> names) {
      for (const std::string_view name : names) result->emplace(name, what);
    };
    // Control flow, waiting, predicates, hints to caches, and masks of threads.
    add(nothing, {"bra",        "brx",        "ret",         "exit",     "trap",           "bar",       "barrier",
                  "membar",     "fence",      "nanosleep",   "pmevent",  "prefetch",       "prefetchu", "applypriority",
                  "setmaxnreg", "setp",       "testp",       "isspacep", "griddepcontrol", "elect",     "vote",
                  "match",      "activemask", "createpolicy"});
    add(number, {"set",   "sad",    "mul24",     "mad24", "div",    "rem",       "popc",  "clz",   "bfind",    "fns",
                 "brev",  "szext",  "bmsk",      "dp4a",  "dp2a",   "cnot",      "lop3",  "shf",   "prmt",     "fma",
                 "rcp",   "sqrt",   "rsqrt",     "sin",   "cos",    "lg2",       "ex2",   "tanh",  "copysign", "shfl",
                 "redux", "mma",    "movmatrix", "vadd",  "vsub",   "vabsdiff",  "vmin",  "vmax",  "vshl",     "vshr",
                 "vmad",  "vset",   "vadd2",     "vsub2", "vavrg2", "vabsdiff2", "vmin2", "vmax2", "vset2",    "vadd4",
                 "vsub4", "vavrg4", "vabsdiff4", "vmin4", "vmax4",  "vset4"});
    add(integer, {"add", "sub", "addc", "subc", "and", "or", "xor", "not", "neg", "abs", "min", "max", "bfe"});
    add(chooses, {"selp", "slct"});
    add(move, {"mov"});
    add(convert, {"cvt"});
    add(to_generic, {"cvta"});
    add(multiply, {"mul"});
    add(multiply_add, {"mad", "madc"});
    add(shift_left, {"shl"});
    add(shift_right, {"shr"});
    add(insert, {"bfi"});
    add(load, {"ld", "ldu"});
    add(store, {"st"});
    add(atomic, {"atom", "red"});
    add(PtxClass::call, {"call"});
    add(async_copy, {"cp"});
    add(matrix_load, {"ldmatrix"});
    add(matrix_store, {"stmatrix"});
    add(wmma, {"wmma"});
    add(wgmma, {"wgmma"});
    add(barrier_object, {"mbarrier"});
    add(discard, {"discard"});
    return result;
  }();
  return *table;
}

}  // namespace

PtxOpcode::PtxOpcode(std::string_view spelled) {
  std::size_t dot = spelled.find('.');
  base = spelled.substr(0, dot);
  while (dot != std::string_view::npos) {
    spelled.remove_prefix(dot + 1);
    dot = spelled.find('.');
    if (count == parts.size()) {
      complete = false;
      return;
    }
    parts[count++] = spelled.substr(0, dot);
  }
}

bool PtxOpcode::has(std::string_view part) const {
  return std::find(parts.begin(), parts.begin() + count, part) != parts.begin() + count;
}

bool PtxOpcode::has_prefix(std::string_view prefix) const {
  return std::any_of(parts.begin(), parts.begin() + count,
                     [&](std::string_view part) { return part.starts_with(prefix); });
}

std::string_view PtxOpcode::type(std::size_t which) const {
  for (std::size_t i = 0; i < count; ++i)
    if (ptx_type_bits(parts[i]) != 0 && which-- == 0) return parts[i];
  return {};
}

std::string_view PtxOpcode::last_type() const {
  for (std::size_t i = count; i-- > 0;)
    if (ptx_type_bits(parts[i]) != 0) return parts[i];
  return {};
}

PtxSpace PtxOpcode::space() const {
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view part = parts[i].substr(0, parts[i].find("::"));
    if (part == "global") return PtxSpace::global;
    if (part == "shared") return PtxSpace::shared;
    if (part == "local") return PtxSpace::local;
    if (part == "const") return PtxSpace::constant;
    if (part == "param") return PtxSpace::param;
  }
  return PtxSpace::generic;
}

PtxClass ptx_class(const PtxOpcode& opcode) {
  if (!opcode.complete) return unknown;
  const auto found = classes().find(opcode.base);
  if (found == classes().end()) return unknown;
  // Opcodes that are not listed by their own names, although their first part is known.
  for (const std::string_view part : {"async", "bulk", "tensormap"})
    if (found->second != async_copy && found->second != nothing && opcode.has(part)) return unknown;
  return found->second;
}

bool is_special_register(std::string_view name) {
  if (name == "WARP_SZ") return true;
  if (!name.starts_with('%')) return false;
  name.remove_prefix(1);
  if (name.size() > 2 && name[name.size() - 2] == '.' && name.back() >= 'w' && name.back() <= 'z')
    name.remove_suffix(2);
  static constexpr std::string_view kNames[] = {"tid",
                                                "ntid",
                                                "laneid",
                                                "warpid",
                                                "nwarpid",
                                                "ctaid",
                                                "nctaid",
                                                "smid",
                                                "nsmid",
                                                "gridid",
                                                "clusterid",
                                                "nclusterid",
                                                "cluster_ctaid",
                                                "cluster_nctaid",
                                                "cluster_ctarank",
                                                "cluster_nctarank",
                                                "is_explicit_cluster",
                                                "lanemask_eq",
                                                "lanemask_le",
                                                "lanemask_lt",
                                                "lanemask_ge",
                                                "lanemask_gt",
                                                "clock",
                                                "clock_hi",
                                                "clock64",
                                                "globaltimer",
                                                "globaltimer_lo",
                                                "globaltimer_hi",
                                                "total_smem_size",
                                                "reserved_smem_offset_begin",
                                                "reserved_smem_offset_end",
                                                "reserved_smem_offset_cap",
                                                "reserved_smem_offset_0",
                                                "reserved_smem_offset_1",
                                                "aggr_smem_size",
                                                "dynamic_smem_size"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

}  // namespace nimble::code
