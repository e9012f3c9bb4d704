// A program that counts on its descriptors and signals. `descriptors WORK STEPS WHAT...`: WORK is how the step is
// issued (plain, graph, region), WHAT what else the program does while steps run:
//
//   none        nothing
//   data        opens a file before the first call, and writes a row to it with each step
//   lowest      opens and closes a file with each step, and says which numbers it got
//   redirect    halfway has descriptor 2 stand for a file of its own, and writes rows to it
//   seize       halfway closes all descriptors above 2, and has its own file at each number instead
//   closes      halfway closes descriptors 0 to 2, as daemons do, and waits until `go` is there
//   child       halfway runs a program that lists its descriptors
//   handlers    has handlers of its own for SIGPIPE, SIGXFSZ and SIGUSR1, and sends itself SIGUSR1 with each step
//   limited     may not write files of more than 1000 bytes, from the first step on
//   cancelled   threads that are cancelled issue the first work and some of the steps
//
// What it has computed and seen goes to `out.txt`, since its stdout may be closed.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "nimble/nimble.h"
#include "tests/integration/programs/common/driver.h"

namespace {

constexpr int kCount = 64;
constexpr std::size_t kBytes = kCount * sizeof(unsigned);

std::string g_work, g_said;
void say(const std::string& text) { g_said += text + "\n"; }

void write_all(int file, const std::string& text) {
  if (::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) say("a write failed");
}

int open_data(const char* name) { return ::open(name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644); }

class Program {
 public:
  Program(std::string work, bool cancelled) : work_(std::move(work)) {
    CUmodule module = nullptr;
    CHECK(cuModuleLoad(&module, image_path("programs.simcuda").c_str()));
    CHECK(cuModuleGetFunction(&update_, module, "_Z6updateILi1EEvPjPKji"));
    CHECK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    if (cancelled) ::pthread_cancel(::pthread_self());  // pending until something can be cancelled
    CHECK(cuMemAlloc(&state_, kBytes));
    CHECK(cuMemAlloc(&change_, kBytes));
    CHECK(cuMemsetD32(state_, 1, kCount));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&result_), kBytes));
    CHECK(cuCtxSynchronize());
    if (work_ != "graph") return;
    CUgraph graph = nullptr;
    CHECK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    issue();
    CHECK(cuStreamEndCapture(stream_, &graph));
    CHECK(cuGraphInstantiate(&graph_, graph, 0));
  }

  void step() {
    if (work_ == "graph") {
      CHECK(cuGraphLaunch(graph_, stream_));
    } else if (work_ == "region") {
      region();
    } else {
      issue();
    }
    CHECK(cuStreamSynchronize(stream_));
    for (int i = 0; i < kCount; ++i) digest_ = digest_ * 31 + result_[i];
  }
  void context() const { CHECK(cuCtxSetCurrent(context_)); }
  unsigned long long digest() const { return digest_; }

 private:
  void issue() {
    CHECK(cuMemsetD32Async(change_, 3, kCount, stream_));
    int count = kCount;
    void* arguments[] = {&state_, &change_, &count};
    for (int i = 0; i < 3; ++i) CHECK(cuLaunchKernel(update_, 1, 1, 1, kCount, 1, 1, 0, stream_, arguments, nullptr));
    CHECK(cuMemcpyDtoHAsync(result_, state_, kBytes, stream_));
  }
  // Recorded the first time, where Nimble is there for it, and launched from then on.
  void region() {
    if (region_ && nimble_region_launch(region_, stream_) == NIMBLE_SUCCESS) return;
    const bool begun = !region_ && nimble_region_begin(&region_) == NIMBLE_SUCCESS;
    issue();
    if (begun && nimble_region_end(region_) == NIMBLE_SUCCESS) nimble_region_compile(region_);
  }

  const std::string work_;
  CUcontext context_ = start_driver();
  CUfunction update_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr state_ = 0, change_ = 0;
  unsigned* result_ = nullptr;
  CUgraphExec graph_ = nullptr;
  nimble_region* region_ = nullptr;
  unsigned long long digest_ = 0;
};

std::atomic<int> g_handled[NSIG];
std::atomic<pid_t> g_main_thread;
std::atomic<bool> g_elsewhere;

