#include "analyzer/kernel_code/ptx_flow/flow.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "analyzer/kernel_code/ptx/compiler_names.h"
#include "analyzer/kernel_code/ptx_flow/value_moves.h"

namespace nimble::code {
namespace {

constexpr std::uint64_t kMostWork = std::uint64_t{1} << 32;    // words of sets visited: some seconds
constexpr std::uint64_t kMostMemory = std::uint64_t{1} << 26;  // words of sets held: 512 MiB

// A value as three sets of roots: what it may be itself, what it was computed from, and what it holds as its upper
// part. And whether it may be a number without any root as its address.
enum Part : unsigned { kIs, kFrom, kUpper, kParts };

class Flow {
 public:
  explicit Flow(const PtxSteps& steps) : steps_(steps), words_((steps.roots() + 63) / 64) {}

  bool run() {
    if (std::uint64_t{steps_.cells} * kParts * words_ > kMostMemory) return false;
    sets_.assign(std::size_t{steps_.cells} * kParts * words_, 0);
    numbers_.assign(steps_.cells, false);
    for (const auto& [cell, root] : steps_.given) put(cell, kIs, root);
    std::uint64_t work = 0;
    do {
      changed_ = false;
      work += steps_.steps.size() * kParts * words_ + 1;
      for (const PtxStep& step : steps_.steps) apply(step);
    } while (changed_ && work < kMostWork);
    return !changed_;
  }

  bool may_be(std::uint32_t cell, std::uint32_t root) const { return has(cell, kIs, root) || has(cell, kUpper, root); }
  // It holds something of it, however little.
  bool holds(std::uint32_t cell, std::uint32_t root) const { return may_be(cell, root) || has(cell, kFrom, root); }
  // It may not be an address at all, or half of one.
  bool may_be_number(std::uint32_t cell) const { return numbers_[cell] || !empty(cell, kUpper); }

 private:
  std::uint64_t* set(std::uint32_t cell, unsigned part) {
    return sets_.data() + (std::size_t{cell} * kParts + part) * words_;
  }
  bool has(std::uint32_t cell, unsigned part, std::uint32_t root) const {
    return (sets_[(std::size_t{cell} * kParts + part) * words_ + root / 64] >> (root % 64) & 1) != 0;
  }
  void put(std::uint32_t cell, unsigned part, std::uint32_t root) {
    std::uint64_t& word = set(cell, part)[root / 64];
    const std::uint64_t bit = std::uint64_t{1} << (root % 64);
    changed_ |= (word & bit) == 0;
    word |= bit;
  }
  void join(std::uint32_t dst, unsigned to, std::uint32_t src, unsigned from) {
    std::uint64_t* const into = set(dst, to);
    const std::uint64_t* const out = set(src, from);
    for (std::size_t i = 0; i < words_; ++i) {
      changed_ |= (out[i] & ~into[i]) != 0;
      into[i] |= out[i];
    }
  }
  void join_all(std::uint32_t dst, unsigned to, std::uint32_t src) {
    for (unsigned part = 0; part < kParts; ++part) join(dst, to, src, part);
  }
  bool empty(std::uint32_t cell, unsigned part) const {
    const std::uint64_t* const bits = sets_.data() + (std::size_t{cell} * kParts + part) * words_;
    return std::all_of(bits, bits + words_, [](std::uint64_t word) { return word == 0; });
  }

  void keep(std::uint32_t dst, std::uint32_t src) {
    for (unsigned part = 0; part < kParts; ++part) join(dst, part, src, part);
    number(dst, numbers_[src]);
  }
  void number(std::uint32_t dst, bool is) {
    changed_ |= is && !numbers_[dst];
    numbers_[dst] = numbers_[dst] || is;
  }

