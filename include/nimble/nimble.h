/* The C API of Nimble: what a program can tell and ask libnimble.so.
 *
 * The header is all that a program needs, in C99 or C++: its functions look up those of libnimble.so when they are
 * first called, and if it is not loaded they do nothing and return NIMBLE_NOT_LOADED. There is nothing to link (except
 * -ldl on a glibc before 2.34, as for any dlsym). Programs that cannot use the header, for instance in Python, find the
 * functions under the same names by dlsym.
 *
 * Every function may be called from any thread at any time, returns a nimble_result, and never waits for the GPU unless
 * it says so. It keeps no pointer that it is given, and the caller owns what it fills in. docs/reference/api-c.md has
 * examples. */
#ifndef NIMBLE_NIMBLE_H
#define NIMBLE_NIMBLE_H

#include <stddef.h>
#include <stdint.h>

/* Rises with every addition; existing parts do not change. */
#define NIMBLE_API_VERSION 10

#ifdef __cplusplus
extern "C" {
#endif

typedef enum nimble_result {
  NIMBLE_SUCCESS = 0,
  NIMBLE_NOT_LOADED = 1,       /* libnimble.so is not in this process, or is older than the function */
  NIMBLE_INVALID_ARGUMENT = 2, /* a null pointer, or a structure without its size */
  NIMBLE_OUT_OF_MEMORY = 3,
  NIMBLE_FAILED = 4,      /* something else; the log of libnimble.so may say more */
  NIMBLE_WRONG_MODE = 5,  /* NIMBLE_MODE of this process does not do that */
  NIMBLE_REFUSED = 6,     /* no graph can stand for the region: nimble_region_why says why */
  NIMBLE_STALE = 7,       /* the region uses what is gone by now: likewise */
  NIMBLE_DRIVER_ERROR = 8 /* the driver refused the launch, as it may refuse any graph's */
} nimble_result;

/* NIMBLE_MODE of this process. */
typedef enum nimble_mode {
  NIMBLE_MODE_OFF = 0,
  NIMBLE_MODE_RECORD = 1,
  NIMBLE_MODE_REPLAY = 2,
  NIMBLE_MODE_AUTO = 3,
  NIMBLE_MODE_REGIONS = 4
} nimble_mode;

/* What libnimble.so is doing at the moment. */
typedef enum nimble_phase {
  NIMBLE_PHASE_IDLE = 0,      /* nothing: mode off, no driver call yet, or a process forked in the middle */
  NIMBLE_PHASE_RECORDING = 1, /* calls go to the driver as they are, and are recorded */
  NIMBLE_PHASE_ANALYZING = 2, /* auto: enough was recorded; calls go to the driver as they are */
  NIMBLE_PHASE_SEARCHING = 3, /* there is a schedule, and its step has not come yet */
  NIMBLE_PHASE_BINDING = 4,   /* a step is passing that may be the schedule's */
  NIMBLE_PHASE_REPLAYING = 5, /* steps are held against the schedule, and submitted as graphs */
  NIMBLE_PHASE_ASIDE = 6      /* nothing any more; `reason` says why */
} nimble_phase;

/* A region of the program, from nimble_region_begin to nimble_region_destroy. */
typedef struct nimble_region nimble_region;

struct CUstream_st; /* a CUstream is a pointer to one: this header needs no cuda.h */

typedef struct nimble_status {
  size_t size; /* in: sizeof(nimble_status) */
  nimble_mode mode;
  nimble_phase phase;
  char reason[256]; /* text for people, ended by a null byte; empty where there is nothing to say */
} nimble_status;

/* Counts since the process began; include/nimble/internal/counters.def describes them. steps_replayed and
 * steps_passed_through together are the steps that matched. A field that the library is too old to know is 0. */
typedef struct nimble_counters {
  size_t size; /* in: sizeof(nimble_counters) */
#define NIMBLE_COUNTER(name, meaning) uint64_t name;
#include "internal/counters.def"
} nimble_counters;

/* How NIMBLE_GRAPHS=rewrite treats one of the program's executable CUDA graphs. */
typedef enum nimble_graph_state {
  NIMBLE_GRAPH_KEPT = 0,     /* it is launched as it is: there is no other, and `text` says why */
  NIMBLE_GRAPH_TRYING = 1,   /* both are launched, in turn, and timed */
  NIMBLE_GRAPH_OWN = 2,      /* it was the faster one of the two, and is launched */
  NIMBLE_GRAPH_REWRITTEN = 3 /* the rewritten one is launched in its place */
} nimble_graph_state;

struct CUgraphExec_st; /* a CUgraphExec is a pointer to one */

typedef struct nimble_graph_status {
  size_t size;                 /* in: sizeof(nimble_graph_status) */
  struct CUgraphExec_st* exec; /* out: the graph that was asked about */
  nimble_graph_state state;
  uint32_t nodes, streams;     /* of the rewritten one: its nodes, and how many of them may run side by side at most */
  double own_us, rewritten_us; /* medians of a launch on the GPU; negative where nothing was timed yet */
  char text[256];              /* why it is kept, ended by a null byte; else empty */
  uint64_t strays;             /* pieces of work that the threads which captured it submitted past it meanwhile */
} nimble_graph_status;

/* NIMBLE_FUNCTION(name, (parameters), (arguments)): a prototype within libnimble.so; elsewhere a function that looks
 * that one up, once, and calls it. */
#ifdef NIMBLE_IMPLEMENTATION
#define NIMBLE_FUNCTION(name, parameters, arguments) \
  __attribute__((visibility("default"))) nimble_result name parameters;
#else
#ifdef __cplusplus
}
#endif
#include <dlfcn.h>
#ifdef __cplusplus
extern "C" {
#endif
/* A slot holds null, the function, or its own address if there is no such function. */
static inline void* NimbleLookUp(void** slot, const char* name) {
  void* found = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
  if (!found) {
#ifdef RTLD_DEFAULT
    found = dlsym(RTLD_DEFAULT, name);
#else
    found = dlsym((void*)0, name); /* what it is on Linux, where the dialect hides it */
#endif
    if (!found) found = (void*)slot;
    __atomic_store_n(slot, found, __ATOMIC_RELEASE);
  }
  return found == (void*)slot ? NULL : found;
}
#define NIMBLE_FUNCTION(name, parameters, arguments)                     \
  static inline nimble_result name parameters {                          \
    static void* slot = NULL;                                            \
    union {                                                              \
      void* pointer;                                                     \
      nimble_result(*function) parameters;                               \
    } found;                                                             \
    found.pointer = NimbleLookUp(&slot, #name);                          \
    return found.pointer ? found.function arguments : NIMBLE_NOT_LOADED; \
  }
#endif

/* The library's NIMBLE_API_VERSION, and its own version as text, which lives as long as the process. Either pointer may
 * be null. */
NIMBLE_FUNCTION(nimble_version, (int* api, const char** text), (api, text))

/* Marks the begin of a step of the program. While recording, the marks go into the trace, and the analyzer uses them
 * instead of looking for repetition; in all other modes they are only counted. `name`, which may be null, distinguishes
 * kinds of steps ("train", "evaluate"): the most frequent kind is scheduled first. 255 characters of it count. A step
 * ends at the latest where the next one begins. Costs about as much as one recorded call, or less than 100 ns. */
NIMBLE_FUNCTION(nimble_step_begin, (const char* name), (name))

/* Marks its end. What the program does until the next begin is not part of any step. */
NIMBLE_FUNCTION(nimble_step_end, (void), ())

/* What Nimble is doing. May wait some microseconds for another thread's driver call that is being matched. */
NIMBLE_FUNCTION(nimble_get_status, (nimble_status * status), (status))

/* The counts so far; waits like nimble_get_status. */
NIMBLE_FUNCTION(nimble_get_counters, (nimble_counters * counters), (counters))

/* Regions, in NIMBLE_MODE=regions: the program runs a piece of its own code once, and from then on launches what that
 * submitted as one graph, without running the code again. It guarantees that it wants the same ops with the same
 * arguments and addresses each time: launching the region does to the GPU's memory what running the code again would
 * do. docs/howto/regions.md says what a region may hold, and what must not happen to the things it uses.
 *
 * Begins a region: the driver calls that this thread makes are recorded until nimble_region_end, and executed as
 * always.
 * The caller owns `*region`, which is null after any error. NIMBLE_FAILED if the thread records one already, has no
 * current context, or some stream captures. */
NIMBLE_FUNCTION(nimble_region_begin, (nimble_region * *region), (region))

/* Ends it, on the thread that began it; else NIMBLE_INVALID_ARGUMENT. */
NIMBLE_FUNCTION(nimble_region_end, (nimble_region * region), (region))

/* Analyzes the region and makes its graph; takes milliseconds, and the memory that the region allocates and releases
 * itself. Returns at once if that was done before. */
NIMBLE_FUNCTION(nimble_region_compile, (nimble_region * region), (region))

/* Launches the region's graph on the stream (0: the legacy default stream), of the context that it was recorded in.
 * Costs as much as cuGraphLaunch. NIMBLE_STALE and NIMBLE_REFUSED: nothing was launched, and nothing will be; run the
 * code itself. Several threads may launch one region; the driver runs one launch at a time. */
NIMBLE_FUNCTION(nimble_region_launch, (nimble_region * region, struct CUstream_st* stream), (region, stream))

/* Why it is refused or stale: at most `size` bytes of text, including the terminating null byte; empty if it is not. */
NIMBLE_FUNCTION(nimble_region_why, (nimble_region * region, char* text, size_t size), (region, text, size))

/* Destroys it, and releases its memory, for which the driver may wait until launches are over. Null is allowed. */
NIMBLE_FUNCTION(nimble_region_destroy, (nimble_region * region), (region))

/* Graphs, with NIMBLE_GRAPHS=rewrite: Nimble rebuilds the graphs that the program instantiates, with independent nodes
 * in parallel, and launches the faster of the two. A program that knows what it is about to capture can help: run it a
 * few times between these two, so that Nimble sees what each kernel writes (only if NIMBLE_TRUST=observed believes it;
 * the program waits meanwhile, milliseconds for each launch, and at the begin for all work in flight), and also capture
 * it once there, so that it reuses no memory. NIMBLE_INVALID_ARGUMENT: the calling thread has begun already, or has not
 * begun. */
NIMBLE_FUNCTION(nimble_learn_begin, (void), ())
NIMBLE_FUNCTION(nimble_learn_end, (void), ())

/* Then call this and capture the same a second time: the next capture that this thread begins gets its stream-ordered
 * memory by the plan of the graph that the thread instantiated last; if there were several since it began to learn, as
 * many captures do, in the same order. NIMBLE_REFUSED if nothing is known of any. What such a capture, or one to learn
 * from, allocates by cuMemAllocAsync may be released at any time, or is refused: the driver's own memory may not be
 * released before the graph was launched. */
NIMBLE_FUNCTION(nimble_capture_again, (void), ())

/* Rehearses a capture: follows what the calling thread does between begin and end as if the stream captured it.
 * `*strays` is how much of the work would bypass the capture, as in a graph's `strays`. After nimble_rehearse_part() it
 * is also followed as if the capture had ended there, and another had begun on the same stream: `*behind` is how much
 * of the work after it would bypass that one, in total if there are several; a stream that waits only for the first
 * capture is not part of the second. Either may be null. Nothing is captured, and everything executes as usual. For
 * callers that must not repeat that work, as a capture would. NIMBLE_INVALID_ARGUMENT: the thread is in one already, or
 * in none, or the stream is the legacy default stream. */
NIMBLE_FUNCTION(nimble_rehearse_begin, (struct CUstream_st * stream), (stream))
NIMBLE_FUNCTION(nimble_rehearse_part, (void), ())
NIMBLE_FUNCTION(nimble_rehearse_end, (uint64_t * strays, uint64_t* behind), (strays, behind))

/* How many captures are under way in the process, at most. While there are any, waiting for a device may invalidate
 * them. */
NIMBLE_FUNCTION(nimble_count_captures, (uint64_t * count), (count))

/* What is known of an executable graph; with a null `exec`, of the one that the calling thread has made last. */
NIMBLE_FUNCTION(nimble_get_graph, (struct CUgraphExec_st * exec, nimble_graph_status* status), (exec, status))

/* From now on launches an executable graph as it is, even if a rewritten one exists or would be faster; null likewise.
 * NIMBLE_INVALID_ARGUMENT if it is not known. */
NIMBLE_FUNCTION(nimble_keep_graph, (struct CUgraphExec_st * exec), (exec))

/* NIMBLE_SUCCESS if all memory that the graph's nodes are known to write was allocated by its own capture, or by cuDNN
 * for itself, or lies in one of `count` ranges of so many bytes from these addresses: a caller that keeps a copy of
 * these can undo a launch. A kernel that was only observed not to write something counts as writing it. NIMBLE_REFUSED
 * if not, or if unknown; NIMBLE_INVALID_ARGUMENT if the graph is not known. */
NIMBLE_FUNCTION(nimble_graph_writes_only,
                (struct CUgraphExec_st * exec, const uint64_t* addresses, const uint64_t* bytes, size_t count),
                (exec, addresses, bytes, count))

/* NIMBLE_SUCCESS if all work on the stream (0: the legacy default stream) is done, NIMBLE_REFUSED if not, or if that
 * cannot be told. Unlike cuStreamQuery, invalidates no capture. */
NIMBLE_FUNCTION(nimble_stream_is_idle, (struct CUstream_st * stream), (stream))

/* Creates another context on the current device and destroys it, which takes a fifth of a second, and half a GiB
 * meanwhile: after that, dependent kernels may follow each other sooner, in graphs and elsewhere. Call it when the
 * program is ready to work. A graph that is being timed is then timed in both of these states, and a smaller gain
 * suffices. NIMBLE_REFUSED during captures, if less than 4 GiB of the device is free, or if the driver refuses. */
NIMBLE_FUNCTION(nimble_settle, (void), ())

/* Watches memory for the program: `**gone` is 0, and becomes 1 before any driver call that releases one of the
 * allocations that hold these addresses, or their context, the current one. It may be read at any time, without a call,
 * until nimble_unwatch_memory. NIMBLE_FAILED if the driver knows no allocation at one of the addresses. */
NIMBLE_FUNCTION(nimble_watch_memory, (const uint64_t* addresses, size_t count, const volatile uint32_t** gone),
                (addresses, count, gone))
NIMBLE_FUNCTION(nimble_unwatch_memory, (const volatile uint32_t* gone), (gone))

/* Launches an executable graph on the stream (0: the legacy default stream) as cuGraphLaunch would, if that is safe
 * without further checks: NIMBLE_STALE if `*gone` is 1 (null: nothing is watched), NIMBLE_REFUSED if the stream
 * captures, or another context is current than when the graph was instantiated, NIMBLE_INVALID_ARGUMENT if the graph is
 * not known; then nothing is launched. */
NIMBLE_FUNCTION(nimble_launch_graph,
                (struct CUgraphExec_st * exec, struct CUstream_st* stream, const volatile uint32_t* gone),
                (exec, stream, gone))

/* Reads `count` words of this process's memory, the i-th at at[i], into `words`: NIMBLE_SUCCESS if that changes nothing
 * in `words`, else NIMBLE_REFUSED. A quick check whether anything has changed since the last call, for callers that
 * know which words would show it. Works in every mode. */
NIMBLE_FUNCTION(nimble_update_words, (const uint64_t* const* at, uint64_t* words, size_t count), (at, words, count))

#ifdef __cplusplus
}
#endif
#endif
