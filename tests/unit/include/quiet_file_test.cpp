#include "nimble/internal/process/quiet_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace nimble {
namespace {

class QuietFileTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override {
    for (const char* name : {"file", "other", "gone"}) ::unlink(path(name).c_str());
    ::rmdir(folder_.c_str());
  }
  std::string path(const char* name) const { return folder_ + "/" + name; }
  std::string text_of(const char* name) const {
    std::string text;
    EXPECT_EQ(read_quiet(path(name).c_str(), 1 << 20, text), 0);
    return text;
  }

 private:
  std::string folder_ = testing::TempDir() + "quiet_file_XXXXXX";
};

// How a process of its own ends: its exit status, or 128 and the signal.
int in_child(const std::function<int()>& run) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool is_pending(int signal) {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, signal) == 1;
}

void limit(__rlimit_resource what, rlim_t value) {
  rlimit now{};
  getrlimit(what, &now);
  now.rlim_cur = value;
  setrlimit(what, &now);
}

int dead_pipe() {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  ::close(ends[0]);
  return ends[1];
}

TEST_F(QuietFileTest, NumbersAreHighAndCloseOnExec) {
  const int low = ::open("/dev/null", O_RDONLY);
  ::close(low);
  const int file = open_quiet(path("file").c_str(), O_WRONLY | O_CREAT);
  ASSERT_GT(file, 100);
  EXPECT_TRUE(::fcntl(file, F_GETFD) & FD_CLOEXEC);
  const int next = ::open("/dev/null", O_RDONLY);
  EXPECT_EQ(next, low);
  ::close(next);
  ::close(file);
}

TEST_F(QuietFileTest, FilesAreTheirOwnersAlone) {
  ::close(open_quiet(path("file").c_str(), O_WRONLY | O_CREAT));
  struct stat facts {};
  ASSERT_EQ(::stat(path("file").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600U);
}

TEST_F(QuietFileTest, NeverZeroToTwo) {
  EXPECT_EQ(in_child([] {
              for (int file = 0; file < 3; ++file) ::close(file);
              if (open_quiet("/dev/null", O_RDONLY) < 3) return 1;
              for (int file = 0; file < 3; ++file)
                if (::fcntl(file, F_GETFD) >= 0) return 2;
              return 0;
            }),
            0);
}

TEST_F(QuietFileTest, SmallLimits) {
  for (const rlim_t most : {3, 4, 5, 8, 17, 64}) {
    EXPECT_EQ(in_child([&] {
                for (int file = 3; file < 256; ++file) ::close(file);
                ::close(1);
                limit(RLIMIT_NOFILE, most);
                const int file = open_quiet("/dev/null", O_RDONLY);
                if (most == 3) return file == -1 && ::fcntl(1, F_GETFD) < 0 ? 0 : 1;
                return file > 2 && file >= static_cast<int>(most / 16 * 15) ? 0 : 2;
              }),
              0)
        << most;
  }
}

TEST_F(QuietFileTest, NoHighOneLeft) {
  EXPECT_EQ(in_child([] {
              limit(RLIMIT_NOFILE, 32);
              int free_one = -1;
              while (const int file = ::open("/dev/null", O_RDONLY)) {
                if (file < 0) break;
                free_one = file;
              }
              ::close(10);
              const int file = open_quiet("/dev/null", O_RDONLY);
              return free_one == 31 && file == 10 && (::fcntl(file, F_GETFD) & FD_CLOEXEC) ? 0 : 1;
            }),
            0);
}

TEST_F(QuietFileTest, ADeadPipeRaisesNothing) {
  EXPECT_EQ(in_child([] { return write_quiet(dead_pipe(), "x", 1) == EPIPE && !is_pending(SIGPIPE) ? 0 : 1; }), 0);
  EXPECT_EQ(in_child([] { return static_cast<int>(::write(dead_pipe(), "x", 1)); }), 128 + SIGPIPE);  // it can fail
}

TEST_F(QuietFileTest, AFileBeyondTheLimitRaisesNothing) {
  const auto beyond = [&](bool quiet) {
    return in_child([&] {
      limit(RLIMIT_FSIZE, 4);
      const int file = open_quiet(path("file").c_str(), O_WRONLY | O_CREAT | O_TRUNC);
      if (!quiet) return static_cast<int>(::write(file, "12345", 5) + ::write(file, "12345", 5));
      return write_quiet(file, "12345", 5) == EFBIG && !is_pending(SIGXFSZ) ? 0 : 1;
    });
  };
  EXPECT_EQ(beyond(true), 0);
  EXPECT_EQ(text_of("file"), "1234");
  EXPECT_EQ(beyond(false), 128 + SIGXFSZ);
}

TEST_F(QuietFileTest, WhatWasPendingStays) {
  EXPECT_EQ(in_child([] {
              sigset_t set;
              sigemptyset(&set);
              sigaddset(&set, SIGPIPE);
              sigprocmask(SIG_BLOCK, &set, nullptr);
              ::raise(SIGPIPE);
              write_quiet(dead_pipe(), "x", 1);
              return is_pending(SIGPIPE) ? 0 : 1;
            }),
            0);
}

TEST_F(QuietFileTest, SignalsFromOthersStay) {
  EXPECT_EQ(in_child([] {
              sigset_t set;
              sigemptyset(&set);
              sigaddset(&set, SIGPIPE);
              sigprocmask(SIG_BLOCK, &set, nullptr);
              {
                const QuietSignals quiet;
                const pid_t self = ::getpid(), sender = ::fork();
                if (sender == 0) ::_exit(::kill(self, SIGPIPE));
                ::waitpid(sender, nullptr, 0);
              }
              return is_pending(SIGPIPE) ? 0 : 1;
            }),
            0);
}

// A thread other than the first, in a child that has both signals blocked.
int on_a_second_thread(const std::function<bool()>& run) {
  return in_child([&] {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    bool good = false;
    std::thread([&] { good = run(); }).join();
    return good ? 0 : 1;
  });
}

// How many SIGPIPE the calling thread can take.
int taken() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  const timespec now{};
  int count = 0;
  while (sigtimedwait(&set, nullptr, &now) == SIGPIPE) ++count;
  return count;
}

