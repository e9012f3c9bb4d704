// Images, and the kernels and variables in them.
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "fixture.h"

namespace {

using Modules = Simcuda;

std::vector<char> image() {
  std::ifstream file(SIMCUDA_TEST_IMAGE, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(Modules, ParametersFollowTheRulesOfStructs) {
  // set_view(char first, View view, double value), with View {char; double*; short; short}
  const CUfunction set_view = function("_ZN6shapes8set_viewEcNS_4ViewEd");
  std::vector<std::pair<std::size_t, std::size_t>> layout;
  std::size_t offset = 0, size = 0;
  while (cuFuncGetParamInfo(set_view, layout.size(), &offset, &size) == CUDA_SUCCESS) layout.push_back({offset, size});
  EXPECT_EQ(layout, (std::vector<std::pair<std::size_t, std::size_t>>{{0, 1}, {8, 24}, {32, 8}}));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(set_view, 3, &offset, &size));
}

TEST_F(Modules, StructsArePassedByValue) {
  struct View {
    char tag;
    CUdeviceptr data;
    short rows, columns;
  } view{2, zeros(64), 2, 4};
  OK(launch("_ZN6shapes8set_viewEcNS_4ViewEd", nullptr, 1, 1, char{1}, view, 0.5));
  OK(cuCtxSynchronize());
  EXPECT_EQ(peek<double>(view.data + 56), 3.5);
}

TEST_F(Modules, ParametersInOneBuffer) {
  const CUdeviceptr memory = zeros(64);
  struct {
    CUdeviceptr out;
    int value, count;
  } buffer{memory, 6, 16};
  std::size_t bytes = sizeof buffer;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  OK(cuLaunchKernel(function("fill"), 1, 1, 1, 16, 1, 1, 0, nullptr, nullptr, extra));
  buffer.value = 7;  // read at the call
  OK(cuCtxSynchronize());
  EXPECT_EQ(peek<int>(memory + 60), 6);
  bytes = 8;
  FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function("fill"), 1, 1, 1, 16, 1, 1, 0, nullptr, nullptr, extra));
}

TEST_F(Modules, TemplatesAreKernelsToo) {
  const CUdeviceptr memory = zeros(64);
  OK(cuMemsetD32(memory, 2, 8));
  OK(launch("_ZN6shapes5scaleIiLi5EEEvPT_PKS1_i", nullptr, 1, 8, memory + 32, memory, 8));
  OK(cuCtxSynchronize());
  EXPECT_EQ(peek<int>(memory + 60), 10);
}

TEST_F(Modules, GridsOfThreeDimensions) {
  const CUdeviceptr memory = zeros(4 * 2 * 3 * 2 * 4 * 2 * 2);
  CUdeviceptr argument = memory;
  void* arguments[] = {&argument};
  OK(cuLaunchKernel(function("where"), 2, 3, 2, 4, 2, 2, 0, nullptr, arguments, nullptr));
  OK(cuCtxSynchronize());
  for (unsigned block = 0; block < 12; ++block) {
    for (unsigned thread = 0; thread < 16; ++thread) {
      EXPECT_EQ(peek<unsigned>(memory + 4 * (block * 16 + thread)), block * 1000 + thread);
    }
  }
}

TEST_F(Modules, BadLaunches) {
  FAILS(CUDA_ERROR_INVALID_VALUE, launch("count_up", nullptr, 0, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, launch("count_up", nullptr, 1, 1025));
  FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function("fill"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        cuLaunchCooperativeKernel(function("count_up"), 10000, 1, 1, 1024, 1, 1, 0, nullptr, nullptr));
  OK(cuCtxSynchronize());
}

TEST_F(Modules, NamesAreThoseOfTheSymbols) {
  const char* name = nullptr;
  OK(cuFuncGetName(&name, function("add_one")));
  EXPECT_STREQ(name, "add_one");
  unsigned count = 0;
  OK(cuModuleGetFunctionCount(&count, module));
  std::vector<CUfunction> all(count);
  OK(cuModuleEnumerateFunctions(all.data(), count, module));
  std::set<std::string> names;
  for (const CUfunction one : all) {
    OK(cuFuncGetName(&name, one));
    names.insert(name);
  }
  EXPECT_EQ(names.size(), 10u);
  EXPECT_TRUE(names.count("_ZN6shapes5scaleIfLi3EEEvPT_PKS1_i"));
  CUmodule of = nullptr;
  OK(cuFuncGetModule(&of, all[0]));
  EXPECT_EQ(of, module);
  CUfunction missing = nullptr;
  FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&missing, module, "no such kernel"));
}

