// The control flow of a kernel and of the functions that it calls: basic blocks, the ways between them, calls.
//
// What is not understood is an error, with the reason: an instruction that the table does not hold, a call through a
// pointer. A call is assumed to return to just after itself, which returns.h checks. Only what can be reached counts.
// Belongs to one thread; owns all it has.
#pragma once

#include <bitset>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/kernel_code/sass/instruction.h"
#include "analyzer/kernel_code/sass_code/kernel.h"
#include "analyzer/kernel_code/sass_code/reach.h"

namespace nimble::code::sass {

// Every register and predicate as a number.
inline constexpr std::uint32_t kFirstUniform = 255, kFirstPredicate = 510, kFirstUniformPredicate = 517,
                               kVariables = 524;
using VariableSet = std::bitset<kVariables>;

constexpr std::uint32_t variable_of(File file, std::uint32_t number) {
  constexpr std::uint32_t kFirst[] = {0, kFirstUniform, kFirstPredicate, kFirstUniformPredicate};
  return kFirst[static_cast<unsigned>(file)] + number;
}

inline constexpr std::uint32_t kNoBlock = 0xffffffffu;

struct Block {
  std::uint32_t begin = 0, end = 0;  // instructions
  std::uint32_t function = 0;
  // Blocks that come before it; where one of them ends in a call that comes back here, `after_call` says so.
  struct From {
    std::uint32_t block = 0;
    bool after_call = false;
  };
  std::vector<From> from;
  std::uint32_t callee = kNoBlock;  // the function that is called at its end
};

// The kernel is the first. Functions may share blocks with no other.
struct Function {
  std::uint32_t entry = 0;             // block
  std::vector<std::uint32_t> returns;  // blocks that end in a return
  VariableSet clobbered;               // what it, or what it calls, may write
};

struct ControlFlow {
  std::string error;
  std::vector<Instruction> instructions;  // by their place in the text; those that are not reached are not decoded
  std::vector<Block> blocks;
  std::vector<Function> functions;
  Bytes text;                         // the kernel's
  std::set<std::uint32_t> relocated;  // instructions into which the loader puts something

  Word word(std::uint32_t instruction) const {
    const std::uint64_t at = std::uint64_t{instruction} * kInstructionBytes;
    return {*read_at<std::uint64_t>(text, at), *read_at<std::uint64_t>(text, at + 8)};
  }
};

ControlFlow control_flow(const Kernel& kernel);

}  // namespace nimble::code::sass
