// A program that works under a fault, and reports all that it has noticed: `faults FILE [WHAT...]`.
//
// Opens FILE, launches repeated steps on two streams and a captured graph, and with libnimble.so in regions mode a
// region as well. What came of it, and which descriptors its own opens got, it writes into FILE and to stdout, line by
// line; then it ends with status 7. The faults that come from outside (limits, closed descriptors) are its parent's;
// WHAT, in any order, are those that it makes itself:
//
//   no_threads full_at_open full_later read_only no_files   calls that the kernel refuses from a moment on
//   fill                      opens as many descriptors as it can, twice
//   memory                    asks for 512 MiB of address space
//   small_files               RLIMIT_FSIZE is 512 bytes once the driver has started
//   children exec spawn       children by every way there is, also while a second thread launches
//   signals signals_restart   signals at each thread that is not its own, and at the process
//   timer                     an interval timer that never lets a system call end
//   crash crash_handled       a SIGSEGV of its own at the end, without and with a handler
//   ignore_pipe               SIGPIPE and SIGXFSZ are ignored
//   child                     no graph and few steps; status 5
//   tell                      says on stderr what Nimble has made of the graph and the region
#include <dlfcn.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/graph_program.h"
#include "tests/integration/programs/process/fault_children.h"
#include "tests/integration/programs/process/fault_filters.h"
#include "tests/integration/programs/process/fault_signals.h"

namespace {

constexpr int kSteps = 120, kGraphLaunches = 12, kRegionLaunches = 6, kStatus = 7, kChildStatus = 5;
constexpr unsigned kMoment = 80'000;  // for threads that write every 50 ms to do so among the steps

std::set<std::string> g_asked;
bool asked(const char* what) { return g_asked.count(what) != 0; }

// No stdio: what it has buffered would be written by children once more.
void write_all(int file, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;
    done += static_cast<std::size_t>(count);
  }
}

class Notes {
 public:
  explicit Notes(const char* path) : file_(::open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666)) {
    if (file_ < 0) std::_Exit(3);
    say("file", file_);
  }
  int file() const { return file_; }
  void say(const std::string& what, long long value) { lines_ += what + ": " + std::to_string(value) + "\n"; }
  // Which descriptor an open gets, and whether a second one gets the next.
  void opens(const char* when) {
    const int first = ::open("/dev/null", O_RDWR), second = ::dup(first);
    say(std::string("opens ") + when, first);
    say(std::string("dups ") + when, second);
    ::close(first);
    ::close(second);
  }
  void tell() {
    write_all(file_, lines_);
    write_all(1, lines_);
    lines_.clear();
  }

 private:
  int file_;
  std::string lines_;
};

// How many descriptors can be opened, and the sum of their numbers.
void fill(Notes& notes, const char* when) {
  std::vector<int> got;
  long long sum = 0;
  for (int one; got.size() < 4096 && (one = ::open("/dev/null", O_RDONLY)) >= 0; sum += one) got.push_back(one);
  notes.say(std::string("descriptors ") + when, static_cast<long long>(got.size()));
  notes.say(std::string("their sum ") + when, sum);
  for (const int one : got) ::close(one);
}

struct Program : GraphProgram {
  CUevent begun = nullptr, joined = nullptr;
  CUdeviceptr state[3] = {}, between[2] = {};
  unsigned *values = nullptr, *results = nullptr;

