// What is found of a kernel, in words.
#include "analyzer/code_survey/survey_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nimble::analyzer {
namespace {

KernelFindings scale() {
  KernelFindings kernel;
  kernel.name = "_Z5scalePfPKfi";
  code::PtxProof machine, ptx, older;
  machine.understood = ptx.understood = true;
  machine.params = ptx.params = older.params = {{"a", 0, 8}, {"b", 8, 8}, {"n", 16, 4}};
  machine.accesses = {{{0}, false, true}, {{8}, true, false}};
  machine.globals = {{"_ZN2ns5tableE", true, false}};
  ptx = machine;
  ptx.accesses[0].reads = true;
  ptx.accesses[1].when = {{16, 4, 1, true}};
  older.why = "it reads code, at byte 0x10";
  kernel.add({90, '\0', false}, machine);
  kernel.add({80, '\0', false}, older);
  older.why = "it reads code, at byte 0x20";
  kernel.add({75, '\0', false}, older);
  kernel.add({90, '\0', true}, ptx);
  return kernel;
}

TEST(KernelText, SaysWhatIsDoneWithEachParameter) {
  EXPECT_EQ(kernel_text(scale()), R"(scale(float*, float const*, int)
  _Z5scalePfPKfi
  sm_90 (machine code):
    parameter 0, bytes 0-7: written
    parameter 1, bytes 8-15: read
    parameter 2, bytes 16-19: never an address
    variable ns::table: read
  sm_75, sm_80 (machine code):
    not understood: it reads code, at byte 0x20 in sm_75, 0x10 in sm_80
  compute_90 (PTX):
    parameter 0, bytes 0-7: read and written
    parameter 1, bytes 8-15: read, if bytes 16-19 are 1
    parameter 2, bytes 16-19: never an address
    variable ns::table: read
  sm_90 and compute_90 differ: machine code touches less
)");
}

TEST(KernelText, NamesTheNumbersByWhichALaunchExcludesWhatProvesNothing) {
  code::PtxProof proof;
  proof.understood = true;
  proof.params = {{"a", 0, 8}, {"mode", 8, 4}};
  proof.accesses = {{{0}, false, true}};
  proof.extents.expressions = {{ExpressionOp::constant, 32, 0, 0, 1}, {ExpressionOp::param, 32, 4, 0, 8},
                               {ExpressionOp::launch, 32, 0, 0, 9},   {ExpressionOp::where, 32, 1, 2, 4},
                               {ExpressionOp::when, 32, 0, 3, 0},     {ExpressionOp::param, 32, 1, 0, 15},
                               {ExpressionOp::where, 32, 5, 0, 4},    {ExpressionOp::when, 32, 4, 6, 0}};
  proof.extents.doubts = {{7, "it may follow an address, at byte 0x40", true}};
  KernelFindings kernel;
  kernel.name = "chooses";
  kernel.add({90, '\0', false}, proof);
  proof.extents.doubts[0].why = "it may follow an address, at byte 0x50";
  kernel.add({80, '\0', false}, proof);
  EXPECT_EQ(kernel_text(kernel), R"(chooses
  sm_80, sm_90 (machine code):
    only for launches that exclude it by bytes 8-11, byte 15 and the launch's shape: it may follow an address
    parameter 0, bytes 0-7: written
    parameter 1, bytes 8-11: never an address
)");
  proof.extents.doubts[0].happens = 4;
  kernel.add({75, '\0', false}, proof);
  EXPECT_EQ(kernel.findings.size(), 2u) << "other numbers decide";
}

TEST(KernelText, OfAKernelThatTouchesNothing) {
  KernelFindings kernel;
  kernel.name = "none";
  code::PtxProof proof;
  proof.understood = true;
  kernel.add({90, '\0', false}, proof);
  EXPECT_EQ(kernel_text(kernel), "none\n  sm_90 (machine code):\n    no parameters, and no memory but its own\n");
}

// Names come from outside.
TEST(KernelText, HasNoControlCharacters) {
  KernelFindings kernel;
  kernel.name = "a\033[1mb\n" + std::string(100000, 'c');
  code::PtxProof proof;
  proof.why = "it calls \033[1m\n";
  kernel.add({90, '\0', false}, proof);
  const std::string text = kernel_text(kernel);
  EXPECT_EQ(text.find('\033'), text.npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_LT(text.size(), 5000u);
}

TEST(KernelJson, HasAllThatIsKnown) {
  JsonText out;
  kernel_json(out, scale(), 4096);
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json["name"], "_Z5scalePfPKfi");
  EXPECT_EQ(json["image"], 4096);
  ASSERT_EQ(json["findings"].size(), 3u);
  const auto& machine = json["findings"][0];
  EXPECT_EQ(machine["targets"], nlohmann::json::parse(R"([{"name": "sm_90"}])"));
  EXPECT_EQ(machine["params"], nlohmann::json::parse("[[0, 8], [8, 8], [16, 4]]"));
  EXPECT_EQ(machine["accesses"][1],
            nlohmann::json::parse(R"({"at": [8], "reads": true, "writes": false, "when": []})"));
  EXPECT_EQ(machine["variables"],
            nlohmann::json::parse(R"([{"name": "_ZN2ns5tableE", "reads": true, "writes": false}])"));
  const auto& older = json["findings"][1];
  EXPECT_EQ(older["understood"], false);
  EXPECT_EQ(older["cause"], "it reads code");
  EXPECT_EQ(older["targets"][0], nlohmann::json::parse(R"({"name": "sm_75", "place": "0x20"})"));
  EXPECT_EQ(json["findings"][2]["accesses"][1]["when"],
            nlohmann::json::parse(R"([{"at": 16, "bytes": 4, "value": 1, "equal": true}])"));
}

}  // namespace
}  // namespace nimble::analyzer
