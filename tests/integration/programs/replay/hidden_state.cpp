// A program whose step reaches memory in a way that no kernel parameter shows.
//
//   hidden_state MODE STEPS SEED    prints one line, the digest of all state at the end
//
// The step fills three buffers from its input, lets a kernel reach them in the way that MODE names, fills them anew
// with something else, and adds up what came of it. With a SEED other than 0 about every third step has the kernel
// reach other buffers than it did in the others, where the mode has a choice. What it computes depends on its arguments
// alone.
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 256;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);
constexpr int kTables = 2;

class Program {
 public:
  Program(const std::string& mode, unsigned seed) : mode_(mode), seed_(seed), random_(seed) {
    start_driver();
    const bool calls = mode == "child" || mode == "heap";
    const bool named =
        calls || mode == "global" || mode == "constant" || mode == "texture" || mode == "surface" || mode == "print";
    const char* image = calls ? "hidden_calls.simcuda" : named ? "hidden_globals.simcuda" : "hidden_tables.simcuda";
    CHECK(cuModuleLoad(&module_, image_path(image).c_str()));
    fill_ = function(named ? "plain_fill" : "_Z4fillILi3EEvPjPKjji");
    add_ = function(named ? "plain_add" : "_Z3addILi5EEvPjPKji");
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    for (CUdeviceptr* buffer : {&x_, &a_, &b_, &d_, &out_, &sum_, &other_}) {
      CHECK(cuMemAlloc(buffer, kBytes));
      CHECK(cuMemsetD32(*buffer, 1, kCount));
    }
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&input_), kBytes));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&entries_), kTables * sizeof(CUdeviceptr)));
    prepare();
    CHECK(cuCtxSynchronize());
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step(i);
  }

  std::uint64_t digest() {
    std::uint64_t digest = 14695981039346656037u;
    std::vector<unsigned> values(kCount);
    // Where the simulated GPU says something is asked for only now.
    if (mode_ == "print") CHECK(cuModuleGetGlobal(&extra_, &extra_bytes_, module_, "said"));
    for (const CUdeviceptr buffer : {sum_, other_, out_, a_, b_, d_, extra_}) {
      if (buffer == 0) continue;
      CHECK(cuMemcpyDtoH(values.data(), buffer, buffer == extra_ ? extra_bytes_ : kBytes));
      for (const unsigned value : values) digest = (digest ^ value) * 1099511628211u;
    }
    return digest;
  }

 private:
  CUfunction function(const char* name) {
    CUfunction found = nullptr;
    CHECK(cuModuleGetFunction(&found, module_, name));
    return found;
  }

  template <class... Args>
  void launch(CUfunction kernel, Args... args) {
    void* arguments[] = {&args...};
    CHECK(cuLaunchKernel(kernel, kCount / 64, 1, 1, 64, 1, 1, 0, stream_, arguments, nullptr));
  }

  // What is done once, before the steps.
  void prepare() {
    const std::array both{a_, b_};
    if (mode_ == "table_prologue") {
      CHECK(cuMemAlloc(&table_, sizeof both));
      CHECK(cuMemcpyHtoD(table_, both.data(), sizeof both));
    } else if (mode_ == "table_copy" || mode_ == "table_pageable" || mode_ == "table_out" || mode_ == "table_device") {
      CHECK(cuMemAlloc(&table_, sizeof both));
      if (mode_ == "table_device") CHECK(cuMemAlloc(&staging_, sizeof both));
    }
    if (mode_ == "tensor_map") {
      const cuuint64_t dims[] = {64, 4}, strides[] = {256};
      const cuuint32_t box[] = {64, 4}, one[] = {1, 1};
      for (CUtensorMap* map : {&map_, &other_map_})
        CHECK(cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2,
                                     reinterpret_cast<void*>(map == &map_ ? a_ : d_), dims, strides, box, one,
                                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                     CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    }
    if (mode_ == "texture") {
      CUDA_RESOURCE_DESC resource{};
      CUDA_TEXTURE_DESC texture{};
      resource.resType = CU_RESOURCE_TYPE_LINEAR;
      resource.res.linear.devPtr = a_;
      resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
      resource.res.linear.numChannels = 1;
      resource.res.linear.sizeInBytes = kBytes;
      CHECK(cuTexObjectCreate(&texture_, &resource, &texture, nullptr));
    }
    if (mode_ == "surface") {
      CUDA_ARRAY3D_DESCRIPTOR description{};
      description.Width = kCount;
      description.Format = CU_AD_FORMAT_UNSIGNED_INT32;
      description.NumChannels = 1;
      description.Flags = CUDA_ARRAY3D_SURFACE_LDST;
      CUDA_RESOURCE_DESC resource{};
      resource.resType = CU_RESOURCE_TYPE_ARRAY;
      CHECK(cuArray3DCreate(&resource.res.array.hArray, &description));
      CHECK(cuSurfObjectCreate(&surface_, &resource));
    }
    if (mode_ == "heap") {
      int count = kCount;
      CHECK(cuMemAlloc(&table_, sizeof(CUdeviceptr)));
      launch(function("take"), table_, count);
    }
    // `scratch` is found by its kernels alone; the program never asks for it.
    if (mode_ == "constant") CHECK(cuModuleGetGlobal(&extra_, &extra_bytes_, module_, "coefficients"));
  }

  // The kernel that this is about: reads a (and b), in steps that are `odd` d as well or instead, and writes out.
  void reach(bool odd) {
    const CUdeviceptr second = odd ? d_ : b_;
    int tables = kTables, count = kCount;
    if (mode_ == "table_copy" || mode_ == "table_pageable" || mode_ == "table_out" || mode_ == "table_device") {
      const CUdeviceptr pageable[] = {a_, second};
      std::memcpy(entries_, pageable, sizeof pageable);
      if (mode_ == "table_pageable")
        CHECK(cuMemcpyHtoDAsync(table_, pageable, sizeof pageable, stream_));
      else
        CHECK(cuMemcpyHtoDAsync(mode_ == "table_device" ? staging_ : table_, entries_, sizeof pageable, stream_));
      if (mode_ == "table_device") CHECK(cuMemcpyDtoDAsync(table_, staging_, sizeof pageable, stream_));
      if (mode_ == "table_out")
        launch(function("_Z6spreadILi9EEvPKPjPKjii"), table_, x_, tables, count);
      else
        launch(function("_Z10sum_tablesILi7EEvPKPKjPjii"), table_, out_, tables, count);
    } else if (mode_ == "table_prologue") {
      launch(function("_Z10sum_tablesILi7EEvPKPKjPjii"), table_, out_, tables, count);
    } else if (mode_ == "table_struct" || mode_ == "table_kernel") {
      CUdeviceptr table = 0;
      CHECK(cuMemAllocAsync(&table, kTables * sizeof(CUdeviceptr), stream_));
      if (mode_ == "table_kernel") {
        launch(function("_Z7prepareILi2EEvPPjS0_S0_"), table, a_, second);
        launch(function("_Z10sum_tablesILi7EEvPKPKjPjii"), table, out_, tables, count);
      } else {
        entries_[0] = a_;
        entries_[1] = second;
        CHECK(cuMemcpyHtoDAsync(table, entries_, kTables * sizeof(CUdeviceptr), stream_));
        struct {
          CUdeviceptr tables, out;
        } batch{table, out_};
        launch(function("_Z9sum_batchILi7EEv5Batchii"), batch, tables, count);
      }
      CHECK(cuMemFreeAsync(table, stream_));
    } else if (mode_ == "tensor_map") {
      launch(function("_Z7sum_mapILi11EEv14CUtensorMap_stPji"), odd ? other_map_ : map_, out_, count);
    } else if (mode_ == "global") {
      launch(function("to_scratch"), a_, count);
      launch(function("plain_add"), other_, b_, count);
      launch(function("from_scratch"), out_, count);
    } else if (mode_ == "constant") {
      CHECK(cuMemcpyDtoDAsync(extra_, b_, kBytes, stream_));
      launch(function("weigh"), out_, a_, count);
    } else if (mode_ == "texture") {
      launch(function("sum_texture"), texture_, out_, count);
    } else if (mode_ == "surface") {
      launch(function("to_surface"), surface_, a_, count);
      launch(function("plain_add"), other_, b_, count);
      launch(function("from_surface"), surface_, out_, count);
    } else if (mode_ == "heap") {
      launch(function("to_heap"), table_, a_, count);
      launch(function("plain_add"), other_, b_, count);
      launch(function("from_heap"), table_, out_, count);
    } else if (mode_ == "child") {
      launch(function("parent"), out_, a_, count);
    } else if (mode_ == "print") {
      launch(function("speak"), a_, count);
      launch(function("plain_add"), other_, d_, count);
      launch(function("speak"), b_, count);
    } else if (mode_ == "cooperative") {
      unsigned salt = 8;
      void* arguments[] = {&out_, &a_, &salt, &count};
      CHECK(cuLaunchCooperativeKernel(fill_, kCount / 64, 1, 1, 64, 1, 1, 0, stream_, arguments));
    } else {
      std::fprintf(stderr, "hidden_state: no such mode: %s\n", mode_.c_str());
      std::exit(2);
    }
  }

  void step(int number) {
    const bool odd = seed_ != 0 && random_() % 3 == 0;
    for (int i = 0; i < kCount; ++i) input_[i] = static_cast<unsigned>(number * 977 + i * 31);
    CHECK(cuMemcpyHtoDAsync(x_, input_, kBytes, stream_));
    launch(fill_, a_, x_, 1u, kCount);
    launch(fill_, b_, x_, 2u, kCount);
    launch(fill_, d_, x_, 3u, kCount);
    reach(odd);
    if (mode_ == "table_out") {
      launch(add_, out_, a_, kCount);
      launch(add_, out_, b_, kCount);
    }
    launch(fill_, a_, x_, 4u, kCount);
    launch(fill_, b_, x_, 5u, kCount);
    launch(fill_, d_, x_, 6u, kCount);
    launch(add_, sum_, out_, kCount);
    CHECK(cuStreamSynchronize(stream_));
  }

  const std::string mode_;
  const unsigned seed_;
  std::mt19937 random_;
  CUmodule module_ = nullptr;
  CUfunction fill_ = nullptr, add_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr x_ = 0, a_ = 0, b_ = 0, d_ = 0, out_ = 0, sum_ = 0, other_ = 0, table_ = 0, staging_ = 0, extra_ = 0;
  std::size_t extra_bytes_ = 0;
  CUtensorMap map_{}, other_map_{};
  CUtexObject texture_ = 0;
  CUsurfObject surface_ = 0;
  unsigned* input_ = nullptr;
  CUdeviceptr* entries_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: hidden_state MODE STEPS SEED\n");
    return 2;
  }
  Program program(argv[1], static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10)));
  program.run(std::atoi(argv[2]));
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest()));
  return 0;
}
