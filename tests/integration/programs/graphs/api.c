/* A program in plain C that uses the C API, whether libnimble.so is there or not: `api STEPS`. Each step is marked, with
 * an evaluation of another kind and an unmarked launch now and then. Prints the result, and then what Nimble said. */
#include "nimble/nimble.h"

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kCount = 64 };

static void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: error %d\n", what, (int)result);
  exit(1);
}
#define CHECK(call) check(call, #call)

static void launch(CUfunction function, CUdeviceptr target, CUdeviceptr source) {
  int count = kCount;
  void* arguments[3];
  arguments[0] = &target;
  arguments[1] = &source;
  arguments[2] = &count;
  CHECK(cuLaunchKernel(function, 1, 1, 1, kCount, 1, 1, 0, NULL, arguments, NULL));
}

static void say(const char* when) {
  nimble_status status;
  nimble_counters counters;
  memset(&status, 0, sizeof status);
  memset(&counters, 0, sizeof counters);
  status.size = sizeof status;
  counters.size = sizeof counters;
  nimble_result of_status = nimble_get_status(&status), of_counters = nimble_get_counters(&counters);
  printf("%s: status %d mode %d phase %d reason \"%s\" counters %d marked %lu matched %lu launches %lu\n", when,
         (int)of_status, (int)status.mode, (int)status.phase, status.reason, (int)of_counters,
         (unsigned long)counters.steps_marked,
         (unsigned long)(counters.steps_replayed + counters.steps_passed_through),
         (unsigned long)counters.graph_launches);
}

int main(int argc, char** argv) {
  const int steps = argc > 1 ? atoi(argv[1]) : 4;
  const char* const image = argc > 2 ? argv[2] : "programs.simcuda";
  const char* text = "";
  int api = 0;
  nimble_result version = nimble_version(&api, &text);
  printf("version %d api %d text %s\n", (int)version, api, text);
  nimble_step_begin("before anything"); /* harmless */
  nimble_step_end();
  say("before");

  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction update;
  CUdeviceptr state, change, other;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuModuleLoad(&module, image));
  CHECK(cuModuleGetFunction(&update, module, "_Z6updateILi1EEvPjPKji"));
  CHECK(cuMemAlloc(&state, kCount * sizeof(unsigned)));
  CHECK(cuMemAlloc(&change, kCount * sizeof(unsigned)));
  CHECK(cuMemAlloc(&other, kCount * sizeof(unsigned)));
  CHECK(cuMemsetD32(state, 1, kCount));
  CHECK(cuMemsetD32(change, 2, kCount));
  CHECK(cuMemsetD32(other, 3, kCount));

  for (int i = 0; i < steps; ++i) {
    nimble_step_begin("train");
    launch(update, state, change);
    launch(update, other, change);
    launch(update, change, state);
    nimble_step_end();
    if (i % 2 == 1) launch(update, state, other);
    if (i == steps / 2) {
      nimble_step_begin("evaluate");
      launch(update, other, state);
      nimble_step_end();
    }
  }
  unsigned result[kCount], sum = 0;
  CHECK(cuMemcpyDtoH(result, state, sizeof result));
  for (int i = 0; i < kCount; ++i) sum += result[i];
  say("after");
  printf("sum %u\n", sum);

  nimble_status small;
  memset(&small, 0, sizeof small);
  printf("bad arguments: %d %d %d\n", (int)nimble_get_status(NULL), (int)nimble_get_counters(NULL),
         (int)nimble_get_status(&small));
  return 0;
}
