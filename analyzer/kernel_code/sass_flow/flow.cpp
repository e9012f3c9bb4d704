#include "analyzer/kernel_code/sass_flow/flow.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "analyzer/kernel_code/ptx/compiler_names.h"
#include "analyzer/kernel_code/sass_code/returns.h"
#include "analyzer/kernel_code/sass_expressions/addresses.h"
#include "analyzer/kernel_code/sass_expressions/occurrence.h"
#include "analyzer/kernel_code/sass_flow/contents_flow.h"
#include "analyzer/kernel_code/sass_flow/provenance.h"

namespace nimble::code::sass {
namespace {

constexpr unsigned kUtmastg = 0x13b5, kUtmaredg = 0x13b6;
// A CUtensorMap has 128 bytes; the kernels of cublasLt (nvjet) have maps side by side that have 64.
constexpr std::int64_t kMapBytes = 64, kMapAlignment = 64;
constexpr std::size_t kMostUses = 512;           // of one list of words; of more it is not known how far they get
constexpr std::size_t kMostExpressions = 20000;  // likewise
constexpr std::size_t kMostDoubtful = 4096;      // places of one kind

// What the flow says of every place where memory is touched.
class Judge {
 public:
  Judge(const Kernel& kernel, const ControlFlow& flow, const Values& values, ContentsFlow& contents)
      : kernel_(kernel),
        flow_(flow),
        values_(values),
        contents_(contents),
        sets_(contents.contents().sets()),
        addresses_(kernel, flow, values) {
    for (const KernelParam& param : kernel.params) params_end_ = std::max(params_end_, param.offset + param.bytes);
  }

  bool judge(PtxProof& proof) {
    for (const std::uint32_t at : values_.order())
      if (const char* const kind = untried(flow_.instructions[at]); kind && proof.untried.empty()) proof.untried = kind;
    for (const std::uint32_t at : values_.order()) {
      // The first reason is told; that memory is followed counts wherever it is found.
      why_.clear();
      if (flow_.instructions[at].guard.when == Guard::When::never || look(at) || !proof.why.empty()) continue;
      proof.why = why_ + place_of(at);
    }
    proof.follows_memory = follows_memory_;
    if (!proof.why.empty()) return false;
    std::vector<AddressUse> uses;
    for (const auto& [words, access] : accesses_) {
      proof.accesses.push_back({words, access.reads, access.writes, {}});
      uses.insert(uses.end(), access.uses.begin(), access.uses.end());
    }
    proof.extents.of_accesses = true;
    proof.extents.counters = addresses_.counters();
    std::vector<ExpressionId> others = proof.extents.counters;
    for (const auto& [why, doubt] : doubts_) {
      proof.extents.doubts.push_back({0, why + place_of(doubt.first), doubt.follows_memory});
      others.push_back(by_launch_->occurrence.any(doubt.ways));
    }
    proof.extents.expressions = addresses_.list().needed(uses, others);
    std::ranges::copy(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(proof.extents.counters.size()),
                      proof.extents.counters.begin());
    for (std::size_t i = 0; i < proof.extents.doubts.size(); ++i)
      proof.extents.doubts[i].happens = others[proof.extents.counters.size() + i];
    auto next = uses.begin();
    for (const auto& [words, access] : accesses_) {
      AddressGroup& group = proof.extents.groups.emplace_back();
      group.at = words;
      group.reads = access.reads;
      group.writes = access.writes;
      group.uses.assign(next, next + static_cast<std::ptrdiff_t>(access.uses.size()));
      next += static_cast<std::ptrdiff_t>(access.uses.size());
      const auto rest = std::ranges::unique(group.uses);  // as they come, most are beside each other
      group.uses.erase(rest.begin(), rest.end());
      group.complete = access.complete;
      group.numbers.assign(access.numbers.begin(), access.numbers.end());
    }
    for (const auto& [name, mode] : globals_) proof.globals.push_back({std::string(name), mode.first, mode.second});
    proof.stored.assign(stored_.begin(), stored_.end());
    return true;
  }