  // With an upper part it becomes something that is put together.
  void combine(const PtxStep& step) {
    const std::array<std::uint32_t, 2> sources{step.src, step.other};
    bool all = true, any = false, whole = false;
    for (const std::uint32_t src : sources) {
      const bool is = src == kNoCell || numbers_[src];
      all &= is;
      any |= is;
      whole |= src != kNoCell && !empty(src, kUpper);
    }
    for (const std::uint32_t src : sources) {
      if (src == kNoCell) continue;
      join(step.dst, kIs, src, kIs);
      join(step.dst, kFrom, src, kFrom);
      if (whole) join_all(step.dst, kIs, src);
    }
    number(step.dst, step.op == PtxStep::Op::either && !whole ? any : all && !whole);
  }

  void apply(const PtxStep& step) {
    using Op = PtxStep::Op;
    switch (step.op) {
      case Op::keep:
        return keep(step.dst, step.src);
      case Op::combine:
      case Op::either:
        return combine(step);
      case Op::number:
        return number(step.dst, step.src == kNoCell || numbers_[step.src]);
      case Op::weaken:
        number(step.dst, true);
        return join_all(step.dst, kFrom, step.src);
      case Op::restore:
        return join_all(step.dst, kIs, step.src);
      case Op::raise:
        return join_all(step.dst, kUpper, step.src);
      case Op::lower:
        number(step.dst, may_be_number(step.src));
        join(step.dst, kIs, step.src, kIs);
        join(step.dst, kFrom, step.src, kFrom);
        return join(step.dst, kFrom, step.src, kUpper);
      case Op::load:
        return load(step);
      case Op::store:
        return store(step);
      case Op::touch:
        return;
    }
  }

  // From cells that stand for memory: what was stored there whole, and in parts.
  void load_cells(const PtxStep& step, std::uint32_t wide, std::uint32_t narrow) {
    if (step.wide) {
      keep(step.dst, wide);
      join_all(step.dst, kIs, narrow);
    } else {
      join_all(step.dst, kFrom, wide);
      join_all(step.dst, kFrom, narrow);
    }
  }

  void load(const PtxStep& step) {
    const unsigned part = step.wide ? kIs : kFrom;
    const std::uint32_t at = step.address;
    if (!step.wide) number(step.dst, true);
    if (step.space == PtxSpace::shared || may_be(at, steps_.root(kRootShared)))
      load_cells(step, steps_.shared_wide, steps_.shared_narrow);
    for (std::size_t i = 0; i < steps_.extra.size(); ++i) {
      const PtxExtraRoot& extra = steps_.extra[i];
      if ((extra.space != PtxSpace::local && extra.space != PtxSpace::param) || !may_be(at, steps_.extra_root(i)))
        continue;
      for (std::uint32_t word = 0; word < extra.words; ++word) {
        if (extra.space == PtxSpace::local)
          load_cells(step, extra.first + 2 * word, extra.first + 2 * word + 1);
        else
          put(step.dst, part, extra.first + word);
      }
    }
    const bool global = step.space == PtxSpace::global || step.space == PtxSpace::constant;
    if (global || (step.space == PtxSpace::generic && may_be_global(at))) put(step.dst, part, steps_.root(kRootMemory));
  }

  // Whether an address may be of memory that is neither the thread's nor the block's own.
  bool may_be_global(std::uint32_t at) const {
    for (std::uint32_t root = 0; root < steps_.roots(); ++root) {
      if (root == steps_.root(kRootShared) || !may_be(at, root)) continue;
      if (root < steps_.extra_root(0)) return true;
      const PtxSpace space = steps_.extra[root - steps_.extra_root(0)].space;
      if (space != PtxSpace::local && space != PtxSpace::param) return true;
    }
    return false;
  }

  void store_cells(const PtxStep& step, std::uint32_t wide, std::uint32_t narrow) {
    if (step.wide)
      keep(wide, step.src);
    else
      join_all(narrow, kFrom, step.src);
  }

