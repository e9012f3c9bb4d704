#include "analyzer/kernel_code/sass_code/control_flow.h"

#include <map>
#include <utility>

#include "analyzer/kernel_code/sass_code/reach.h"

namespace nimble::code::sass {
namespace {

class Builder {
 public:
  explicit Builder(const Kernel& kernel) : kernel_(kernel), reach_(reach_of(kernel)) {}

  ControlFlow run() {
    flow_.error = std::move(reach_.error);
    flow_.instructions = std::move(reach_.instructions);
    flow_.text = kernel_.text;
    for (const auto& [byte, symbol] : kernel_.in_text)
      flow_.relocated.insert(byte / static_cast<std::uint32_t>(kInstructionBytes));
    if (!flow_.error.empty()) return std::move(flow_);
    make_blocks();
    if (follow_calls()) find_clobbered();
    return std::move(flow_);
  }

 private:
  bool fail(std::string why) {
    if (flow_.error.empty()) flow_.error = std::move(why);
    return false;
  }

  void make_blocks() {
    block_of_.assign(kernel_.instructions(), kNoBlock);
    for (std::uint32_t at = 0; at < kernel_.instructions(); ++at) {
      if (!reach_.reached[at]) continue;
      const bool begins = reach_.leaders.contains(at) || at == 0 || !reach_.reached[at - 1] || reach_.ends[at - 1].is;
      if (begins) {
        flow_.blocks.emplace_back();
        flow_.blocks.back().begin = at;
      }
      block_of_[at] = static_cast<std::uint32_t>(flow_.blocks.size() - 1);
      flow_.blocks.back().end = at + 1;
    }
    for (std::uint32_t block = 0; block < flow_.blocks.size(); ++block) {
      const std::uint32_t last = flow_.blocks[block].end - 1;
      const End& end = reach_.ends[last];
      for (const std::uint32_t to : end.to) lead(block, block_of_[to]);
      if (!end.is || end.falls_through) lead(block, block_of_[last + 1]);
    }
  }

  void lead(std::uint32_t from, std::uint32_t to) { flow_.blocks[to].from.push_back({from, false}); }

  // Functions: what is reached from where one begins, without going into those that it calls.
  bool follow_calls() {
    std::map<std::uint32_t, std::uint32_t> function_at;  // by block
    std::vector<std::vector<std::uint32_t>> next(flow_.blocks.size());
    for (std::uint32_t block = 0; block < flow_.blocks.size(); ++block)
      for (const Block::From& from : flow_.blocks[block].from) next[from.block].push_back(block);
    const auto function = [&](std::uint32_t block) {
      const auto [found, is_new] = function_at.emplace(block, flow_.functions.size());
      if (is_new) flow_.functions.push_back({block, {}, {}});
      return found->second;
    };
    function(block_of_[kernel_.entry / 16]);
    std::vector<std::uint32_t> owner(flow_.blocks.size(), kNoBlock);
    for (std::uint32_t f = 0; f < flow_.functions.size(); ++f) {
      std::vector<std::uint32_t> open{flow_.functions[f].entry};
      while (!open.empty()) {
        const std::uint32_t block = open.back();
        open.pop_back();
        if (owner[block] == f) continue;
        if (owner[block] != kNoBlock) return fail("functions that share code");
        owner[block] = f;
        flow_.blocks[block].function = f;
        for (const std::uint32_t to : next[block]) open.push_back(to);
        const std::uint32_t last = flow_.blocks[block].end - 1;
        if (reach_.ends[last].returns) flow_.functions[f].returns.push_back(block);
        if (!reach_.ends[last].call) continue;
        flow_.blocks[block].callee = function(block_of_[*reach_.ends[last].call]);
        open.push_back(block_of_[last + 1]);
      }
    }
    if (!flow_.functions.front().returns.empty()) return fail("the kernel returns");
    for (std::uint32_t block = 0; block < flow_.blocks.size(); ++block) {
      if (flow_.blocks[block].callee != kNoBlock)
        flow_.blocks[block_of_[flow_.blocks[block].end]].from.push_back({block, true});
    }
    return true;
  }

  void find_clobbered() {
    for (const Block& block : flow_.blocks)
      for (std::uint32_t at = block.begin; at < block.end; ++at)
        for (const Registers& registers : flow_.instructions[at].written)
          for (std::uint32_t i = 0; i < registers.count; ++i)
            flow_.functions[block.function].clobbered.set(variable_of(registers.file, registers.first + i));
    for (bool changed = true; changed;) {
      changed = false;
      for (const Block& block : flow_.blocks) {
        if (block.callee == kNoBlock) continue;
        VariableSet& own = flow_.functions[block.function].clobbered;
        const VariableSet with = own | flow_.functions[block.callee].clobbered;
        changed |= with != own;
        own = with;
      }
    }
  }

  const Kernel& kernel_;
  Reach reach_;
  ControlFlow flow_;
  std::vector<std::uint32_t> block_of_;
};

}  // namespace

ControlFlow control_flow(const Kernel& kernel) { return Builder(kernel).run(); }

}  // namespace nimble::code::sass
