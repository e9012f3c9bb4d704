#include "analyzer/rules/rules.h"

#include <gtest/gtest.h>

#include "analyzer/base/errors.h"
#include "analyzer/rules/shipped_rules.h"
#include "tests/unit/analyzer/support.h"

namespace nimble::analyzer {
namespace {

// The layout of so many words.
std::vector<ParamLayout> words(std::uint32_t count) {
  std::vector<ParamLayout> result;
  for (std::uint32_t i = 0; i < count; ++i) result.push_back({8 * i, 8});
  return result;
}

std::string error_of(const std::string& text) {
  test::TempFile file(text);
  Rules rules;
  try {
    rules.read(file.path());
  } catch (const InputError& error) {
    EXPECT_EQ(error.file(), file.path());
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return std::string(error.what()).substr(file.path().size());
  }
  return "no error";
}

TEST(Rules, TheFirstThatMatchesWithAsManyParametersSpeaks) {
  test::TempFile file(R"rules({"nimble_rules": 1, "rules": [
      {"kernel": "gemm.*", "params": ["in", "out"]},
      {"kernel": "gemm.*", "params": ["in", "in", "inout"], "comment": "C += A * B"},
      {"kernel": "add\\(.*\\)", "params": ["value"]}]})rules");
  Rules rules;
  rules.read(file.path());
  ASSERT_EQ(rules.size(), 3u);
  EXPECT_EQ(rules.find("gemm_f32", "gemm_f32", words(3))->params[2].mode, RuleMode::inout);
  EXPECT_EQ(rules.find("gemm_f32", "gemm_f32", words(2))->params[1].mode, RuleMode::out);
  EXPECT_EQ(rules.find("gemm_f32", "gemm_f32", words(4)), nullptr);
  EXPECT_EQ(rules.find("my_gemm", "my_gemm", words(2)), nullptr) << "must match the whole name";
  EXPECT_NE(rules.find("_Z3addPf", "add(float*)", words(1)), nullptr);
  EXPECT_EQ(rules.find("gemm" + std::string(100'000, 'x'), "", words(2)), nullptr);
}

TEST(Rules, ALayoutMayBeAskedFor) {
  Rules rules;
  rules.read_text(R"rules({"nimble_rules": 2, "rules": [
      {"kernel": "f", "params": ["in", "scan"], "sizes": [null, [24, 32]], "more": "value"},
      {"kernel": "f", "params": ["in", {"words": [[16, "grid.y", "out"]]}], "sizes": [8], "self_contained": true,
       "from": "somewhere 1.0"}]})rules",
                  "text");
  const auto find = [&](std::vector<ParamLayout> params) { return rules.find("f", "f", params); };
  EXPECT_EQ(find({{0, 8}, {8, 16}})->from, "somewhere 1.0");
  EXPECT_EQ(find({{0, 4}, {8, 16}}), nullptr);
  const Rule* more = find({{0, 4}, {8, 24}, {32, 4}, {36, 4}});
  ASSERT_NE(more, nullptr);
  EXPECT_EQ(more->param(1).mode, RuleMode::scan);
  EXPECT_EQ(more->param(3).mode, RuleMode::value);
  EXPECT_EQ(find({{0, 4}, {8, 32}}), more);
  EXPECT_EQ(find({{0, 8}}), nullptr);
  rules.read_text(R"({"nimble_rules": 2, "rules": [{"kernel": "g", "params": ["in"], "sizes": [0]}]})", "any size");
  EXPECT_NE(rules.find("g", "g", {{0, 24}}), nullptr);
  const RuleWords& list = find({{0, 8}, {8, 16}})->params[1].words.at(0);
  EXPECT_EQ(list.at, 16u);
  EXPECT_EQ(list.mode, RuleMode::out);
  EXPECT_EQ(list.count.kind, RuleCount::Kind::grid);
  EXPECT_EQ(list.count.axis, 1u);
}