  void store(const PtxStep& step) {
    if (step.space == PtxSpace::shared || may_be(step.address, steps_.root(kRootShared)))
      store_cells(step, steps_.shared_wide, steps_.shared_narrow);
    for (std::size_t i = 0; i < steps_.extra.size(); ++i) {
      const PtxExtraRoot& extra = steps_.extra[i];
      if (extra.space != PtxSpace::local || !may_be(step.address, steps_.extra_root(i))) continue;
      for (std::uint32_t word = 0; word < extra.words; ++word)
        store_cells(step, extra.first + 2 * word, extra.first + 2 * word + 1);
    }
  }

  const PtxSteps& steps_;
  std::size_t words_;
  std::vector<std::uint64_t> sets_;
  std::vector<bool> numbers_;  // cells that may not be an address
  bool changed_ = false;
};

// What the flow says about every place where memory is touched.
class Judge {
 public:
  Judge(const PtxSteps& steps, const Flow& flow, const std::vector<PtxParam>& params) : steps_(steps), flow_(flow) {
    for (const PtxParam& param : params) params_end_ = std::max(params_end_, param.offset + param.size);
  }

  bool judge(PtxProof& proof) {
    for (const PtxStep& step : steps_.steps) {
      using Op = PtxStep::Op;
      if (step.op != Op::load && step.op != Op::store && step.op != Op::touch) continue;
      const bool reads = step.op == Op::load || step.reads, writes = step.op == Op::store || step.writes;
      // The first reason is told; that memory is followed counts wherever it is found.
      why_.clear();
      if (!place(step, reads, writes) && proof.why.empty()) proof.why = why_;
    }
    proof.follows_memory = follows_memory_;
    if (!proof.why.empty()) return false;
    for (const auto& [at, access] : accesses_) {
      proof.accesses.push_back({at, access.reads, access.writes, access.when.value_or(PtxConditions{})});
      proof.extents.groups.push_back({at, access.reads, access.writes, {}, false, {}});
      for (const std::uint32_t word : access.numbers) proof.extents.groups.back().numbers.push_back(word);
    }
    for (const auto& [name, mode] : globals_) proof.globals.push_back({std::string(name), mode.first, mode.second});
    proof.stored.assign(stored_.begin(), stored_.end());
    return true;
  }

 private:
  bool no(std::string_view why, std::string_view what = {}) {
    why_.append(why).append(what.substr(0, 200));
    return false;
  }

  // One condition after another, each with its own reason: their order decides which reason is given.
  bool place(const PtxStep& step, bool reads, bool writes) {
    const std::uint32_t at = step.address;
    if (step.space == PtxSpace::shared) return true;
    std::vector<std::uint32_t> words;
    for (std::uint32_t word = 0; word < steps_.words; ++word)
      if (may_be_word(at, word)) words.push_back(8 * word);
    bool own = flow_.may_be(at, steps_.root(kRootShared)), local = false, param = false, variable = false;
    for (std::size_t i = 0; i < steps_.extra.size(); ++i) {
      if (!flow_.may_be(at, steps_.extra_root(i))) continue;
      const PtxExtraRoot& extra = steps_.extra[i];
      local |= extra.space == PtxSpace::local;
      param |= extra.space == PtxSpace::param;
      if (extra.space == PtxSpace::local || extra.space == PtxSpace::param) continue;
      if (step.space == PtxSpace::local || step.space == PtxSpace::param) continue;
      if (extra.space == PtxSpace::texture) return no("it reaches the texture ", extra.name);
      const bool table = names_constant(extra.name);
      if (writes && table) return no("it writes the table ", extra.name);
      if (writes && extra.space == PtxSpace::constant) return no("it writes the constant variable ", extra.name);
      variable = true;
      if (table) continue;
      auto& mode = globals_[extra.name];
      mode.first |= reads;
      mode.second |= writes;
    }
    if (param && writes) return no("it writes its parameters");
    if (step.space == PtxSpace::local) return local || no("local memory at an unknown address");
    if (step.space == PtxSpace::param) return param || no("parameters at an unknown address");
    if (step.space == PtxSpace::constant)
      return (variable && words.empty()) || no("constant memory at an unknown address");
    if (flow_.may_be(at, steps_.root(kRootMemory))) {
      follows_memory_ = true;
      return no("it may follow an address that it loads from memory");
    }
    if (flow_.may_be(at, steps_.root(kRootUnknown))) return no("an address that is not understood");
    if (flow_.may_be(at, steps_.root(kRootCode))) return no("it reads code");
    own |= local || param;
    if (words.empty() && !variable)
      return (step.space == PtxSpace::generic && own) || no("an address that comes from nowhere");
    if (flow_.may_be_number(at)) return no("an address that may be just a number");
    // However it is split, all its pieces may be stored one by one.
    if (step.op == PtxStep::Op::store) {
      for (std::uint32_t word = 0; word < steps_.words; ++word)
        if (holds_any(step.src, word)) stored_.emplace(8 * word);
      for (std::size_t i = 0; i < steps_.extra.size(); ++i) {
        const PtxExtraRoot& extra = steps_.extra[i];
        const bool others = extra.space != PtxSpace::local && extra.space != PtxSpace::param;
        if (others && !names_constant(extra.name) && flow_.holds(step.src, steps_.extra_root(i)))
          return no("it stores the address of the variable ", extra.name);
      }
    }
    if (words.empty()) return true;
    Accessed& access = accesses_[words];
    access.reads |= reads;
    access.writes |= writes;
    for (std::uint32_t half = 0; 4 * half < params_end_; ++half) {
      const bool holds = flow_.holds(at, half / 2) || flow_.holds(at, steps_.half_root(half));
      if (holds && !may_be_word(at, half / 2)) access.numbers.insert(4 * half);
    }
    const PtxConditions& conditions = steps_.conditions[step.when];
    if (!access.when) access.when = conditions;
    std::erase_if(*access.when, [&](const PtxCondition& each) { return !std::ranges::count(conditions, each); });
    return true;
  }

