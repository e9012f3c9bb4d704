// Lines of the log in a process that shares its stderr with others. What stderr is, is known once for a process: so the
// lines are said in one that is started for that.
#include "shim/process/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

constexpr const char* kChild = "LOG_TEST_CHILD";
int g_filler = -1;  // another opening of stderr's pipe, which does not wait

}  // namespace

// In place of libc's in this program. As soon as the log has seen that there is room, there is none any more.
extern "C" int poll(pollfd* files, nfds_t count, int timeout) {
  const auto ready = static_cast<int>(::syscall(SYS_poll, files, count, timeout));
  if (g_filler >= 0 && ready > 0 && files->fd == STDERR_FILENO) {
    const std::string page(4096, 'x');
    while (::write(g_filler, page.data(), page.size()) > 0) {
    }
    while (::write(g_filler, "x", 1) > 0) {
    }
  }
  return ready;
}

namespace nimble::shim {
namespace {

// Starts this program again for one test, with a pipe as stderr. Its status; -1 where it did not end.
int run_again(const char* test, int error) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(error, STDERR_FILENO);
    ::setenv(kChild, "1", 1);
    ::setenv("NIMBLE_LOG", "info", 1);
    ::execl("/proc/self/exe", "test", (std::string("--gtest_filter=") + test).c_str(), nullptr);
    ::_exit(127);
  }
  for (int i = 0; i < 10'000; ++i) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return -1;
}

TEST(LogPipe, APipeThatOthersFillIsNotWaitedFor) {
  if (std::getenv(kChild)) {
    const std::string name = "/proc/self/fd/" + std::to_string(STDERR_FILENO);
    g_filler = ::open(name.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    log(LogLevel::info, "a line");
    log(LogLevel::info, "another");
    ::_exit(7);
  }
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const iovec nothing{ends, 1};
  if (::pwritev2(ends[1], &nothing, 1, -1, RWF_NOWAIT) != 1) GTEST_SKIP() << "this kernel cannot write without waiting";
  EXPECT_EQ(run_again("LogPipe.APipeThatOthersFillIsNotWaitedFor", ends[1]), 7);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(LogPipe, LongLinesComeWhole) {
  const std::string text(3 * 4096 + 17, 'y');
  if (std::getenv(kChild)) {
    log(LogLevel::info, text);
    ::_exit(7);
  }
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_EQ(run_again("LogPipe.LongLinesComeWhole", ends[1]), 7);
  std::string said(2 * text.size(), ' ');
  said.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(ends[0], said.data(), said.size()))));
  EXPECT_EQ(said, "nimble: info: " + text + "\n");
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace nimble::shim
