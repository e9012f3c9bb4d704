/* The C API of Nimble: what a program may tell libnimble.so, and ask it.
 *
 * The header is all that a program needs, in C99 or C++: its functions look for those of libnimble.so when they are
 * first called, and where it is not loaded they do nothing and return NIMBLE_NOT_LOADED. There is nothing to link (but
 * -ldl on a glibc before 2.34, as for any dlsym). Who would rather not have the header, such as a program in Python,
 * finds the functions under the same names by dlsym.
 *
 * Every function may be called from any thread at any time, returns a nimble_result, and never blocks for the GPU. It
 * keeps no pointer that it is given, and what it fills in is the caller's. docs/reference/api-c.md has examples. */
#ifndef NIMBLE_NIMBLE_H
#define NIMBLE_NIMBLE_H

#include <stddef.h>
#include <stdint.h>

/* Rises with every addition; what was there stays as it is. */
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

/* Counts since the process began: include/nimble/internal/counters.def says what each is. steps_replayed and
 * steps_passed_through together are the steps that matched. A field that the library is too old to know is 0. */
typedef struct nimble_counters {
  size_t size; /* in: sizeof(nimble_counters) */
#define NIMBLE_COUNTER(name, meaning) uint64_t name;
#include "internal/counters.def"
} nimble_counters;

/* What an executable CUDA graph of the program's is to NIMBLE_GRAPHS=rewrite. */
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
 * for that one, once, and calls it. */
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
/* A slot holds nothing, the function, or its own address where there is no such function. */
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

/* Marks where a step of the program begins. While recording, the marks go into the trace, and the analyzer takes them
 * for the step instead of looking for what repeats; in all other modes they are only counted. `name`, which may be
 * null, tells different kinds of steps apart ("train", "evaluate"): the kind that comes most often is the first one
 * that is scheduled. 255 characters of it count. A step that has begun ends at the latest where the next one begins.
 * Costs about as much as one recorded call, or less than 100 ns. */
NIMBLE_FUNCTION(nimble_step_begin, (const char* name), (name))

/* Marks where it ends. What the program does until the next one begins is no part of any step. */
NIMBLE_FUNCTION(nimble_step_end, (void), ())

/* What Nimble is doing. Waits, if at all, for another thread's driver call that is being judged: microseconds. */
NIMBLE_FUNCTION(nimble_get_status, (nimble_status * status), (status))

/* What was counted so far; waits like nimble_get_status. */
NIMBLE_FUNCTION(nimble_get_counters, (nimble_counters * counters), (counters))

/* Regions, in NIMBLE_MODE=regions: the program runs a piece of its own code once, and has what it submitted launched as
 * one graph from then on, without running the code again. It vouches that it wants the same ops with the same arguments
 * and addresses each time: launching the region does to the GPU's memory what running the code again would do.
 * docs/howto/regions.md says what a region may hold, and what may not happen to what it uses.
 *
 * Begins a region: the driver calls that this thread makes are recorded until nimble_region_end, and executed as
 * always.
 * `*region` is the caller's, and null after any error. NIMBLE_FAILED where the thread records one already, has no
 * current context, or some stream captures. */
NIMBLE_FUNCTION(nimble_region_begin, (nimble_region * *region), (region))

/* Ends it, on the thread that began it; else NIMBLE_INVALID_ARGUMENT. */
NIMBLE_FUNCTION(nimble_region_end, (nimble_region * region), (region))

/* Analyzes the region and makes its graph; takes milliseconds, and the memory that the region allocates and releases
 * itself. Returns at once where that was done before. */
NIMBLE_FUNCTION(nimble_region_compile, (nimble_region * region), (region))

/* Launches the region's graph on the stream (0: the legacy default stream), of the context that it was recorded in.
 * Costs as much as cuGraphLaunch. NIMBLE_STALE and NIMBLE_REFUSED: nothing was launched, and nothing will be; run the
 * code itself. Several threads may launch one region; the driver runs it once at a time. */
NIMBLE_FUNCTION(nimble_region_launch, (nimble_region * region, struct CUstream_st* stream), (region, stream))

/* Why it is refused or stale: at most `size` bytes of text with the null byte that ends it; empty where it is not. */
NIMBLE_FUNCTION(nimble_region_why, (nimble_region * region, char* text, size_t size), (region, text, size))

/* Ends its life, and gives its memory back, for which the driver may wait until launches are over. Null is fine. */
NIMBLE_FUNCTION(nimble_region_destroy, (nimble_region * region), (region))

/* Graphs, with NIMBLE_GRAPHS=rewrite: what the program makes executable itself is made once more, with what does not
 * depend on each other side by side, and the faster of the two is launched. A program that knows what it is about to
 * capture can do more for that: run it a few times between these two, so that Nimble sees what each kernel writes (the
 * program waits meanwhile, for milliseconds for each launch, and for all that is on its way when it begins), and
 * capture it once there, too, so that no memory is used twice in it. NIMBLE_INVALID_ARGUMENT: the calling thread is in
 * one already, or in none. */
NIMBLE_FUNCTION(nimble_learn_begin, (void), ())
NIMBLE_FUNCTION(nimble_learn_end, (void), ())

