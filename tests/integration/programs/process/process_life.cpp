// What processes do with themselves while they use the GPU. Each prints what it computed.
//
//   process_life fork HOW           children that never use the GPU end by HOW while the work goes on
//   process_life fork_threads HOW   the same, forked by threads that launch
//   process_life fork_first HOW     the parent does nothing, two children do the work each
//   process_life fork_looked HOW    the same, but the parent has looked a function up
//   process_life exec PROGRAM...    a child becomes another program, while the work goes on
//   process_life threads            threads that all launch at once
//   process_life end HOW            the work, and then the end
//   process_life end_thread HOW     the work; then another thread ends the process
//   process_life busy HOW           threads launch on and on, while one of them ends the process
//   process_life loop [exit]        launches until a signal comes; with `exit` its handler calls exit(0)
//   process_life late               launches in every place that is reached after main
//   process_life preinit            functions that were looked up before any constructor
//   process_life dlclose LIBRARY    loads a library that does the work, unloads it, and again
//   process_life steps N end HOW    N steps to replay, a part of one more, and the end
//   process_life steps N end handler   so many that a signal ends it, whose handler calls exit(0)
//   process_life steps N fork HOW   the same; children that end by HOW are forked in the middle of the last steps
//
// HOW is return, exit, _exit, _Exit, quick_exit, system (the system call), or for children: vfork, raw.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "tests/integration/programs/common/workload.h"
#include "tests/integration/programs/libraries/life_library.h"

namespace {

using LaunchKernel = decltype(&::cuLaunchKernel);

void leave(const std::string& how, int status) {
  if (how != "return") std::fflush(stdout);
  if (how == "exit" || how == "raw") std::exit(status);
  if (how == "_exit" || how == "vfork") _exit(status);
  if (how == "_Exit") std::_Exit(status);
  if (how == "quick_exit") std::quick_exit(status);
  if (how == "system") syscall(SYS_exit_group, status);
}

// A child that ends at once, in the way that is asked for. Waits for it, and checks that it did.
void child(const std::string& how) {
  constexpr int kStatus = 7;
  pid_t pid = 0;
  std::fflush(stdout);
  if (how == "vfork") {
    pid = vfork();
    if (pid == 0) _exit(kStatus);
  } else {
    // The raw call runs none of the handlers that were registered for forks.
    pid = how == "raw" ? static_cast<pid_t>(syscall(SYS_fork)) : fork();
    if (pid == 0) leave(how, kStatus);
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != kStatus) {
    std::printf("child: status %d\n", status);
    std::_Exit(1);
  }
}

CUstream new_stream() {
  CUstream stream = nullptr;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

// Each thread has a buffer and a stream of its own, and launches `launches` times; `between` is called after each.
template <class Between>
std::vector<std::thread> launching_threads(const Driver& driver, const Work& work, int count, int launches,
                                           Between between) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([=, &driver] {
      CUcontext context = nullptr;
      CHECK(cuDevicePrimaryCtxRetain(&context, 0));
      CHECK(cuCtxSetCurrent(context));
      Work own = work;
      const CUstream stream = new_stream();
      for (int n = 0; n < launches; ++n) {
        launch_work(driver, own, 1, stream);
        between(n);
      }
    });
  }
  return threads;
}

int run_fork(const std::string& how) {
  const Driver driver = linked_driver();
  Work work = start_work(driver);
  for (int i = 0; i < kWorkLaunches; ++i) {
    launch_work(driver, work, 1);
    if (i % 5 == 2) child(how);
  }
  std::printf("%u\n", finish_work(driver, work));
  return 0;
}

int run_fork_threads(const std::string& how) {
  const Driver driver = linked_driver();
  Work work = start_work(driver);
  const auto fork_some = [&how](int n) {
    if (n % 10 == 3) child(how);
  };
  for (std::thread& thread : launching_threads(driver, work, 4, 50, fork_some)) thread.join();
  std::printf("%d\n", finish_work(driver, work) != 0);
  return 0;
}

int run_fork_first(const std::string& how, bool looks) {
  if (looks) {
    void* found = nullptr;
    CHECK(cuGetProcAddress("cuLaunchKernel", &found, 12000, 0, nullptr));
  }
  for (int i = 0; i < 2; ++i) {
    std::fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
      std::printf("%u\n", run_workload(linked_driver()));
      leave(how, 0);
      std::exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    std::printf("child: %d\n", status);
  }
  return 0;
}

