// Products of matrices in one workspace, in graphs that Nimble is told to learn from: products WAY LIBRARY
// [spoilt|large]
//
//   set, given, both, mixed   how the library gives the one that stands for cuBLAS its workspace (products.h)
//   torch_cuda, own    the library's name: PyTorch's, or another one; `opener` has one loaded that names no cuBLAS
//   spoilt             a first capture goes wrong
//   large              the workspace is as large as all that is free beside it
// It prints a digest of what was computed, and whether cuBLAS is found by name; to stderr, what memory stays taken.
#include "tests/integration/programs/graphs/products.h"

#include <dlfcn.h>

#include <cstdio>
#include <string>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/graph_program.h"

namespace {

using Product = int (*)(const Products*, CUdeviceptr, CUdeviceptr, CUdeviceptr, CUstream);

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  CHECK(cuCtxSynchronize());
  CHECK(cuMemGetInfo(&free, &total));
  return free;
}

struct Program : GraphProgram {
  void* library = nullptr;
  Product product = nullptr;
  Products products{};
  CUdeviceptr third = memory(kBytes);

  Program(const std::string& way, const std::string& name, bool large) {
    library = dlopen((image_path("../tests/products/") + "lib" + name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) std::fprintf(stderr, "products: %s\n", dlerror());
    product = find<Product>("products_" + way);
    products = find<decltype(&products_make)>("products_make")({mix, update}, large ? free_memory() / 2 : kLarge);
  }
  template <class Function>
  Function find(const std::string& name) const {
    auto* const found = library ? reinterpret_cast<Function>(dlsym(library, name.c_str())) : nullptr;
    if (!found) std::exit(3);
    return found;
  }
  // Three products of the same input, each into its own place, and work that needs all of them; all after the input.
  void step() const {
    const CUdeviceptr x = allocate();
    launch_mix(input, other, x, 3);
    for (const CUdeviceptr to : {out[0], out[1], third})
      if (const int result = product(&products, x, other, to, stream)) std::exit(10 + result);
    launch_update(out[0], out[1]);
    launch_update(out[0], third);
    CHECK(cuMemFreeAsync(x, stream));
  }
  void go_wrong() const {
    nimble_learn_begin();
    CUgraph graph = nullptr;
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    if (const int result = product(&products, input, other, third, stream)) std::exit(10 + result);
    if (cuStreamSynchronize(stream) == CUDA_SUCCESS || cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS) std::exit(4);
    nimble_learn_end();
  }
  CUgraphExec learn() const {
    nimble_learn_begin();
    const std::size_t before = free_memory();
    const CUgraph learned = capture([&] { step(); });
    std::fprintf(stderr, "a first capture with %zu MiB\n", (before - free_memory()) >> 20);
    const CUgraphExec exec = make(learned);
    nimble_learn_end();
    end(exec, learned);
    if (nimble_capture_again() == NIMBLE_REFUSED) std::fprintf(stderr, "nothing is known\n");
    const CUgraph again = capture([&] { step(); });
    CUgraphExec const made = make(again);
    CHECK(cuGraphDestroy(again));
    return made;
  }
  void forget(CUgraphExec exec) const {
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuCtxSynchronize());
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string what = argc > 3 ? argv[3] : "";
  Program program(argv[1], argv[2], what == "large");
  const std::size_t before = free_memory();
  if (what == "spoilt") program.go_wrong();
  program.step();
  CUgraphExec const exec = program.learn();
  for (unsigned salt = 1; salt < 12; ++salt) {
    program.run(exec, salt);
    if (salt % 4 == 0) program.step();  // also where a capture has had other memory for its products
    CHECK(cuStreamSynchronize(program.stream));
    for (const CUdeviceptr each : {program.out[0], program.out[1], program.third}) program.note(each);
  }
  program.forget(exec);
  free_memory();
  std::fprintf(stderr, "%zu MiB are not given back\n", (before - free_memory()) >> 20);
  for (const char* name : {"cublasLtMatmul", "cublasSetWorkspace_v2"})
    std::printf("%s is %s\n", name, dlsym(RTLD_DEFAULT, name) ? "found" : "not found");
  std::printf("%016llx\n", static_cast<unsigned long long>(program.digest));
}
