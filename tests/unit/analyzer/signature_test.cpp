#include "analyzer/signature.h"

#include <gtest/gtest.h>

namespace nimble::analyzer {
namespace {

using Types = std::vector<std::string>;

TEST(Signature, SplitsParameterLists) {
  EXPECT_EQ(parameter_types("add(float*, float const*, int)"), (Types{"float*", "float const*", "int"}));
  EXPECT_EQ(parameter_types("void ns::add<float, (ns::Mode)2>(std::pair<int, float>, float*)"),
            (Types{"std::pair<int, float>", "float*"}));
  EXPECT_EQ(parameter_types("f()"), Types{});
  EXPECT_EQ(parameter_types("f(void (*)(int, int), float (&) [4])"), (Types{"void (*)(int, int)", "float (&) [4]"}));
  EXPECT_EQ(parameter_types("f(float*) [clone .constprop.0]"), (Types{"float*"}));
  EXPECT_EQ(parameter_types("main::{lambda(int)#1}::operator()(float*) const"), std::nullopt);
  EXPECT_EQ(parameter_types("vector_add"), std::nullopt);
  EXPECT_EQ(parameter_types(""), std::nullopt);
  EXPECT_EQ(parameter_types(")"), std::nullopt);
  EXPECT_EQ(parameter_types("(int)"), std::nullopt);
  EXPECT_EQ(parameter_types("f(a, )"), std::nullopt);
  EXPECT_EQ(parameter_types("f(a<b>>c)"), std::nullopt);
}

TEST(Signature, DemanglesWhatIsMangledAndNothingElse) {
  EXPECT_EQ(demangle("_Z3addPfPKfi"), "add(float*, float const*, int)");
  EXPECT_EQ(demangle("i"), "i");  // not the type int
  EXPECT_EQ(demangle("_Z"), "_Z");
  EXPECT_EQ(demangle(""), "");
  std::string huge = "_Z" + std::string(100'000, 'P');
  EXPECT_EQ(demangle(huge), huge);
}

TEST(Signature, ClassifiesTypes) {
  auto kind = [](const char* type) { return classify(type).kind; };
  EXPECT_EQ(kind("float const*"), ParamKind::reads);
  EXPECT_EQ(kind("float const* __restrict__"), ParamKind::reads);
  EXPECT_EQ(kind("float*"), ParamKind::writes);
  EXPECT_EQ(kind("unsigned char*"), ParamKind::writes);
  EXPECT_EQ(kind("__half const*"), ParamKind::reads);
  EXPECT_EQ(kind("c10::BFloat16*"), ParamKind::writes);
  EXPECT_EQ(kind("int"), ParamKind::value);
  EXPECT_EQ(kind("unsigned long"), ParamKind::value);
  EXPECT_EQ(kind("std::array<char*, 3ul>"), ParamKind::aggregate);
  for (const char* type : {"void*", "void const*", "float**", "float const* const*", "float&", "float const&",
                           "unsigned long*", "long long const*", "Node*", "Node const*", "float volatile*",
                           "float const volatile*", "void (*)(int)", "float (*) [4]", "int Node::*", "", "..."})
    EXPECT_EQ(kind(type), ParamKind::unknown) << type;
  EXPECT_EQ(classify("double").size, 8u);
  EXPECT_EQ(classify("float const*").size, 8u);
  EXPECT_EQ(classify("Node").size, 0u);
}

}  // namespace
}  // namespace nimble::analyzer