// The names are what an H200 was given by PyTorch 2.11, the sizes those of its kernels.
TEST(Rules, ThoseThatComeWithTheToolKnowPyTorch) {
  Rules rules;
  add_shipped_rules(rules);
  const auto from = [&](const char* name, std::vector<ParamLayout> params) -> std::string {
    const Rule* rule = rules.find("", name, params);
    return rule == nullptr ? "" : rule->from;
  };
  const std::string space = "void at::native::(anonymous namespace)::";
  EXPECT_NE(from("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
                 "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
                 {{0, 4}, {4, 4}, {8, 24}}),
            "");
  const std::string cat = space +
                          "CatArrayBatchedCopy_vectorized<at::native::(anonymous namespace)::OpaqueType<4u>, unsigned "
                          "int, 2, 128, 1, 16, 4>(char*, at::native::(anonymous namespace)::CatArrInputTensorMetadata<"
                          "at::native::(anonymous namespace)::OpaqueType<4u>, unsigned int, 128, 1>, at::native::("
                          "anonymous namespace)::TensorSizeStride<unsigned int, 4u>, int, unsigned int)";
  EXPECT_NE(from(cat.c_str(), {{0, 8}, {8, 2720}, {2728, 32}, {2760, 4}, {2764, 4}}), "");
  EXPECT_EQ(from(cat.c_str(), {{0, 8}, {8, 2728}, {2736, 32}, {2768, 4}, {2772, 4}}), "") << "another layout";
  EXPECT_NE(
      from(
          (space +
           "fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(at::cuda::detail::TensorInfo<float const, "
           "unsigned int>, at::cuda::detail::TensorInfo<float, unsigned int>, at::cuda::detail::TensorInfo<bool, "
           "unsigned "
           "int>, unsigned int, float, at::PhiloxCudaState)")
              .c_str(),
          {{0, 216}, {216, 216}, {432, 216}, {648, 4}, {652, 4}, {656, 32}}),
      "");
  const std::string draw =
      space + "distribution_elementwise_grid_stride_kernel<float, 4, ...>(long, at::PhiloxCudaState, ...)";
  const auto out_of_draw = [&](std::uint32_t size) {
    const Rule* rule = rules.find("", draw, {{0, 8}, {8, 32}, {40, 1}, {48, size}});
    return rule == nullptr ? -1 : static_cast<int>(rule->params[3].words[0].at);
  };
  EXPECT_EQ(out_of_draw(24), 0);
  EXPECT_EQ(out_of_draw(424), 408);
  EXPECT_EQ(out_of_draw(48), -1) << "another layout";
  const auto multi = [&](const std::string& list, std::uint32_t size, std::uint32_t more) {
    const std::string name = space + "multi_tensor_apply_kernel<at::native::(anonymous namespace)::" + list +
                             ", at::native::(anonymous namespace)::UnaryOpFunctor<float, 2, 1, 1>, at::native::Sqrt<"
                             "float> >(at::native::(anonymous namespace)::" +
                             list + ", ...)";
    std::vector<ParamLayout> params{{0, size}};
    for (std::uint32_t i = 0; i < more; ++i) params.push_back({size + i, 1});
    return from(name.c_str(), params);
  };
  EXPECT_NE(multi("TensorListMetadata<1>", 3368, 3), "");
  EXPECT_NE(multi("TensorListMetadata<2>", 3144, 2), "");
  EXPECT_NE(multi("TensorListMetadata<3>", 3144, 3), "");
  EXPECT_NE(multi("TensorListScalarListMetadata<float, 1>", 3520, 2), "");
  EXPECT_NE(multi("TensorListScalarListMetadata<float, 3>", 3328, 2), "");
  EXPECT_EQ(multi("TensorListMetadata<2>", 3152, 2), "") << "another layout";
  const char* const reduce =
      "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, "
      "float>, unsigned int, float, 4, 4> >(at::native::ReduceOp<float, at::native::MeanOps<float, float, float, "
      "float>, "
      "unsigned int, float, 4, 4>)";
  EXPECT_NE(from(reduce, {{0, 1048}}), "");
  EXPECT_NE(from(reduce, {{0, 1056}}), "");
  EXPECT_EQ(from(reduce, {{0, 1072}}), "") << "another layout";
  EXPECT_NE(shipped_rules_text().find("PyTorch 2.11"), std::string::npos);
}