 private:
  // What kind of instruction this is, if the emulator (tests/sass) cannot run it, so that no test has checked proofs
  // about it; else null.
  static const char* untried(const Instruction& instruction) {
    if (instruction.what == Class::tensor_memory) return "matrix operands in tensor memory";
    const bool is_other = instruction.what == Class::barrier_object && instruction.name != std::string_view("SYNCS");
    return is_other ? "barriers in shared memory" : nullptr;
  }

  bool no(std::string_view why, std::string_view what = {}) {
    why_ = why;
    why_.append(what.substr(0, 200));
    return false;
  }

  static std::string place_of(std::uint32_t at) {
    char place[32];
    std::snprintf(place, sizeof place, ", at byte 0x%llx", static_cast<unsigned long long>(at) * 16);
    return place;
  }

  // What a launch's numbers decide.
  struct ByLaunch {
    explicit ByLaunch(Judge& judge)
        : occurrence(judge.flow_, judge.values_, judge.addresses_),
          provenance(judge.flow_, judge.values_, judge.contents_, judge.addresses_, occurrence) {}
    Occurrence occurrence;
    Provenance provenance;
  };
  ByLaunch& by_launch() {
    if (!by_launch_) by_launch_.emplace(*this);
    return *by_launch_;
  }

  // What why_ says is so under this condition: then it is a doubt, if launches may exclude that.
  bool doubt(std::uint32_t at, ExpressionId happens, bool follows_memory = false) {
    if (happens == by_launch_->occurrence.never()) return true;
    auto found = doubts_.find(why_);
    const bool is_known =
        found != doubts_.end() && std::ranges::find(found->second.ways, happens) != found->second.ways.end();
    if (is_known) return true;
    if (!by_launch_->occurrence.can_be_excluded(happens)) return false;
    if (found == doubts_.end()) found = doubts_.emplace(why_, Doubt{at, follows_memory, {}}).first;
    if (found->second.ways.size() == kMostDoubtful) return false;
    found->second.ways.push_back(happens);
    return true;
  }
  // Likewise, if the instruction runs.
  bool doubt(std::uint32_t at) { return doubt(at, by_launch().occurrence.of(at)); }

  // An address that is used only where control gets to the instruction, if launches may exclude that.
  ExpressionId where_it_runs(std::uint32_t at, ExpressionId address) {
    Occurrence& occurrence = by_launch().occurrence;
    const ExpressionId runs = occurrence.of(at);
    const auto [known, is_new] = may_not_run_.try_emplace(runs, false);
    if (is_new) known->second = occurrence.can_be_excluded(runs);
    return known->second ? addresses_.list().make(ExpressionOp::when, address, runs) : address;
  }

  bool look(std::uint32_t at) {
    const Instruction& instruction = flow_.instructions[at];
    if (instruction.constant && instruction.constant->bank == 3) read_constants(*instruction.constant);
    switch (instruction.what) {
      case Class::texture:
        return no("it reads a texture") || doubt(at);
      case Class::surface:
        return no("it reaches a surface") || doubt(at);
      case Class::tensor_map:
        return map(at) || doubt(at);
      default:
        break;
    }
    for (const MemoryOperand& memory : instruction.memory)
      if (!place(at, memory)) return false;
    return true;
  }

  // Those of the program that it may read there; with an index all.
  void read_constants(const ConstantOperand& constant) {
    for (const ConstantVariable& each : kernel_.in_bank3) {
      const std::int64_t begin = constant.offset, end = begin + constant.bytes;
      const auto first = static_cast<std::int64_t>(each.at), last = first + static_cast<std::int64_t>(each.bytes);
      if ((constant.index || (first < end && begin < last)) && !names_constant(each.name))
        globals_[each.name].first = true;
    }
  }

  // The tensor that a map describes: by the map's first word among the parameters.
  bool map(std::uint32_t at) {
    const Instruction& instruction = flow_.instructions[at];
    std::vector<std::uint32_t> words;
    if (const auto place = contents_.places().in_params(at, *instruction.memory[0].uniform)) {
      if (*place < 0 || *place % 8 != 0 || *place + kMapBytes > kernel_.param_bytes)
        return no("a tensor map beyond its parameters");
      words.push_back(static_cast<std::uint32_t>(*place));
    } else if (!maps_by_index(contents_.address(at, instruction.memory[0]), words)) {
      return false;
    }
    const bool writes = instruction.opcode == kUtmastg || instruction.opcode == kUtmaredg;
    if (writes && !store(contents_.shared())) return false;
    // The map says how far it gets, and its address may be any.
    touch(words, !writes || instruction.opcode == kUtmaredg, writes).complete = false;
    return true;
  }