  Program() {
    CHECK(cuEventCreate(&begun, CU_EVENT_DISABLE_TIMING));
    CHECK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    for (CUdeviceptr& each : state) each = memory(kBytes, static_cast<unsigned>(&each - state) + 5);
    for (CUdeviceptr& each : between) each = memory(kBytes);
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&values), kBytes));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&results), kBytes));
    CHECK(cuCtxSynchronize());
  }
  // The same work each time, on two streams that part and meet again.
  void submit() const {
    CHECK(cuMemcpyHtoDAsync(input, values, kBytes, stream));
    CHECK(cuEventRecord(begun, stream));
    CHECK(cuStreamWaitEvent(second, begun, 0));
    launch_mix(input, state[0], between[0], 3);
    launch_update(state[0], between[0]);
    launch_mix(input, state[1], between[1], 7, second);
    launch_update(state[1], between[1], second);
    CHECK(cuEventRecord(joined, second));
    CHECK(cuStreamWaitEvent(stream, joined, 0));
    launch_mix(state[0], state[1], between[0], 11);
    launch_update(state[2], between[0]);
    CHECK(cuMemcpyDtoHAsync(results, state[2], kBytes, stream));
  }
  void set_values(int number) const {
    for (int i = 0; i < kCount; ++i) values[i] = static_cast<unsigned>(number * 977 + i * 31);
  }
  void finish_step() {
    CHECK(cuStreamSynchronize(stream));
    for (int i = 0; i < kCount; ++i) digest = (digest ^ results[i]) * 1099511628211u;
  }
  void step(int number) {
    set_values(number);
    submit();
    finish_step();
  }
  void graph() {
    CUdeviceptr a = 0, b = 0;
    const CUgraph captured = capture_two(a, b);
    CHECK(cuGraphDestroy(captured));
    const CUgraph graph = capture([&] {
      CHECK(cuEventRecord(begun, stream));
      CHECK(cuStreamWaitEvent(second, begun, 0));
      launch_mix(input, other, out[0], 1);
      launch_mix(input, other, out[1], 2, second);
      CHECK(cuEventRecord(joined, second));
      CHECK(cuStreamWaitEvent(stream, joined, 0));
      launch_update(state[0], out[0]);
      launch_update(state[1], out[1]);
    });
    const CUgraphExec exec = make(graph);
    nimble_graph_status status = {};
    for (int i = 0; i < kGraphLaunches; ++i) {
      run(exec, static_cast<unsigned>(i));
      note(state[0]);
      note(state[1]);
    }
    status.size = sizeof status;
    if (asked("tell") && nimble_get_graph(exec, &status) == NIMBLE_SUCCESS)
      std::fprintf(stderr, "the graph was rewritten: %d %s\n", status.state == NIMBLE_GRAPH_REWRITTEN, status.text);
    end(exec, graph);
  }
  // Launched as a graph where Nimble is asked for that; else, and without Nimble, its code runs.
  void region() {
    nimble_region* region = nullptr;
    bool launches = nimble_region_begin(&region) == NIMBLE_SUCCESS;
    int launched = 0;
    for (int i = 0; i < kRegionLaunches; ++i) {
      set_values(1000 + i);
      if (i > 0 && launches && nimble_region_launch(region, stream) == NIMBLE_SUCCESS) {
        ++launched;
      } else {
        submit_region();
      }
      if (i == 0 && launches)
        launches = nimble_region_end(region) == NIMBLE_SUCCESS && nimble_region_compile(region) == NIMBLE_SUCCESS;
      finish_step();
    }
    if (asked("tell")) std::fprintf(stderr, "launches of the region: %d\n", launched);
    if (region) nimble_region_destroy(region);
  }
  void submit_region() const {
    CHECK(cuMemcpyHtoDAsync(input, values, kBytes, stream));
    launch_mix(input, state[0], between[0], 3);
    launch_update(state[0], between[0]);
    launch_mix(input, state[1], between[1], 7);
    launch_update(state[1], between[1]);
    launch_mix(state[0], state[1], between[0], 11);
    launch_update(state[2], between[0]);
    CHECK(cuMemcpyDtoHAsync(results, state[2], kBytes, stream));
  }
};

// Address space in pieces; it all goes back.
int pieces_of_memory() {
  constexpr std::size_t kPiece = std::size_t{64} << 20, kEnough = 8;
  std::vector<void*> got;
  while (got.size() < kEnough) {
    void* const piece =
        ::mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (piece == MAP_FAILED) break;
    got.push_back(piece);
  }
  for (void* const piece : got) ::munmap(piece, kPiece);
  return static_cast<int>(got.size());
}

void refuse_early() {
  if (asked("no_threads")) refuse_threads();
  if (asked("full_at_open")) refuse_new_files(ENOSPC);
  if (asked("read_only")) refuse_new_files(EROFS);
  if (asked("ignore_pipe")) {
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
  }
}

int crash() {
  static volatile int* const nowhere = nullptr;
  if (asked("crash_handled")) {
    std::signal(SIGSEGV, [](int) { _exit(9); });
  }
  return *nowhere;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  g_asked.insert(argv + 2, argv + argc);
  Notes notes(argv[1]);
  if (void* const begins = ::dlsym(RTLD_DEFAULT, "fault_begins")) reinterpret_cast<void (*)()>(begins)();
  notes.opens("at the start");
  if (asked("fill")) fill(notes, "at the start");
  refuse_early();
  const bool signals = asked("signals") || asked("signals_restart");
  if (signals) Signals::install(asked("signals_restart"));
  if (asked("timer")) Signals::start_timer();
  if (const CUresult started = cuInit(0); started != CUDA_SUCCESS) {
    notes.say("no driver", started);
    notes.tell();
    return kStatus;
  }
  Program program;
  notes.opens("once the driver has started");
  if (asked("small_files")) {
    const rlimit small = {512, 512};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  const int steps = asked("child") ? kSteps / 4 : kSteps;
  for (int i = 0; i < steps; ++i) {
    program.step(i);
    if (i == kSteps / 4 && !asked("child")) ::usleep(kMoment);
    if (i == kSteps / 3 && asked("full_later")) refuse_writes(notes.file(), ENOSPC);
    if (i == kSteps / 2 && asked("fill")) fill(notes, "among the steps");
    if (i == kSteps / 2) notes.opens("among the steps");
    if (i == kSteps / 3 && asked("no_files")) refuse_descriptors(EMFILE);
    if (i % 8 == 3 && asked("children")) notes.say("children", fork_children(i));
    if (i % 16 == 3 && asked("spawn")) notes.say("spawned", spawn_children());
    if (i % 30 == 7 && asked("exec")) notes.say("executed", exec_child(argv[1]));
    if (i % 4 == 1 && signals) Signals::at_others();
  }
  if (asked("child")) {
    notes.say("digest", static_cast<long long>(program.digest));
    notes.tell();
    return kChildStatus;
  }
  program.graph();
  program.region();
  if (signals) {
    Signals::at_process(program.stream);
    notes.say("handled elsewhere", Signals::handled_elsewhere());
    notes.say("taken from the process", Signals::lost());
  }
  if (asked("memory")) notes.say("pieces of memory", pieces_of_memory());
  if (asked("fill")) fill(notes, "at the end");
  notes.opens("at the end");
  notes.say("digest", static_cast<long long>(program.digest));
  notes.tell();
  if (asked("crash") || asked("crash_handled")) return crash();
  return kStatus;
}