// Where the pointers of a kernel over what is not contiguous stand depends on how many inputs it has, which its name
// tells.
TEST(Rules, ThoseThatComeWithTheToolKnowHowManyInputsAFunctionOfPyTorchHas) {
  Rules rules;
  add_shipped_rules(rules);
  const auto inputs = [&](const std::string& functor, std::uint32_t size) -> int {
    const std::string impl = "at::native::gpu_kernel_impl_nocast<" + functor + ">(at::TensorIteratorBase&, " + functor +
                             " const&)::{lambda(int)#1}";
    const std::string name = "void at::native::elementwise_kernel<128, 2, " + impl + ">(int, " + impl + ")";
    const Rule* rule = rules.find("", name, {{0, 4}, {8, size}});
    if (rule == nullptr) return -1;
    const std::vector<RuleWords>& words = rule->params[1].words;
    EXPECT_EQ(words[0].mode, RuleMode::out);
    EXPECT_EQ(words.back().mode, RuleMode::scan);
    const int count = words.size() == 3 ? static_cast<int>(words[1].count.number) : 0;
    EXPECT_EQ(words[0].at, (4u + 25 * 12 + 25 * 4 * (static_cast<std::uint32_t>(count) + 1) + 7) / 8 * 8);
    return count;
  };
  const std::string copy =
      "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::"
      "{lambda()#7}::operator()() const::{lambda(float)#1}";
  const std::string gelu =
      "at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::"
      "{lambda()#2}::operator()() const::{lambda()#2}::operator()() const::{lambda(float, float)#1}";
  EXPECT_EQ(inputs("at::native::FillFunctor<float> ", 432), 0);
  EXPECT_EQ(inputs(copy, 536), 1);
  EXPECT_EQ(
      inputs("at::native::BUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> > ", 536),
      1);
  EXPECT_EQ(inputs("at::native::CUDAFunctor_add<float> ", 648), 2);
  EXPECT_EQ(inputs(gelu, 648), 2);
  EXPECT_EQ(
      inputs("at::native::(anonymous namespace)::where_kernel_impl(at::TensorIterator&)::{lambda()#1}::operator()() "
             "const::{lambda(bool, float, float)#1}",
             752),
      3);
  EXPECT_EQ(inputs(copy, 648), -1) << "a layout that was not read";
  EXPECT_EQ(inputs(gelu, 536), -1);
  EXPECT_EQ(inputs("mine::Functor<float> ", 536), -1) << "unknown how many";
  EXPECT_EQ(inputs("mine::outer()::{lambda(float)#1}", 536), -1);
}

TEST(Rules, ThoseThatComeWithTheToolKnowWhatPyTorchMoves) {
  Rules rules;
  add_shipped_rules(rules);
  const std::string native = "void at::native::", own = "at::native::(anonymous namespace)::";
  const auto listed = [&](const std::string& list, const std::string& functor) {
    const std::string args = own + list + ", " + own + functor;
    return native + "(anonymous namespace)::multi_tensor_apply_kernel<" + args + ">(" + args + ")";
  };
  const auto elementwise = [&](const std::string& functor, int arrays) {
    const std::string args = functor + ", std::array<char*, " + std::to_string(arrays) + "ul>";
    return native + "vectorized_elementwise_kernel<4, " + args + " >(int, " + args + ")";
  };
  const auto lambda = [](const std::string& args) {
    return "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() "
           "const::{lambda()#7}::operator()() const::{lambda(" +
           args + ")#1}";
  };
  const std::vector<ParamLayout> two_lists = {{0, 3144}, {3144, 1}, {3145, 1}}, array = {{0, 4}, {8, 8}, {16, 24}};
  const auto moves_fractions = [&](const std::string& name, const std::vector<ParamLayout>& params) {
    const Rule* rule = rules.find("", name, params);
    EXPECT_NE(rule, nullptr) << name;
    return rule != nullptr && rule->moves_fractions("", name);
  };
  EXPECT_TRUE(moves_fractions(
      listed("TensorListMetadata<2>", "BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>"), two_lists));
  EXPECT_TRUE(moves_fractions(
      listed("TensorListMetadata<2>", "UnaryOpFunctor<c10::Half, 2, 1, 1>, at::native::Copy<float>"), two_lists));
  EXPECT_FALSE(moves_fractions(listed("TensorListMetadata<2>", "UnaryOpFunctor<long, 2, 1, 1>, at::native::Copy<long>"),
                               two_lists));
  EXPECT_FALSE(moves_fractions(
      listed("TensorListMetadata<2>", "BinaryOpListAlphaFunctor<int, 2, 2, 0>, std::plus<float>"), two_lists));
  for (const auto& [functor, are] :
       {std::pair{std::string("at::native::CUDAFunctor_add<float>"), true},
        {"at::native::CUDAFunctor_add<long>", false},
        {"at::native::BinaryFunctor<float, float, bool, at::native::(anonymous namespace)::CompareEqFunctor<float> >",
         true},
        {"at::native::BinaryFunctor<long, long, bool, at::native::(anonymous namespace)::CompareEqFunctor<long> >",
         false},
        {"at::native::BinaryFunctor<float, long, float, at::native::binary_internal::MulFunctor<float> >", false},
        {lambda("float"), true},
        {lambda("c10::BFloat16, float"), true},
        {lambda("long"), false},
        {lambda("float, long"), false},
        {lambda(""), false}})
    EXPECT_EQ(moves_fractions(elementwise(functor, 3), array), are) << functor;
}