  // Maps that are found by an index among the parameters: wherever one may lie, which is where 64 divides its address.
  bool maps_by_index(const ContentsFlow::Address& address, std::vector<std::uint32_t>& words) {
    const Contents& contents = contents_.contents();
    const RootSet roots = sets_.common(address.low.low, address.high.high);
    follows_memory_ |= sets_.has(roots, contents.special(kRootOfMemory));
    if (roots != sets_.of(contents.special(kRootOfParams)) || address.low.number || address.high.number)
      return no("a tensor map that is not among its parameters");
    for (std::uint32_t at = 0; at + kMapBytes <= kernel_.param_bytes; at += 8)
      if ((kernel_.params_at + at) % kMapAlignment == 0) words.push_back(at);
    return !words.empty() || no("a tensor map beyond its parameters");
  }

  // What a place is found to be, by where its address may come from.
  struct Place {
    std::vector<std::uint32_t> words;
    std::vector<std::pair<Root, std::string>> objections;  // what must not be
    bool own = false, variable = false, nothing = false;
  };

  // Empty where nothing is to be said against an access by this root.
  std::string objection(const MemoryOperand& memory, Root root, Place& place) {
    Contents& contents = contents_.contents();
    if (root < contents.words()) {
      place.words.push_back(8 * root);
    } else if (root == contents.special(kRootOfMemory)) {
      follows_memory_ = true;
      return "it may follow an address that it loads from memory";
    } else if (root == contents.special(kRootOfUnknown)) {
      return "an address that is not understood";
    } else if (root == contents.special(kRootOfNothing)) {
      // Compilers read what nothing wrote where a variable has no value on some way that is not gone, or is gone for
      // nothing: an access by it would be undefined in the source, as one beyond an object is. Whoever has another
      // value there accesses by that. Where there is none, a write may have been overlooked.
      place.nothing = true;
    } else if (root == contents.special(kRootOfCode)) {
      return "it reads code";
    } else if (root == contents.special(kRootOfLocal) || root == contents.special(kRootOfShared)) {
      place.own = true;
    } else if (root == contents.special(kRootOfParams)) {
      if (memory.writes) return "it writes its parameters";
      place.own = true;
    } else {
      const std::string_view name = contents.variables()[root - contents.first_variable()];
      const std::string shown(name.substr(0, 200));
      if (std::ranges::count(kernel_.managed, name) != 0) return "it reaches the managed variable " + shown;
      const bool table = names_constant(name);
      if (memory.writes && table) return "it writes the table " + shown;
      if (memory.writes && std::ranges::count(kernel_.in_bank3, name, &ConstantVariable::name) != 0)
        return "it writes the constant variable " + shown;
      place.variable = true;
      if (table) return {};
      auto& mode = globals_[name];
      mode.first |= memory.reads;
      mode.second |= memory.writes;
    }
    return {};
  }

