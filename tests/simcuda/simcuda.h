// What the simulated driver reports about itself, besides the driver API. Exported from libcuda.so.1; a program that
// may run on a real driver looks these names up with dlsym. Times are simulated microseconds
// (include/nimble/internal/device_model.h).
//
// Environment, read once, at the first call into the driver:
//   SIMCUDA_SEED=N        order of execution: 0 (default) is program order, any other number an adversarial one
//   SIMCUDA_ACCESS=1      record the exact ranges that each op reads and writes (loads instrumented kernels)
//   SIMCUDA_RACES=1       report conflicting ops that nothing orders (loads instrumented kernels)
//   SIMCUDA_INJECT=LIST   fail chosen calls: symbol:nth call:CUresult, separated by commas
//   SIMCUDA_LOG=1         log every call on stderr
//   SIMCUDA_REPORT=FILE   write a JSON report at exit, with SIMCUDA_ACCESS=1 also of what each op touched; %p is the
//                         process id
//   SIMCUDA_REGION=ADDR   where the device's memory begins, if nothing is there (the driver's pools: 12918456320)
//   SIMCUDA_ATTRIBUTE=N=V the device's attribute N (CUdevice_attribute) is V
//   SIMCUDA_NO_HINTS=1    let no address reservation have the address that it asks for
//   SIMCUDA_MEMORY=N      MiB of memory that the device has; default 143 GiB
//   SIMCUDA_IDLE_MS=N     let work proceed after N ms without a call, for programs that poll memory; 0 (default) never
//
// Every function may be called from any thread.
#ifndef SIMCUDA_H
#define SIMCUDA_H

// NOLINTBEGIN(modernize-deprecated-headers, modernize-use-using): this is a C header, too.
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The simulated clock and the counters. Submissions are what the host hands the GPU one by one: kernels, copies, sets,
// host functions, value writes and waits, and graph launches (a graph counts once).
double simcuda_host_time_us(void);
double simcuda_gpu_busy_us(void);  // time in which at least one op ran
double simcuda_gpu_end_us(void);   // end of the last op submitted so far
uint64_t simcuda_submissions(void);
uint64_t simcuda_graph_launches(void);
uint64_t simcuda_calls(const char* symbol);  // calls of one entry point
uint64_t simcuda_pending(void);              // ops submitted and not yet run
void simcuda_reset_counters(void);           // counters, clock, recorded accesses and races; what is in flight stays

// 1 where this entry point does its work, 0 where it only says CUDA_ERROR_NOT_SUPPORTED or does not exist.
int simcuda_implements(const char* symbol);
uint64_t simcuda_unimplemented_calls(void);

void simcuda_set_seed(uint64_t seed);

// Fails the nth call of this symbol from now on (1 is the next); 0 on success, -1 for an unknown symbol. Errors 700 and
// 719 stick to the context, as a kernel's fault does.
int simcuda_inject(const char* symbol, uint64_t nth, int result);
void simcuda_clear_injections(void);  // nor does any op fail

// Fails one op, told by what it is: a kernel by a 32-bit word among its parameters, a copy or a set by its bytes, an
// event's record or a wait for it by its handle. Whichever call submits it answers `result` and does nothing; so does
// the launch of a graph that holds it, which leaves the failure for the op itself. With `runs` it is submitted, and the
// context has this fault when it runs.
typedef enum SimcudaOpKind {
  SIMCUDA_KERNEL,
  SIMCUDA_COPY,
  SIMCUDA_SET,
  SIMCUDA_EVENT_RECORD,
  SIMCUDA_EVENT_WAIT,
} SimcudaOpKind;
void simcuda_fail_op(int kind, uint64_t what, int result, int runs);  // a SimcudaOpKind; any other fails none
uint64_t simcuda_failures(void);                                      // calls and ops that failed on demand so far

// Recording, also switched on by the environment. Kernels of modules that were loaded before are not instrumented.
void simcuda_track(int accesses, int races);

typedef struct SimcudaRange {
  uint64_t begin, end;
} SimcudaRange;

// One executed op, in the order of execution. Pointers stay valid until simcuda_reset_counters.
typedef struct SimcudaAccess {
  uint64_t op;  // its number in program order
  const char* name;
  uint64_t stream;  // 0 inside a graph
  int exact;        // 0 where the ranges are not known: a host function, or a kernel that is not instrumented
  const SimcudaRange* reads;
  size_t read_count;
  const SimcudaRange* writes;
  size_t write_count;
  // The call that submitted it: calls are counted from 1, and so are threads. A graph's nodes have the graph's launch.
  uint64_t call;
  const char* symbol;
  uint64_t thread;
} SimcudaAccess;

size_t simcuda_access_count(void);
int simcuda_access(size_t index, SimcudaAccess* out);  // 0 on success

// Two ops that touch a byte, one of them writing, with no order between them.
typedef struct SimcudaRace {
  uint64_t first_op, second_op;
  const char *first_name, *second_name;
  int first_writes, second_writes;
  SimcudaRange range;
} SimcudaRace;

size_t simcuda_race_count(void);
int simcuda_race(size_t index, SimcudaRace* out);  // 0 on success

// Accesses of kernels, copies and sets to device memory that was not allocated when they ran.
size_t simcuda_illegal_access_count(void);

// An observer of every call and of every kernel, copy and set that ran, like a profiler. One at a time; null: none.
// Called on the calling thread, the last two with the driver locked: none may call the driver. Calls are numbered
// from 1.
typedef struct SimcudaObserver {
  void* user;
  void (*enter)(void* user, const char* symbol, uint32_t call);
  // `kind`: 0 kernel, 1 copy, 2 set. The call is the one that submitted it; a graph's nodes have the graph's launch.
  void (*ran)(void* user, uint32_t call, int kind, double begin_us, double end_us);
  // An event's record has run: whoever waits for it goes on. May be null.
  void (*recorded)(void* user, const void* event);
} SimcudaObserver;

void simcuda_observe(const SimcudaObserver* observer);

// The linear memory of a texture object, null where there is none. For kernels, while they run.
const void* simcuda_texture_memory(unsigned long long texture);

// The names of all entry points, in a fixed order; null past the last.
const char* simcuda_symbol(size_t index);

#ifdef __cplusplus
}
#endif
// NOLINTEND(modernize-deprecated-headers, modernize-use-using)

#endif
