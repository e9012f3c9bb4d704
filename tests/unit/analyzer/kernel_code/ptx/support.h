// What tests of the code library share: PTX files, and proofs as text.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "analyzer/kernel_code/ptx/module.h"
#include "analyzer/kernel_code/ptx_flow/flow.h"

namespace nimble::code::test {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_FALSE(text.empty()) << path;
  return text;
}

inline std::string ptx_file(const std::string& name) {
  return read_file(std::string(NIMBLE_TEST_PTX) + "/" + name + ".ptx");
}

// "0:w 8:r 16,24:rw 32:r[40:4==1] name:r": the words that an address may come from, the variables, and what is done
// there, under which conditions; and what it may do that launches may exclude. "?" and why where it is not understood.
inline std::string spoken(const PtxProof& proof) {
  if (!proof.understood) return "? " + proof.why;
  std::string text;
  for (const PtxAccess& access : proof.accesses) {
    if (!text.empty()) text += ' ';
    for (std::size_t i = 0; i < access.at.size(); ++i) {
      if (i != 0) text += ',';
      text += std::to_string(access.at[i]);
    }
    text += ':';
    if (access.reads) text += 'r';
    if (access.writes) text += 'w';
    for (const PtxCondition& each : access.when)
      text.append("[")
          .append(std::to_string(each.at))
          .append(":")
          .append(std::to_string(each.bytes))
          .append(each.equal ? "==" : "!=")
          .append(std::to_string(each.value))
          .append("]");
  }
  for (const PtxGlobal& global : proof.globals) {
    if (!text.empty()) text += ' ';
    text.append(global.name).append(global.reads ? ":r" : ":").append(global.writes ? "w" : "");
  }
  for (const AddressDoubt& doubt : proof.extents.doubts) text += "; " + doubt.why;
  return text;
}

inline PtxProof prove(const std::string& text, const std::string& kernel) {
  const PtxModule module = read_ptx(text);
  EXPECT_EQ(module.error, "");
  const PtxFunction* function = module.find(kernel);
  if (function == nullptr) {
    ADD_FAILURE() << "no kernel " << kernel;
    return {};
  }
  PtxProof proof = prove_kernel(module, *function);
  proof.params.clear();  // they refer to the module
  return proof;
}

// A kernel of hand-written PTX: registers are %rd, %r, %f, %fd, %p and %rs; p0 to p5 are 64-bit parameters, p6 and p7
// are 32-bit ones, at 48 and 52.
inline std::string kernel(const std::string& body, const std::string& before = "") {
  return ".version 9.0\n.target sm_90\n.address_size 64\n" + before +
         "\n.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3, .param .u64 p4,"
         " .param .u64 p5, .param .u32 p6, .param .u32 p7)\n{\n"
         ".reg .b64 %rd<32>; .reg .b32 %r<32>; .reg .f32 %f<8>; .reg .f64 %fd<8>; .reg .pred %p<8>; .reg .b16 "
         "%rs<8>;\n" +
         body + "\nret;\n}\n";
}

inline std::string proven(const std::string& body, const std::string& before = "") {
  return spoken(prove(kernel(body, before), "k"));
}

}  // namespace nimble::code::test