  // An address that may come from where it must not is a doubt, if it is by the launch's numbers that it does; what it
  // comes from else is what is accessed.
  bool place(std::uint32_t at, const MemoryOperand& memory) {
    if (memory.space != Space::global && memory.space != Space::generic) return true;
    const ContentsFlow::Address address = contents_.address(at, memory);
    if (memory.space == Space::generic && contents_.is_own(address)) return true;
    const RootSet roots = sets_.common(address.low.low, address.high.high);
    Contents& contents = contents_.contents();
    Place found;
    for (const Root root : sets_.roots(roots))
      if (std::string why = objection(memory, root, found); !why.empty())
        found.objections.emplace_back(root, std::move(why));
    const auto& [words, objections, own, variable, nothing] = found;
    const bool is_number = address.low.number || address.high.number;
    const bool is_own = own && memory.space == Space::generic;
    if (words.empty() && !variable && (!is_own || is_number)) {
      if (!objections.empty()) {
        no(objections.front().second);
        return doubt(at, by_launch().occurrence.of(at), objections.front().first == contents.special(kRootOfMemory));
      }
      no(nothing     ? "an address that is not understood"
         : is_number ? "an address that may be just a number"
                     : "an address that comes from nowhere");
      return doubt(at);
    }
    for (const auto& [root, why] : objections) {
      no(why);
      const ExpressionId comes = by_launch().provenance.from(at, memory, root);
      const ExpressionId happens = by_launch().occurrence.both(comes, by_launch().occurrence.of(at));
      if (!doubt(at, happens, root == contents.special(kRootOfMemory))) return false;
    }
    if (words.empty() && !variable) return true;  // the kernel's own
    if (is_number) {
      no("an address that may be just a number");
      const ExpressionId comes = by_launch().provenance.number(at, memory);
      if (!doubt(at, by_launch().occurrence.both(comes, by_launch().occurrence.of(at)))) return false;
    }
    if (memory.writes && !store(contents_.stored(at)) && !doubt(at)) return false;
    if (words.empty()) return true;
    Accessed& access = touch(words, memory.reads, memory.writes);
    for (const RootSet set : {address.low.from, address.high.from, address.low.low, address.high.high})
      for (const Root root : sets_.roots(set))
        if (root < contents.words() && std::ranges::find(words, 8 * root) == words.end())
          for (const std::uint32_t half : {8 * root, 8 * root + 4})
            if (half < params_end_) access.numbers.insert(half);
    const ExpressionId id = where_it_runs(at, addresses_.address(at, memory));
    if (access.uses.size() == kMostUses || addresses_.list().size() > kMostExpressions)
      access.complete = false;
    else
      access.uses.push_back({id, memory.bytes});
    return true;
  }

  // However it is cut into pieces, all of it may be put there, one by one.
  bool store(const Content& what) {
    Contents& contents = contents_.contents();
    for (const RootSet set : {what.low, what.high, what.from}) {
      for (const Root root : sets_.roots(set)) {
        if (root < contents.words()) stored_.insert(8 * root);
        if (root < contents.first_variable()) continue;
        const std::string_view name = contents.variables()[root - contents.first_variable()];
        if (!names_constant(name)) return no("it stores the address of the variable ", name);
      }
    }
    return true;
  }

  struct Accessed {
    bool reads = false, writes = false, complete = true;
    std::vector<AddressUse> uses;
    std::set<std::uint32_t> numbers;
  };

  Accessed& touch(const std::vector<std::uint32_t>& words, bool reads, bool writes) {
    Accessed& access = accesses_[words];
    access.reads |= reads;
    access.writes |= writes;
    return access;
  }

  const Kernel& kernel_;
  const ControlFlow& flow_;
  const Values& values_;
  ContentsFlow& contents_;
  RootSets& sets_;
  Addresses addresses_;
  std::uint32_t params_end_ = 0;
  std::string why_;
  std::map<std::vector<std::uint32_t>, Accessed> accesses_;
  std::map<std::string_view, std::pair<bool, bool>> globals_;
  std::set<std::uint32_t> stored_;
  struct Doubt {
    std::uint32_t first = 0;  // the instruction
    bool follows_memory = false;
    std::vector<ExpressionId> ways;
  };
  std::map<std::string, Doubt> doubts_;  // by what is so
  std::optional<ByLaunch> by_launch_;
  std::map<ExpressionId, bool> may_not_run_;
  bool follows_memory_ = false;
};

}  // namespace

PtxProof prove_kernel(const Elf& elf, std::string_view name) {
  PtxProof proof;
  const auto no = [&](std::string why) {
    proof.why = std::move(why);
    return proof;
  };
  const Kernel kernel = read_kernel(elf, name);
  if (!kernel.error.empty()) return no(kernel.error);
  for (const KernelParam& param : kernel.params) proof.params.push_back({{}, param.offset, param.bytes});
  const ControlFlow flow = control_flow(kernel);
  if (!flow.error.empty()) return no(flow.error);
  const Values values(kernel, flow);
  if (!calls_come_back(flow, values)) return no("a function that may return elsewhere than after its call");
  ContentsFlow contents(kernel, flow, values);
  if (!contents.run()) return no("it is too large");
  proof.understood = Judge(kernel, flow, values, contents).judge(proof);
  return proof;
}

}  // namespace nimble::code::sass