TEST(Rules, MayTellOnlyWhetherAKernelCommunicates) {
  Rules rules;
  rules.read_text(R"rules({"nimble_rules": 3, "rules": [
      {"kernel": "quiet.*", "communicates": false},
      {"kernel": ".*_reduce", "communicates": true},
      {"kernel": ".*_reduce", "params": ["in", "out"], "communicates": false},
      {"kernel": "self", "params": ["in"], "self_contained": true, "communicates": false}]})rules",
                  "text");
  const auto communicates = [&](const char* name, std::uint32_t params, bool self_contained = true) {
    const Rule* rule = rules.of_communication(name, name, words(params), self_contained);
    return rule == nullptr ? std::optional<bool>() : rule->communicates;
  };
  EXPECT_EQ(communicates("all_reduce", 2), true) << "the first that says it";
  EXPECT_EQ(communicates("quiet_reduce", 2), false);
  EXPECT_EQ(communicates("other", 2), std::nullopt);
  EXPECT_EQ(communicates("self", 1), false);
  EXPECT_EQ(communicates("self", 2), std::nullopt) << "other parameters";
  EXPECT_EQ(communicates("self", 1, false), std::nullopt) << "other code";
  EXPECT_EQ(rules.of_communication("all_reduce", "", std::nullopt, false)->communicates, true) << "whatever it takes";
  EXPECT_EQ(rules.find("all_reduce", "", words(1)), nullptr) << "tells no accesses";
  EXPECT_EQ(rules.find("all_reduce", "", words(2))->params.size(), 2u);
}

TEST(Rules, ThoseThatComeWithTheToolKnowCollectives) {
  Rules rules;
  add_shipped_rules(rules);
  const auto communicates = [&](const char* name) {
    const Rule* rule = rules.of_communication("", name, std::nullopt, false);
    return rule != nullptr && *rule->communicates;
  };
  for (const char* name :
       {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic(ncclDevComm*)", "ncclSymkDevKernel_ReduceScatter_LL_sum_f32(ncclSymkDevWorkArgs4K)",
        "ncclKernel_SendRecv(ncclDevComm*)",
        "void nvshmemi_reduce_kernel<float, (rdxn_ops_t)3>(int, int, int, float*, float const*)",
        "nvshmemi_proxy_quiet_entrypoint()",
        "void vllm::cross_device_reduce_1stage<__half, 4>(vllm::RankData*, vllm::RankSignals, vllm::Signal*, __half*)"})
    EXPECT_TRUE(communicates(name)) << name;
  for (const char* name :
       {"void at::native::reduce_kernel<512, 1>(int)", "gemm_nccl", "void cutlass::Kernel<nccl>(int)"})
    EXPECT_FALSE(communicates(name)) << name;
}

TEST(Rules, ThoseThatComeWithTheToolKnowKernelsWhoseBlocksWaitForEachOther) {
  Rules rules;
  add_shipped_rules(rules);
  const std::string norm =
      "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(cudnn::bn_fw_tr_1C11_args<float>)";
  EXPECT_EQ(*rules.of_communication("", norm, std::nullopt, false)->communicates, false);
  for (const std::string& name :
       {norm, std::string("void cudnn::bn_bw_1C11_singleread_spec<__half2, 512, 2, 2, 7>(cudnn::args<__half2>)"),
        std::string("void cudnn::batchnorm_fwtr_nhwc_semiPersist<float, float, 512>(cudnn::NhwcBatchNormFwdParams)"),
        std::string("void cudnn::batchnorm_add_relu_bwtr_nhwc_semiPersist<__half, float>(cudnn::Params<__half>)"),
        std::string("void RNN_blockPersist_fp_LSTM<__half, float, 256>(int)"), std::string("RNN_persist_fp_stream")})
    EXPECT_TRUE(rules.blocks_wait("", name)) << name;
  for (const char* name :
       {"void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>(float)", "ncclDevKernel_Generic(ncclDevComm*)",
        "void cudnn::bn_bw_1C11_kernel_new<float, float, float, 512, true, 1>(float)"})
    EXPECT_FALSE(rules.blocks_wait("", name)) << name;
}