void send_from_a_child() {
  const pid_t self = ::getpid(), sender = ::fork();
  if (sender == 0) ::_exit(::kill(self, SIGPIPE));
  ::waitpid(sender, nullptr, 0);
}

TEST_F(QuietFileTest, SignalsToTheProcessStayOnEachThread) {
  const std::function<void()> senders[] = {send_from_a_child, [] { ::kill(::getpid(), SIGPIPE); },
                                           [] { ::raise(SIGPIPE); }};
  for (const auto& send : senders) {
    EXPECT_EQ(on_a_second_thread([&] {
                {
                  const QuietSignals quiet;
                  send();
                }
                return taken() == 1;
              }),
              0);
  }
}

TEST_F(QuietFileTest, OurOwnSignalIsToldFromOthers) {
  const std::function<void()> senders[] = {send_from_a_child, [] { ::kill(::getpid(), SIGPIPE); },
                                           [] { ::raise(SIGPIPE); }};
  for (const auto& send : senders) {
    EXPECT_EQ(on_a_second_thread([&] {  // pending before
                send();
                return write_quiet(dead_pipe(), "x", 1) == EPIPE && taken() == 1;
              }),
              0);
    EXPECT_EQ(on_a_second_thread([&] {  // while it is written
                {
                  QuietSignals quiet;
                  send();
                  if (::write(dead_pipe(), "x", 1) < 0) quiet.failed(errno);
                }
                return taken() == 1;
              }),
              0);
  }
}

TEST_F(QuietFileTest, TheMaskComesBack) {
  sigset_t before, after;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  write_quiet(-1, "x", 1);
  pthread_sigmask(SIG_BLOCK, nullptr, &after);
  for (int signal = 1; signal < 32; ++signal) EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal));
}

TEST_F(QuietFileTest, ANumberThatTheProgramHasClosedIsLeftAlone) {
  QuietFile file;
  ASSERT_EQ(file.open(path("gone").c_str(), O_WRONLY | O_CREAT), 0);
  EXPECT_EQ(file.write("ours", 4), 0);
  const int number = file.number();
  // The program closes what it does not know, and opens a file of its own that gets the number, perhaps the inode too.
  ::close(number);
  ::unlink(path("gone").c_str());
  ::usleep(20'000);  // births are told in ticks of the kernel's
  const int other = ::open(path("other").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(::dup2(other, number), number);
  EXPECT_EQ(file.write("ours", 4), EBADF);
  EXPECT_EQ(file.close(), 0);
  EXPECT_EQ(text_of("other"), "");
  EXPECT_GE(::fcntl(number, F_GETFD), 0);
  ::close(number);
  ::close(other);
}

TEST_F(QuietFileTest, OfTheProcessAndOfItsOwn) {
  std::string text;
  EXPECT_EQ(read_quiet("/proc/self/cmdline", 1 << 20, text), 0);
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(read_quiet(path("file").c_str(), 1 << 20, text), ENOENT);
  QuietFile file;
  ASSERT_EQ(file.open(path("file").c_str(), O_WRONLY | O_CREAT), 0);
  const std::string long_one(300000, 'x');
  ASSERT_EQ(file.write(long_one.data(), long_one.size()), 0);
  EXPECT_EQ(read_quiet(path("file").c_str(), 300000, text), 0);
  EXPECT_EQ(text, long_one);
  EXPECT_EQ(read_quiet(path("file").c_str(), 299999, text), EFBIG);
  EXPECT_EQ(read_quiet(path("").c_str(), 1 << 20, text), EISDIR);
}

TEST_F(QuietFileTest, OfAPipe) {
  ASSERT_EQ(::mkfifo(path("file").c_str(), 0600), 0);
  EXPECT_EQ(text_of("file"), "");  // nothing is written to it
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(::write(ends[1], "text", 4), 4);
    ::close(ends[1]);
  });
  std::string text;
  EXPECT_EQ(read_quiet(("/dev/fd/" + std::to_string(ends[0])).c_str(), 1 << 20, text), 0);
  EXPECT_EQ(text, "text");
  writer.join();
  ::close(ends[0]);
}

}  // namespace
}  // namespace nimble
