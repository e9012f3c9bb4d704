// From accesses to parameters.
#include "analyzer/code_survey/param_uses.h"

#include <gtest/gtest.h>

namespace nimble::analyzer {
namespace {

// "0-7: read | 8-11: never an address"; of several pieces each in brackets.
std::string uses(const code::PtxProof& proof) {
  std::string text;
  for (const ParamUse& param : param_uses(proof)) {
    text += (text.empty() ? "" : " | ") + bytes_range(param.offset, param.offset + param.size) + ":";
    for (const PieceUse& piece : param.pieces)
      text += " [" + std::to_string(piece.begin) + "-" + std::to_string(piece.end) + " " + spoken(piece) + "]";
  }
  return text;
}

code::PtxProof proof_of(std::vector<code::PtxParam> params, std::vector<code::PtxAccess> accesses) {
  code::PtxProof proof;
  proof.understood = true;
  proof.params = std::move(params);
  proof.accesses = std::move(accesses);
  return proof;
}

TEST(ParamUses, OfPlainParameters) {
  EXPECT_EQ(uses(proof_of({{{}, 0, 8}, {{}, 8, 8}, {{}, 16, 8}, {{}, 24, 8}, {{}, 32, 4}, {{}, 36, 1}},
                          {{{0}, true, false}, {{8}, false, true}, {{16}, true, true}})),
            "bytes 0-7: [0-8 read] | bytes 8-15: [8-16 written] | bytes 16-23: [16-24 read and written] | "
            "bytes 24-31: [24-32 never an address] | bytes 32-35: [32-36 never an address] | byte 36: "
            "[36-37 never an address]");
}

TEST(ParamUses, OfAStructureInPieces) {
  EXPECT_EQ(uses(proof_of({{{}, 4, 44}}, {{{8}, true, false}, {{16}, true, false}, {{32}, false, true}})),
            "bytes 4-47: [4-8 never an address] [8-24 read] [24-32 never an address] [32-40 written] "
            "[40-48 never an address]");
}

TEST(ParamUses, OfATableOfAddresses) {
  EXPECT_EQ(uses(proof_of({{{}, 0, 24}, {{}, 24, 8}}, {{{0, 8, 16, 24}, false, true}, {{8}, true, false}})),
            "bytes 0-23: [0-8 written by one of the addresses in bytes 0-31] [8-16 written by one of the addresses in "
            "bytes 0-31; read] [16-24 written by one of the addresses in bytes 0-31] | bytes 24-31: [24-32 written by "
            "one of the addresses in bytes 0-31]");
  EXPECT_EQ(
      uses(proof_of({{{}, 0, 8}, {{}, 8, 8}, {{}, 16, 8}}, {{{0, 16}, true, false}})),
      "bytes 0-7: [0-8 read by one of the addresses in bytes 0-7 and 16-23] | bytes 8-15: [8-16 never an address] "
      "| bytes 16-23: [16-24 read by one of the addresses in bytes 0-7 and 16-23]");
}

TEST(ParamUses, UnderConditions) {
  EXPECT_EQ(uses(proof_of({{{}, 0, 8}}, {{{0}, true, false, {{8, 4, 1, true}, {12, 1, 0, false}}}})),
            "bytes 0-7: [0-8 read, if bytes 8-11 are 1 and byte 12 is not 0]");
}

TEST(ParamUses, WithWordsThatAreStored) {
  auto proof = proof_of({{{}, 0, 8}, {{}, 8, 8}, {{}, 16, 4}}, {{{0}, false, true}});
  proof.stored = {8, 16};
  EXPECT_EQ(uses(proof),
            "bytes 0-7: [0-8 written] | bytes 8-15: [8-16 never an address; stored in memory] | "
            "bytes 16-19: [16-20 never an address]");
}

TEST(ParamUses, WhereNoParametersAreKnown) {
  EXPECT_EQ(uses(proof_of({}, {{{8}, true, false}, {{16}, false, true}, {{40}, true, false}})),
            "bytes 8-23: [8-16 read] [16-24 written] | bytes 40-47: [40-48 read]");
}

// What a layout does not explain is shown all the same.
TEST(ParamUses, LoseNoAccess) {
  EXPECT_EQ(uses(proof_of({{{}, 0, 4}, {{}, 4, 4}}, {{{0}, true, false}})),
            "bytes 0-3: [0-4 read] | bytes 4-7: [4-8 read]");
}

}  // namespace
}  // namespace nimble::analyzer