TEST(Rules, SayWhatIsWrong) {
  EXPECT_EQ(error_of(""), ": is not a JSON object");
  EXPECT_EQ(error_of("[]"), ": is not a JSON object");
  EXPECT_EQ(error_of("{"), ": is not a JSON object");
  EXPECT_EQ(error_of("{}"), ": nimble_rules: is missing");
  EXPECT_EQ(error_of(R"({"nimble_rules": 6, "rules": []})"),
            ": nimble_rules: is 6; this nimble-analyze reads versions 1 to 5");
  EXPECT_EQ(error_of(R"({"nimble_rules": 1})"), ": rules: is missing");
  EXPECT_EQ(error_of(R"({"nimble_rules": 1, "rules": {}})"), ": rules: must be a list");
  EXPECT_EQ(error_of(R"({"nimble_rules": 1, "rules": [5]})"), ": rules[0]: must be an object");
  EXPECT_EQ(error_of(R"({"nimble_rules": 1, "rules": [{"params": []}]})"), ": rules[0].kernel: is missing");
  EXPECT_NE(error_of(R"({"nimble_rules": 1, "rules": [{"kernel": "(", "params": []}]})")
                .find(": rules[0].kernel: is not a regular expression"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"nimble_rules": 5, "rules": [{"kernel": "a", "params": [], "fractions": "("}]})")
                .find("rules[0].fractions: is not a regular expression"),
            std::string::npos);
  EXPECT_EQ(error_of(R"({"nimble_rules": 1, "rules": [{"kernel": "a", "params": ["in", "both"]}]})"),
            ": rules[0].params: must contain only in, out, inout, value, scan, table, table-in and table-out");
  EXPECT_EQ(error_of(R"({"nimble_rules": 1, "rules": [{"kernel": "a", "params": [1]}]})"),
            ": rules[0].params: must be text");
  const auto error_of_rule = [](const std::string& rest) {
    return error_of(R"({"nimble_rules": 2, "rules": [{"kernel": "a", "params": [)" + rest + "}]}");
  };
  const auto error_of_words = [&](const std::string& words) { return error_of_rule("{\"words\": " + words + "}]"); };
  EXPECT_EQ(error_of_words("5"), ": rules[0].params: an object in it must be {\"words\": [[byte, count, mode], ...]}");
  EXPECT_EQ(error_of_words("[[0, 1]]"), ": rules[0].params: words must hold [byte, count, mode]");
  EXPECT_EQ(error_of_words("[[4, 1, \"in\"]]"), ": rules[0].params: words must begin at a multiple of 8 bytes");
  EXPECT_EQ(error_of_words("[[0, 1, \"value\"]]"),
            ": rules[0].params: the mode of words must be in, out, inout or scan");
  EXPECT_EQ(error_of_words("[[0, \"all\", \"in\"]]"),
            ": rules[0].params: a count is a number, rest, grid.x, grid.y, grid.z or {\"largest\": [byte, bytes]}");
  EXPECT_EQ(error_of_words("[[0, {\"largest\": [0, 3]}, \"in\"]]"),
            ": rules[0].params: the numbers of largest have 1, 2 or 4 bytes");
  EXPECT_EQ(error_of_words("[[0, 99999999, \"in\"]]"), ": rules[0].params: must be an integer from 0 to 32768");
  EXPECT_EQ(error_of_rule(R"("in"], "sizes": [8, 8])"), ": rules[0].sizes: has more entries than params");
  EXPECT_EQ(error_of_rule(R"("in"], "sizes": [[]])"), ": rules[0].sizes: has an empty list, which matches nothing");
  EXPECT_EQ(error_of_rule(R"("in"], "more": "all")"),
            ": rules[0].more: must contain only in, out, inout, value, scan, table, table-in and table-out");
  const auto error_of_silent = [](const std::string& rest) {
    return error_of(R"({"nimble_rules": 3, "rules": [{"kernel": "a", )" + rest + "}]}");
  };
  EXPECT_EQ(error_of_silent(R"("communicates": 1)"), ": rules[0].communicates: must be true or false");
  EXPECT_EQ(error_of_silent(R"("blocks_wait": true)"), "no error");
  EXPECT_EQ(error_of_silent(R"("blocks_wait": false)"), ": rules[0].params: is missing");
  EXPECT_EQ(error_of_silent(R"("blocks_wait": "yes")"), ": rules[0].blocks_wait: must be true or false");
  EXPECT_EQ(error_of_silent(R"("comment": "what of it?")"), ": rules[0].params: is missing");
  EXPECT_EQ(error_of_silent(R"("communicates": true, "sizes": [8])"), ": rules[0].sizes: says nothing without params");
  EXPECT_EQ(error_of_silent(R"("communicates": true, "more": "in")"), ": rules[0].more: says nothing without params");
  EXPECT_EQ(error_of_silent(R"("communicates": false, "self_contained": true)"),
            ": rules[0].self_contained: says nothing without params");
  Rules rules;
  EXPECT_THROW(rules.read("/nowhere/rules.json"), InputError);
}

}  // namespace
}  // namespace nimble::analyzer
