// A sample of machine code with what nvdisasm says of it: sample.tsv beside this, one instruction a line.
//
// architecture, low and high half in hexadecimal, nvdisasm's text, and by its life ranges the registers that are
// written and read, with their widths. Two encodings at least of every opcode on the oldest and the newest architecture
// that has it. Made with nvdisasm 13.5.37; of what lies in control flow it tells no life ranges, and the last two are
// "-" there.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "analyzer/kernel_code/sass/instruction.h"

namespace nimble::code::sass {

struct Sampled {
  unsigned arch = 0;
  Word word;
  std::string text;
  bool has_life = true;
  std::set<std::string> written, read;
};

std::vector<Sampled> read_sample(const std::string& path);

// The name of an instruction's opcode in the disassembler's text, without modifiers.
std::string name_in(const std::string& text);

}  // namespace nimble::code::sass