void handler(int signal) {
  ++g_handled[signal];
  if (::gettid() != g_main_thread) g_elsewhere = true;
}

// A handler of the program's runs on the program's thread, or on none.
void install_handlers() {
  g_main_thread = ::gettid();
  struct sigaction action {};
  action.sa_handler = handler;
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGUSR1}) ::sigaction(signal, &action, nullptr);
}

void check_handlers() {
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGUSR1}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    say("signal " + std::to_string(signal) + ": " + std::to_string(g_handled[signal]) + " times, handler " +
        (action.sa_handler == handler ? "its own" : "another"));
  }
  say(g_elsewhere ? "on another thread" : "on its thread");
}

// Sent while this thread blocks it: a thread that does not would run the handler.
void send_usr1() {
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  ::kill(::getpid(), SIGUSR1);
  ::usleep(200);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void list_in_child() {
  const pid_t child = ::fork();
  if (child == 0) {
    const int out = ::open("child.txt", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(out, 1);
    if (out != 1) ::close(out);
    ::unsetenv("LD_PRELOAD");
    ::execl("/bin/sh", "sh", "-c", "for f in /proc/$$/fd/*; do echo ${f##*/}; done", nullptr);
    ::_exit(1);
  }
  ::waitpid(child, nullptr, 0);
}

void* begin_cancelled(void* program) {
  auto* const made = static_cast<std::unique_ptr<Program>*>(program);
  *made = std::make_unique<Program>(g_work, /*cancelled=*/true);
  return program;
}

void* cancelled(void* program) {
  static_cast<Program*>(program)->context();
  ::pthread_cancel(::pthread_self());  // pending until something can be cancelled
  static_cast<Program*>(program)->step();
  return program;
}

}  // namespace

int main(int argc, char** argv) {
  g_work = argc > 1 ? argv[1] : "plain";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 60;
  const std::set<std::string> what(argv + std::min(argc, 3), argv + argc);
  const auto does = [&](const char* name) { return what.count(name) > 0; };

  int data = -1;
  if (does("data")) {
    data = open_data("data.out");
    say("the data file is " + std::to_string(data));
  }
  if (does("handlers")) install_handlers();
  std::unique_ptr<Program> program;
  if (does("cancelled")) {
    pthread_t thread;
    void* result = nullptr;
    ::pthread_create(&thread, nullptr, begin_cancelled, &program);
    ::pthread_join(thread, &result);
    say(result == &program ? "begun" : "cancelled");
    program->context();
  } else {
    program = std::make_unique<Program>(g_work, /*cancelled=*/false);
  }
  if (does("limited")) {
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 1000;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  std::set<int> numbers;
  for (int i = 0; i < steps; ++i) {
    if (i == steps / 2) {
      if (does("redirect")) {
        const int file = open_data("redirected.out");
        ::dup2(file, 2);
        if (file != 2) ::close(file);
      }
      if (does("seize")) {
        const int file = open_data("seized.out");
        for (int number = 3; number < 1024; ++number) ::dup2(file, number);
      }
      if (does("closes")) {
        for (int number = 0; number < 3; ++number) ::close(number);
        while (::access("go", F_OK) != 0) ::usleep(1000);
      }
      if (does("child")) list_in_child();
    }
    if (does("lowest")) {
      const int file = ::open("/dev/null", O_RDONLY);
      numbers.insert(file);
      ::close(file);
    }
    if (does("handlers")) send_usr1();
    if (does("cancelled") && i % 4 == 3) {
      pthread_t thread;
      void* result = nullptr;
      ::pthread_create(&thread, nullptr, cancelled, program.get());
      ::pthread_join(thread, &result);
      say(result == program.get() ? "to its end" : "cancelled");
    } else {
      program->step();
    }
    if (data >= 0) write_all(data, "row\n");
    if (does("redirect") && i >= steps / 2) write_all(2, "row\n");
    if (does("seize") && i >= steps / 2) write_all(500, "row\n");
  }
  for (const int number : numbers) say("number " + std::to_string(number));
  if (does("handlers")) check_handlers();
  say("digest " + std::to_string(program->digest()));
  const int out = ::open("out.txt", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  write_all(out, g_said);
  return 5;
}