TEST_F(Modules, KernelsOfLibrariesAreLaunchedAsTheyAre) {
  CUlibrary library = nullptr;
  OK(cuLibraryLoadData(&library, image().data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  OK(cuLibraryGetKernel(&kernel, library, "fill"));
  const CUfunction cast = reinterpret_cast<CUfunction>(kernel);
  CUdeviceptr memory = zeros(64);
  int value = 8, count = 16;
  void* arguments[] = {&memory, &value, &count};
  OK(cuLaunchKernel(cast, 1, 1, 1, 16, 1, 1, 0, nullptr, arguments, nullptr));
  OK(cuCtxSynchronize());
  EXPECT_EQ(peek<int>(memory), 8);
  int registers = 0;
  FAILS(CUDA_ERROR_INVALID_HANDLE, cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, cast));
  std::size_t offset = 0, size = 0;
  OK(cuKernelGetParamInfo(kernel, 2, &offset, &size));
  EXPECT_EQ(offset, 12u);
  FAILS(CUDA_ERROR_INVALID_VALUE, cuKernelGetParamInfo(kernel, 3, &offset, &size));
  CUfunction of_context = nullptr;
  OK(cuKernelGetFunction(&of_context, kernel));
  const char* name = nullptr;
  OK(cuFuncGetName(&name, of_context));
  EXPECT_STREQ(name, "fill");
  CUlibrary of = nullptr;
  OK(cuKernelGetLibrary(&of, kernel));
  EXPECT_EQ(of, library);
  OK(cuLibraryUnload(library));
  FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(cast, 1, 1, 1, 16, 1, 1, 0, nullptr, arguments, nullptr));
}

TEST_F(Modules, EachLoadHasGlobalsOfItsOwn) {
  CUmodule second = nullptr;
  OK(cuModuleLoad(&second, SIMCUDA_TEST_IMAGE));
  CUdeviceptr here = 0, there = 0;
  std::size_t bytes = 0;
  OK(cuModuleGetGlobal(&here, &bytes, module, "counter"));
  OK(cuModuleGetGlobal(&there, nullptr, second, "counter"));
  EXPECT_EQ(bytes, sizeof(int));
  EXPECT_NE(here, there);
  OK(launch("count_up", nullptr, 3, 4));
  OK(cuCtxSynchronize());
  EXPECT_EQ(peek<int>(here), 12);
  EXPECT_EQ(peek<int>(there), 0);
  OK(cuModuleUnload(second));
  FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal(&here, &bytes, module, "no such variable"));
}

TEST_F(Modules, ConstantMemoryIsCopiedTo) {
  CUdeviceptr table = 0;
  std::size_t bytes = 0;
  OK(cuModuleGetGlobal(&table, &bytes, module, "table"));
  std::vector<float> values(bytes / sizeof(float), 2.5f);
  OK(cuMemcpyHtoD(table, values.data(), bytes));
  const CUdeviceptr out = zeros(64);
  OK(launch("read_table", nullptr, 1, 16, out));
  OK(cuCtxSynchronize());
  EXPECT_EQ(peek<float>(out + 60), 2.5f);
}

TEST_F(Modules, WhatIsNoImage) {
  CUmodule none = nullptr;
  std::vector<char> garbage(4096, 'x');
  FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&none, garbage.data()));
  const std::uint32_t fatbin = 0xba55ed50;
  std::memcpy(garbage.data(), &fatbin, sizeof fatbin);
  FAILS(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&none, garbage.data()));
  FAILS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&none, "/no/such/file"));
  std::vector<char> cut = image();
  std::memset(cut.data() + 16, 0xff, 8);  // the size of the first object
  FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&none, cut.data()));
}

TEST_F(Modules, UnloadWaitsForTheCodeToBeDone) {
  CUmodule second = nullptr;
  OK(cuModuleLoad(&second, SIMCUDA_TEST_IMAGE));
  CUfunction fill = nullptr;
  OK(cuModuleGetFunction(&fill, second, "fill"));
  CUdeviceptr memory = zeros(64);
  int value = 4, count = 1;
  void* arguments[] = {&memory, &value, &count};
  OK(cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, stream(), arguments, nullptr));
  OK(cuModuleUnload(second));
  EXPECT_EQ(peek<int>(memory), 4);
}

}  // namespace
