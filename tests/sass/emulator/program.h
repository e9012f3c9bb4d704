// A kernel of a cubin, made ready to be run by the emulator: decoded instructions, constant banks, variables.
//
// Shares the decoder with the analyzer, and nothing of what the analyzer makes of it. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/kernel_code/elf.h"
#include "analyzer/kernel_code/sass/instruction.h"

namespace nimble::code::emulator {

// Where an operand comes from.
struct Source {
  enum class Kind : std::uint8_t { zero, r, ur, immediate, constant };
  Kind kind = Kind::zero;
  bool negated = false, absolute = false;
  std::uint16_t first = 0, count = 1;
  std::uint32_t immediate = 0;
};

struct Predicate {
  bool uniform = false, negated = false;
  std::uint8_t number = 7;  // 7: always true
};

// What the emulator does with an instruction: by the decoder's name of it, without the U of the uniform datapath.
enum class Do : std::uint8_t {
  unknown,
  nothing,
  mov,
  sel,
  iadd3,
  iadd,
  viadd,
  imad,
  lea,
  lop3,
  shf,
  prmt,
  isetp,
  plop3,
  mnmx,
  viaddmnmx,
  vimnmx3,
  iabs,
  popc,
  flo,
  brev,
  sgxt,
  bmsk,
  p2r,
  r2p,
  cs2r,
  s2r,
  lepc,
  shfl,
  vote,
  match,
  redux,
  r2ur,
  elect,
  fadd,
  fmul,
  ffma,
  fsel,
  fsetp,
  fmnmx,
  mufu,
  i2f,
  f2i,
  f2f,
  fchk,
  dadd,
  dmul,
  dfma,
  dsetp,
  hfma2,
  idp,
  garbage,
  bra,
  brx,
  bra_div,
  call,
  ret,
  exit,
  bssy,
  bsync,
  brk,
  bmov,
  bar,
  load,
  store,
  atomic,
  ldc,
  ldgsts,
  ldsm,
  stsm,
  syncs,
  bulk,
  tensor,
  work,
  qspc,
};

struct Op {
  sass::Instruction instruction;
  sass::Word word;
  Do what = Do::unknown;
  bool once = false;  // for the whole warp
  Source a, b, c;
  std::uint16_t to = 0xffff;  // the first register that is written; 0xffff: none
  bool to_uniform = false;
  std::uint8_t to_count = 0;
  Predicate p81, p84;       // written; number 7: none
  Predicate p87, p77, p68;  // read
};

struct Variable {
  std::string_view name;
  std::uint64_t bytes = 0;
};

struct Program {
  std::string error;
  unsigned arch = 0;
  std::uint32_t entry = 0;  // instruction
  std::vector<Op> ops;
  std::uint32_t params_at = 0, param_bytes = 0;
  std::vector<std::uint8_t> bank2, bank3;
  std::map<std::uint32_t, std::uint32_t> bank4;  // variable by offset
  std::vector<Variable> variables;
};

Program load_program(const Elf& elf, std::string_view kernel);

}  // namespace nimble::code::emulator
