// Counts of what is proven, and of what is not.
#include "analyzer/code_survey/summary.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nimble::analyzer {
namespace {

code::PtxProof proof_of(const std::string& why) {
  code::PtxProof proof;
  proof.understood = why.empty();
  proof.why = why;
  return proof;
}

SurveySummary two_images() {
  ImageFindings first, second;
  first.kernels.resize(2);
  first.kernels[0].add({90, '\0', false}, proof_of(""));
  first.kernels[0].add({90, '\0', true}, proof_of("it calls f"));
  first.kernels[1].add({90, '\0', false}, proof_of("it reaches the managed variable a, at byte 0x10"));
  second.kernels.resize(2);
  second.kernels[0].add({90, '\0', false}, proof_of("it reaches the managed variable b, at byte 0x20"));
  second.kernels[1].add({90, 'a', false}, proof_of("it calls f"));
  second.unread.push_back({"sm_80", "damaged Zstandard data"});
  SurveySummary summary;
  summary.add(first);
  summary.add(second);
  return summary;
}

TEST(Summary, CountsByArchitectureAndByCause) {
  EXPECT_EQ(two_images().kernels(), 5u);
  EXPECT_EQ(two_images().text(), R"(2 images

                 kernels    proven
sm_90                  3         1   33.3 %
compute_90             1         0    0.0 %
sm_90a                 1         0    0.0 %

Not proven, by cause, on all architectures:
        2  it calls f
        2  it reaches the managed variable

PTX and machine code of the same architecture:
        1  only the machine code is understood

Not read:
        1  sm_80: damaged Zstandard data
)");
}

TEST(Summary, CountsApartWhatIsProvenByTheLaunch) {
  code::PtxProof proof = proof_of("");
  proof.extents.expressions = {{ExpressionOp::constant, 32, 0, 0, 1}};
  proof.extents.doubts = {{0, "it may follow an address, at byte 0x40", true}};
  ImageFindings image;
  image.kernels.resize(2);
  image.kernels[0].add({90, '\0', false}, proof);
  image.kernels[1].add({90, '\0', false}, proof_of(""));
  SurveySummary summary;
  summary.add(image);
  EXPECT_EQ(summary.text(), R"(1 image

                 kernels    proven
sm_90                  2         1   50.0 %

Proven for launches that exclude it by their numbers, on all architectures:
        1  it may follow an address
)");
  JsonText out;
  summary.json(out);
  EXPECT_EQ(nlohmann::json::parse(out.str())["targets"][0]["by_launch"], 1);
}

TEST(Summary, AsJson) {
  JsonText out;
  two_images().json(out);
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(json["images"], 2);
  ASSERT_EQ(json["targets"].size(), 3u);
  EXPECT_EQ(json["targets"][0]["name"], "sm_90");
  EXPECT_EQ(json["targets"][0]["kernels"], 3);
  EXPECT_EQ(json["targets"][0]["proven"], 1);
  EXPECT_EQ(json["targets"][0]["causes"][0]["cause"], "it reaches the managed variable");
  EXPECT_EQ(json["targets"][0]["causes"][0]["count"], 2);
  EXPECT_EQ(json["pairs"]["only the machine code is understood"], 1);
  EXPECT_EQ(json["unread"][0]["cause"], "sm_80: damaged Zstandard data");
}

// However many reasons there are, the text is short and memory bounded.
TEST(Summary, OfManyCauses) {
  SurveySummary summary;
  ImageFindings image;
  image.kernels.resize(10000);
  for (std::size_t i = 0; i < image.kernels.size(); ++i)
    image.kernels[i].add({90, '\0', false}, proof_of("it calls f" + std::to_string(i)));
  summary.add(image);
  const std::string text = summary.text();
  EXPECT_NE(text.find("     5904  other causes\n"), text.npos) << text;
  EXPECT_NE(text.find("more causes\n"), text.npos);
  EXPECT_LT(text.size(), 4000u);
}

TEST(Summary, OfNothing) { EXPECT_EQ(SurveySummary().text(), "0 images\n\n                 kernels    proven\n"); }

}  // namespace
}  // namespace nimble::analyzer