int run_exec(char** program) {
  const Driver driver = linked_driver();
  Work work = start_work(driver);
  launch_work(driver, work, 10);
  const pid_t pid = fork();
  if (pid == 0) {
    execv(program[0], program);
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  std::printf("child: %d\n", status);
  launch_work(driver, work, 10);
  std::printf("%u\n", finish_work(driver, work));
  return 0;
}

int run_threads() {
  const Driver driver = linked_driver();
  const Work work = start_work(driver);
  for (std::thread& thread : launching_threads(driver, work, 8, 100, [](int) {})) thread.join();
  std::printf("%d\n", finish_work(driver, work) != 0);
  return 0;
}

int run_end(const std::string& how) {
  std::printf("%u\n", run_workload(linked_driver()));
  leave(how, 5);
  return 5;
}

int run_end_thread(const std::string& how) {
  std::printf("%u\n", run_workload(linked_driver()));
  std::thread([&] { leave(how, 5); }).join();
  return 1;
}

int run_busy(const std::string& how) {
  const Driver driver = linked_driver();
  const Work work = start_work(driver);
  static std::atomic<int> launched{0};
  const auto threads = launching_threads(driver, work, 3, 1000000, [](int) { ++launched; });
  while (launched < 2000) std::this_thread::yield();
  std::printf("busy\n");
  leave(how, 5);
  std::exit(5);
}

void exit_on_signals() {
  for (const int number : {SIGTERM, SIGINT}) signal(number, [](int) { std::exit(0); });
}

int run_loop(bool handle) {
  if (handle) exit_on_signals();
  const Driver driver = linked_driver();
  Work work = start_work(driver);
  for (int i = 0;; ++i) {
    launch_work(driver, work, 1);
    if (i == 3000) {
      std::printf("ready\n");
      std::fflush(stdout);
    }
  }
}

struct Late {
  Driver driver = linked_driver();
  Work work;
};
Late* late = nullptr;

void launch_late(const char* where) {
  if (!late) return;
  launch_work(late->driver, late->work, 1);
  std::printf("%s: %u\n", where, finish_work(late->driver, late->work));
}

struct StaticObject {
  ~StaticObject() { launch_late("static destructor"); }
} static_object;

struct ThreadObject {
  ~ThreadObject() { launch_late("thread-local destructor"); }
};

__attribute__((destructor)) void program_destructor() { launch_late("the program's destructor"); }

int run_late() {
  static Late instance;
  late = &instance;
  late->work = start_work(late->driver);
  static thread_local ThreadObject thread_object;
  (void)&thread_object;
  std::atexit([] { launch_late("atexit"); });
  life_at_end([] {
    launch_late("a library's destructor");
    launch_late("a library's destructor");
  });
  launch_late("main");
  return 0;
}

LaunchKernel looked_up_first = nullptr;

void before_constructors(int, char**, char**) {
  looked_up_first = reinterpret_cast<LaunchKernel>(dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
}
__attribute__((section(".preinit_array"), used)) void (*const preinit)(int, char**, char**) = before_constructors;

int run_preinit() {
  Driver driver = linked_driver();
  driver.launch_kernel = looked_up_first;
  std::printf("%u\n", run_workload(driver));
  return 0;
}

int run_dlclose(const char* library) {
  for (int i = 0; i < 2; ++i) {
    void* const plugin = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    std::printf("%u\n", reinterpret_cast<unsigned (*)(const char*)>(dlsym(plugin, "plugin_run"))("linked"));
    std::printf("closed: %d\n", dlclose(plugin));
  }
  return 0;
}

int run_steps(int steps, bool forks, const std::string& how) {
  static Late instance;  // not `late`: launches of the destructors above would end the step
  Work& work = instance.work;
  const Driver& driver = instance.driver;
  work = start_work(driver);
  const CUstream stream = new_stream();
  unsigned* result = nullptr;
  CHECK(cuMemAllocHost(reinterpret_cast<void**>(&result), kWorkCount * sizeof(unsigned)));
  unsigned sum = 0;
  if (how == "handler") exit_on_signals();
  for (int i = 0; i < steps; ++i) {
    if (how == "handler" && i == 100) {
      std::printf("ready\n");
      std::fflush(stdout);
    }
    CHECK(cuMemsetD32Async(work.change, 3, kWorkCount, stream));
    launch_work(driver, work, 4, stream);
    if (forks && i > steps - 5) child(how);
    launch_work(driver, work, 4, stream);
    CHECK(cuMemcpyDtoHAsync(result, work.state, kWorkCount * sizeof(unsigned), stream));
    CHECK(cuStreamSynchronize(stream));
    sum += result[0];
  }
  std::printf("%u\n", sum);
  CHECK(cuMemsetD32Async(work.change, 3, kWorkCount, stream));
  launch_work(driver, work, 2, stream);
  life_at_end([] { std::printf("at the end: %u\n", finish_work(instance.driver, instance.work)); });
  if (!forks) leave(how, 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto word = [&](int i) { return std::string(i < argc ? argv[i] : ""); };
  const std::string what = word(1);
  if (what == "fork") return run_fork(word(2));
  if (what == "fork_threads") return run_fork_threads(word(2));
  if (what == "fork_first" || what == "fork_looked") return run_fork_first(word(2), what == "fork_looked");
  if (what == "exec") return run_exec(argv + 2);
  if (what == "threads") return run_threads();
  if (what == "end") return run_end(word(2));
  if (what == "end_thread") return run_end_thread(word(2));
  if (what == "busy") return run_busy(word(2));
  if (what == "loop") return run_loop(word(2) == "exit");
  if (what == "late") return run_late();
  if (what == "preinit") return run_preinit();
  if (what == "dlclose") return run_dlclose(argv[2]);
  if (what == "steps") return run_steps(std::stoi(word(2)), word(3) == "fork", word(4));
  // Nothing, but for what the library did before.
  std::printf("%d\n", life_early_launches());
  return what == "nothing" ? 0 : 2;
}
