#include "analyzer/pointers/parameter_types.h"

#include <gtest/gtest.h>

namespace nimble::analyzer {
namespace {

using Types = std::vector<std::string>;

TEST(ParameterTypes, SplitsParameterLists) {
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

TEST(ParameterTypes, ClassifiesTypes) {
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
  EXPECT_EQ(kind("cudnnTensorStruct"), ParamKind::value);
  EXPECT_EQ(kind("cudnnTensorStruct*"), ParamKind::any);
  EXPECT_EQ(kind("float**"), ParamKind::table);
  EXPECT_EQ(kind("float const* const*"), ParamKind::table);
  for (const char* type : {"void*", "void const*", "unsigned long*", "long long const*", "Node*", "Node const*",
                           "void**", "float***", "long* const*"})
    EXPECT_EQ(kind(type), ParamKind::any) << type;
  for (const char* type : {"float&", "float const&", "float volatile*", "float const volatile*", "void (*)(int)",
                           "float (*) [4]", "int Node::*", "", "..."})
    EXPECT_EQ(kind(type), ParamKind::unknown) << type;
  EXPECT_EQ(classify("double").size, 8u);
  EXPECT_EQ(kind(("float" + std::string(1'000'000, '*')).c_str()), ParamKind::any) << "no matter how many";
  EXPECT_EQ(classify("float const*").size, 8u);
  EXPECT_EQ(classify("Node").size, 0u);
}

TEST(ParameterTypes, TellsWhatPointersLeadTo) {
  EXPECT_EQ(classify("float*").pointee, Pointee::fractions);
  EXPECT_EQ(classify("c10::Half const*").pointee, Pointee::fractions);
  // By which kernels copy whatever it is.
  for (const char* type : {"float2*", "float4 const*", "double2*"})
    EXPECT_EQ(classify(type).pointee, Pointee::integers) << type;
  EXPECT_EQ(classify("char const*").pointee, Pointee::integers);
  EXPECT_EQ(classify("uint4*").pointee, Pointee::integers);
  const ParamType inputs = classify("float const* const*"), outputs = classify("double**");
  EXPECT_TRUE(inputs.is_const && inputs.reads_pointees && inputs.pointee == Pointee::fractions);
  EXPECT_FALSE(outputs.is_const || outputs.reads_pointees);
  EXPECT_TRUE(classify("void const*").is_const);
  EXPECT_FALSE(classify("long*").is_const);
  for (const char* type : {"std::array<char*, 3ul>", "at::detail::Array<char const*, 2>", "CUtensorMap_st"})
    EXPECT_TRUE(classify(type).array_of_numbers) << type;
  for (const char* type : {"std::array<void*, 3ul>", "std::array<int, 3ul>", "std::array<float**, 2ul>",
                           "std::array<Node, 1ul>", "my::Array<char*, 3ul>", "std::array<>"})
    EXPECT_FALSE(classify(type).array_of_numbers) << type;
}

}  // namespace
}  // namespace nimble::analyzer
