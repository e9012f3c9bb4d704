// A program that launches a region of its own as a graph: `regions code STEPS` runs its code each time, `regions region
// STEPS` runs it once and launches it from then on; both print the same digest. `regions code|region STEPS ADDRESS` has
// it pass a kernel an address beside memory of its own: its `end`, by a `table` or not, the element `before` it, or an
// end that is `padded`;
// what cannot be a region runs as code. With `reused` for it the step keeps memory at an address that it has given
// back. `regions errors` prints what Nimble says of regions that cannot be, or are no more.
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 256;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

struct Program {
  CUmodule module = nullptr;
  CUfunction mix = nullptr, update = nullptr, span = nullptr, span_to = nullptr;
  std::string address;  // what else a step passes than the begins of its memory
  CUstream stream = nullptr;
  CUdeviceptr state[3] = {};
  CUdeviceptr kept = 0;  // what a step has allocated and not released
  CUdeviceptr table = 0, *ends = nullptr;
  unsigned *input = nullptr, *output = nullptr;

  Program() {
    start_driver();
    CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&mix, module, "_Z3mixILi1EEvPKjS1_Pjij"));
    CHECK(cuModuleGetFunction(&update, module, "_Z6updateILi1EEvPjPKji"));
    CHECK(cuModuleGetFunction(&span, module, "_Z4spanILi3EEvPjS0_iij"));
    CHECK(cuModuleGetFunction(&span_to, module, "_Z7span_toILi3EEvPjPKS0_j"));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (CUdeviceptr& memory : state) {
      CHECK(cuMemAlloc(&memory, kBytes));
      CHECK(cuMemsetD32(memory, static_cast<unsigned>(&memory - state) + 5, kCount));
    }
    CHECK(cuMemAlloc(&table, sizeof table));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&ends), sizeof *ends));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&input), kBytes));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&output), kBytes));
    for (int i = 0; i < kCount; ++i) input[i] = static_cast<unsigned>(i);
    CHECK(cuCtxSynchronize());  // the stream does not wait for the sets
  }

  CUdeviceptr allocate() const {
    CUdeviceptr memory = 0;
    CHECK(cuMemAllocAsync(&memory, kBytes, stream));
    return memory;
  }
  void launch_mix(CUdeviceptr a, CUdeviceptr b, CUdeviceptr out, unsigned salt) const {
    int count = kCount;
    void* arguments[] = {&a, &b, &out, &count, &salt};
    CHECK(cuLaunchKernel(mix, 4, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
  }
  void launch_update(CUdeviceptr target, CUdeviceptr change) const {
    int count = kCount;
    void* arguments[] = {&target, &change, &count};
    CHECK(cuLaunchKernel(update, 4, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
  }

  void launch_span(CUdeviceptr memory) const {
    int skip = address == "before", pad = address == "padded" ? 128 : 0;
    CUdeviceptr begin = memory - static_cast<std::size_t>(skip) * sizeof(unsigned);
    CUdeviceptr end = memory + kBytes + static_cast<std::size_t>(pad) * sizeof(unsigned);
    unsigned salt = 9;
    if (address == "table") {
      *ends = end;
      CHECK(cuMemcpyHtoDAsync(table, ends, sizeof end, stream));
      void* arguments[] = {&begin, const_cast<CUdeviceptr*>(&table), &salt};
      CHECK(cuLaunchKernel(span_to, 1, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
      return;
    }
    void* arguments[] = {&begin, &end, &skip, &pad, &salt};
    CHECK(cuLaunchKernel(span, 1, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr));
  }

  // Two branches, in memory of their own that the pool reuses in the middle.
  void step() const {
    const CUdeviceptr x = allocate(), a = allocate();
    CHECK(cuMemcpyHtoDAsync(x, input, kBytes, stream));
    launch_mix(x, state[0], a, 3);
    if (!address.empty()) launch_span(a);
    launch_update(state[0], a);
    CHECK(cuMemFreeAsync(a, stream));
    const CUdeviceptr b = allocate();
    launch_mix(x, state[1], b, 7);
    launch_update(state[1], b);
    CHECK(cuMemFreeAsync(x, stream));
    launch_update(state[2], b);
    CHECK(cuMemFreeAsync(b, stream));
    CHECK(cuMemcpyDtoHAsync(output, state[2], kBytes, stream));
  }
  // Two branches, and the memory of the second outlives it, where that of the first was.
  void reusing_step() {
    if (kept != 0) CHECK(cuMemFreeAsync(kept, stream));
    const CUdeviceptr a = allocate();
    launch_mix(state[2], state[0], a, 3);
    launch_update(state[0], a);
    CHECK(cuMemFreeAsync(a, stream));
    kept = allocate();
    if (kept != a) std::fprintf(stderr, "another address\n");
    launch_mix(state[2], state[1], kept, 7);
    launch_update(state[1], kept);
    CHECK(cuMemcpyDtoHAsync(output, state[1], kBytes, stream));
  }
  // Its first op, in memory that outlives it.
  void lasting_step() {
    kept = allocate();
    launch_mix(state[0], state[1], kept, 1);
    launch_update(state[0], kept);
    launch_update(state[1], kept);
  }

  nimble_region* begin() const {
    nimble_region* region = nullptr;
    const nimble_result result = nimble_region_begin(&region);
    if (result != NIMBLE_SUCCESS) std::printf("begin: %d\n", result);
    return region;
  }
};

std::uint64_t digest_of(std::uint64_t digest, const unsigned* values) {
  for (int i = 0; i < kCount; ++i) digest = (digest ^ values[i]) * 1099511628211u;
  return digest;
}

int run(bool launches, int steps, const std::string& address) {
  Program program;
  if (address != "away") program.address = address;
  nimble_region* region = nullptr;
  bool refused = false;
  std::uint64_t digest = 14695981039346656037u;
  for (int i = 0; i < steps; ++i) {
    for (int k = 0; k < kCount; ++k) program.input[k] = static_cast<unsigned>(i * 977 + k * 31);
    if (launches && region && !refused) {
      nimble_result result = NIMBLE_SUCCESS;
      const auto launch = [&] { result = nimble_region_launch(region, program.stream); };
      address == "away" ? std::thread(launch).join() : launch();
      if (result != NIMBLE_SUCCESS) {
        std::fprintf(stderr, "launch: %d\n", result);
        return 1;
      }
    } else {
      if (launches && !region) region = program.begin();
      program.address == "reused" ? program.reusing_step() : program.step();
      if (region && !refused &&
          (nimble_region_end(region) != NIMBLE_SUCCESS || nimble_region_compile(region) != NIMBLE_SUCCESS)) {
        char why[200];
        nimble_region_why(region, why, sizeof why);
        std::fprintf(stderr, "compile: %s\n", why);
        if (address.empty()) return 1;
        refused = true;
      }
    }
    CHECK(cuStreamSynchronize(program.stream));
    digest = digest_of(digest, program.output);
  }
  for (const CUdeviceptr memory : program.state) {
    CHECK(cuMemcpyDtoH(program.output, memory, kBytes));
    digest = digest_of(digest, program.output);
  }
  nimble_counters counters = {};
  counters.size = sizeof counters;
  nimble_get_counters(&counters);
  std::fprintf(stderr, "launches: %lu\n", static_cast<unsigned long>(counters.graph_launches));
  if (region && nimble_region_destroy(region) != NIMBLE_SUCCESS) return 1;
  std::printf("%016llx\n", static_cast<unsigned long long>(digest));
  return 0;
}

// Compiles and launches what was recorded since begin(), and prints what comes of it.
void say(const char* what, nimble_region* region, CUstream stream) {
  char why[200] = "";
  const nimble_result ended = nimble_region_end(region), compiled = nimble_region_compile(region),
                      launched = nimble_region_launch(region, stream);
  nimble_region_why(region, why, sizeof why);
  std::printf("%s: end %d compile %d launch %d %s\n", what, ended, compiled, launched, why);
}
void say_launch(const char* what, nimble_region* region, CUstream stream) {
  char why[200] = "";
  const nimble_result launched = nimble_region_launch(region, stream);
  nimble_region_why(region, why, sizeof why);
  std::printf("%s: launch %d %s\n", what, launched, why);
}

int run_errors() {
  Program program;
  const CUstream stream = program.stream;
  std::printf("nothing: %d %d %d %d\n", nimble_region_begin(nullptr), nimble_region_end(nullptr),
              nimble_region_launch(nullptr, stream), nimble_region_destroy(nullptr));

  nimble_region* region = program.begin();
  nimble_region* inner = nullptr;
  std::printf("nested: %d %s\n", nimble_region_begin(&inner), inner ? "region" : "null");
  std::printf("too early: %d %d\n", nimble_region_compile(region), nimble_region_launch(region, stream));
  program.step();
  say("good", region, stream);
  std::printf("twice: %d %d\n", nimble_region_end(region), nimble_region_compile(region));

  nimble_region* other = program.begin();
  program.step();
  CHECK(cuStreamSynchronize(stream));
  say("synchronizes", other, stream);
  nimble_region_destroy(other);

  std::vector<unsigned> pageable(kCount);
  other = program.begin();
  CHECK(cuMemcpyHtoDAsync(program.state[0], pageable.data(), kBytes, stream));
  program.launch_update(program.state[1], program.state[0]);
  say("pageable", other, stream);
  nimble_region_destroy(other);

  other = program.begin();
  program.launch_update(program.state[1], program.state[0]);
  CHECK(cuLaunchHostFunc(
      stream, [](void*) {}, nullptr));
  program.launch_update(program.state[0], program.state[1]);
  say("host function", other, stream);
  nimble_region_destroy(other);

  CUevent event = nullptr;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventRecord(event, stream));
  other = program.begin();
  program.launch_update(program.state[1], program.state[0]);
  CHECK(cuStreamWaitEvent(stream, event, 0));
  program.launch_update(program.state[0], program.state[1]);
  say("earlier event", other, stream);
  nimble_region_destroy(other);

  other = program.begin();
  say("empty", other, stream);
  nimble_region_destroy(other);

  other = program.begin();
  CHECK(cuMemFreeAsync(program.allocate(), stream));
  program.launch_update(program.state[1], program.state[0]);
  program.launch_update(program.state[0], program.state[1]);
  CHECK(cuEventRecord(event, stream));
  say("event", other, stream);
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuEventDestroy(event));
  say_launch("its event is destroyed", other, stream);
  nimble_region_destroy(other);

  other = program.begin();
  program.lasting_step();
  say("lasting memory", other, stream);
  CHECK(cuMemFreeAsync(program.kept, stream));
  say_launch("it is released", other, stream);
  nimble_region_destroy(other);

  // Released between the region and its compilation, and by now another's.
  other = program.begin();
  program.lasting_step();
  nimble_region_end(other);
  CHECK(cuMemFreeAsync(program.kept, stream));
  std::printf("released before: %d\n", nimble_region_compile(other));
  nimble_region_destroy(other);

  // What an unknown kernel uses is unknown, too.
  CUmodule opaque = nullptr;
  CUfunction known = program.update, advance = nullptr;
  CHECK(cuModuleLoad(&opaque, image_path("opaque.simcuda").c_str()));
  CHECK(cuModuleGetFunction(&advance, opaque, "advance"));
  CUdeviceptr unrelated = 0;
  CHECK(cuMemAlloc(&unrelated, kBytes));
  other = program.begin();
  program.update = advance;
  program.step();
  say("unknown kernel in memory of its own", other, stream);
  nimble_region_destroy(other);
  other = program.begin();
  program.launch_update(program.state[0], program.state[1]);
  program.launch_update(program.state[1], program.state[0]);
  program.update = known;
  say("unknown kernel", other, stream);
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemFree(unrelated));
  say_launch("what it may use is released", other, stream);
  nimble_region_destroy(other);

  say_launch("still good", region, stream);
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemFree(program.state[2]));
  CHECK(cuMemAlloc(&program.state[2], kBytes));  // at the same address, perhaps
  say_launch("a state is released", region, stream);
  nimble_region_destroy(region);

  region = program.begin();
  program.step();
  say("again", region, stream);
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuModuleUnload(program.module));
  say_launch("code is unloaded", region, stream);
  nimble_region_destroy(region);

  Program last;
  region = last.begin();
  last.step();
  say("the last", region, last.stream);
  CHECK(cuStreamSynchronize(last.stream));
  CHECK(cuDevicePrimaryCtxReset(0));
  say_launch("its context has ended", region, last.stream);
  std::printf("after its context: %d\n", nimble_region_destroy(region));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "errors") return run_errors();
  if (argc >= 3 && argc <= 4 && (what == "code" || what == "region"))
    return run(what == "region", std::atoi(argv[2]), argc == 4 ? argv[3] : "");
  std::fprintf(stderr, "usage: regions code|region STEPS [end|table|before|padded|reused|away] | errors\n");
  return 2;
}