/* Then capture the same a second time, behind this: the next capture that this thread begins gets the memory that it
 * allocates in stream order where the graph has it best that the thread has made executable last; where there were
 * several since it began to learn, as many captures do, in the same order. NIMBLE_REFUSED where nothing is known of
 * any. What such a capture, and one to learn from, asks for by cuMemAllocAsync may be released at any time, or is
 * refused: the driver's own may not be released before the graph was launched. */
NIMBLE_FUNCTION(nimble_capture_again, (void), ())

/* What the calling thread does between begin and end is followed as if the stream captured it: `*strays` is how much of
 * the work would go past the capture, as a graph's `strays` has it. Behind nimble_rehearse_part() it is also followed
 * as if the capture had ended there, and another had begun on the same stream: `*behind` is how much of the work behind
 * it would go past that one, all of it together where there are several; a stream that waits for the first capture
 * alone is no part of the second. Either may be null. Nothing is captured, and all is done as ever. For who must not do
 * that work once more, as a capture would. NIMBLE_INVALID_ARGUMENT: the thread is in one already, or in none, or the
 * stream is the legacy default stream. */
NIMBLE_FUNCTION(nimble_rehearse_begin, (struct CUstream_st * stream), (stream))
NIMBLE_FUNCTION(nimble_rehearse_part, (void), ())
NIMBLE_FUNCTION(nimble_rehearse_end, (uint64_t * strays, uint64_t* behind), (strays, behind))

/* How many captures go on in the process, at most. While there are any, to wait for a device may be their end. */
NIMBLE_FUNCTION(nimble_count_captures, (uint64_t * count), (count))

/* What is known of an executable graph; with a null `exec`, of the one that the calling thread has made last. */
NIMBLE_FUNCTION(nimble_get_graph, (struct CUgraphExec_st * exec, nimble_graph_status* status), (exec, status))

/* Has an executable graph launched as it is from now on, also where another was made of it or would be faster; null
 * likewise. NIMBLE_INVALID_ARGUMENT where it is not known. */
NIMBLE_FUNCTION(nimble_keep_graph, (struct CUgraphExec_st * exec), (exec))

/* NIMBLE_SUCCESS where all that the graph's nodes may write, by what is known of them, is memory that its own capture
 * has allocated, or cuDNN for itself, or lies in one of `count` ranges of so many bytes from these addresses:
 * a launch of it can be taken back by who keeps what is there. What a kernel was seen to read, and only seen not to
 * write, it may write. NIMBLE_REFUSED where it is not, or not known; NIMBLE_INVALID_ARGUMENT where the graph is not. */
NIMBLE_FUNCTION(nimble_graph_writes_only,
                (struct CUgraphExec_st * exec, const uint64_t* addresses, const uint64_t* bytes, size_t count),
                (exec, addresses, bytes, count))

/* NIMBLE_SUCCESS where all is done that was put on the stream (0: the legacy default stream), NIMBLE_REFUSED where it
 * is not, or cannot be told. Ends nobody's capture, as cuStreamQuery may. */
NIMBLE_FUNCTION(nimble_stream_is_idle, (struct CUstream_st * stream), (stream))

/* Makes another context on the device of the current one, and ends it, which takes a fifth of a second, and half a GiB
 * meanwhile: behind that, kernels that need each other may follow each other sooner, of graphs and of all else. For
 * when a program is ready to work. Of a graph that is being timed both ways are then known in both of these states, and
 * less of a gain is enough. NIMBLE_REFUSED where something is captured, less than 4 GiB of the device is free,
 * or the driver makes none. */
NIMBLE_FUNCTION(nimble_settle, (void), ())

/* Memory that the program wants to hear of: `**gone` is 0, and 1 from before the driver is called by which any of the
 * allocations goes in which these addresses lie, or their context, the current one. It may be read at any time, without
 * a call, until nimble_unwatch_memory. NIMBLE_FAILED where the driver knows no allocation at one of the addresses. */
NIMBLE_FUNCTION(nimble_watch_memory, (const uint64_t* addresses, size_t count, const volatile uint32_t** gone),
                (addresses, count, gone))
NIMBLE_FUNCTION(nimble_unwatch_memory, (const volatile uint32_t* gone), (gone))

/* Launches an executable graph on the stream (0: the legacy default stream) as cuGraphLaunch would, where that is safe
 * without a look at anything else: NIMBLE_STALE where `*gone` is 1 (null: nothing is watched), NIMBLE_REFUSED where the
 * stream captures, or another context is current than when the graph was made executable. Nothing is launched then, and
 * neither where the graph is not known: NIMBLE_INVALID_ARGUMENT. */
NIMBLE_FUNCTION(nimble_launch_graph,
                (struct CUgraphExec_st * exec, struct CUstream_st* stream, const volatile uint32_t* gone),
                (exec, stream, gone))

/* Reads `count` words of this process's memory, the i-th at at[i], into `words`: NIMBLE_SUCCESS where that changes
 * nothing there, else NIMBLE_REFUSED. A quick look whether anything has changed since the last one, for who knows where
 * that would show. Works in every mode. */
NIMBLE_FUNCTION(nimble_update_words, (const uint64_t* const* at, uint64_t* words, size_t count), (at, words, count))

#ifdef __cplusplus
}
#endif
#endif