  // A word of the parameters, as a whole or put together.
  bool may_be_word(std::uint32_t cell, std::uint32_t word) const {
    return flow_.may_be(cell, word) || flow_.may_be(cell, steps_.half_root(2 * word)) ||
           flow_.may_be(cell, steps_.half_root(2 * word + 1));
  }

  // The word or a half of it.
  bool holds_any(std::uint32_t cell, std::uint32_t word) const {
    return flow_.holds(cell, word) || flow_.holds(cell, steps_.half_root(2 * word)) ||
           flow_.holds(cell, steps_.half_root(2 * word + 1));
  }

  struct Accessed {
    bool reads = false, writes = false;
    std::optional<PtxConditions> when;  // of all that was seen so far
    std::set<std::uint32_t> numbers;
  };

  const PtxSteps& steps_;
  const Flow& flow_;
  std::uint32_t params_end_ = 0;
  std::string why_;
  std::map<std::vector<std::uint32_t>, Accessed> accesses_;
  std::map<std::string_view, std::pair<bool, bool>> globals_;
  std::set<std::uint32_t> stored_;
  bool follows_memory_ = false;
};

}  // namespace

PtxProof prove_kernel(const PtxModule& module, const PtxFunction& kernel) {
  PtxProof proof;
  proof.params = kernel.params;
  const auto no = [&](std::string_view why) {
    proof.why = why;
    if (proof.why_not_self_contained.empty() && !proof.self_contained) proof.why_not_self_contained = why;
    return proof;
  };
  if (!module.error.empty()) return no(module.error);
  if (!kernel.entry || !kernel.defined) return no("it is no kernel");
  const PtxSteps steps = ptx_steps(module, kernel);
  proof.why_not_self_contained = steps.hidden.empty() ? steps.variable : steps.hidden;
  if (!steps.error.empty()) return no(steps.error);
  proof.self_contained = proof.why_not_self_contained.empty();
  if (!steps.hidden.empty()) return no(steps.hidden);
  Flow flow(steps);
  if (!flow.run()) return no("it is too large");
  proof.understood = Judge(steps, flow, kernel.params).judge(proof);
  return proof;
}

}  // namespace nimble::code
