// Where lines go, and where none does. Each test is a process of its own, in which nothing was said before: this
// program says nothing itself, nor has it what would begin a session.
#include "shim/process/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

namespace nimble::shim {
namespace {

// Checks that fail there fail here.
void in_child(const std::function<void()>& run) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // for one that waits for good
    run();
    std::fflush(stdout);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "a process of its own";
}

class LogTest : public testing::Test {
 protected:
  LogTest() {
    std::filesystem::create_directories(folder_ + "/later");
    for (const char* const name : {"NIMBLE_LOG", "NIMBLE_LOG_FILE"}) ::unsetenv(name);
    for (const char* const name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
      ::unsetenv(name);  // by which the file would have another name
  }
  ~LogTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  int open(const std::string& name) const { return ::open(path(name).c_str(), O_RDWR | O_CREAT | O_APPEND, 0600); }
  // A process begins, whose stderr that is.
  static void begin_with(int file) {
    ASSERT_EQ(::dup2(file, STDERR_FILENO), STDERR_FILENO);
    ::close(file);
    remember_stderr();
  }
  void begin(const std::string& name = "stderr") const {
    ASSERT_EQ(::chdir(folder_.c_str()), 0);
    begin_with(open(name));
  }
  static std::string read_what_is_there(int file) {
    std::string text;
    pollfd in{file, POLLIN, 0};
    char buffer[4096];
    while (::poll(&in, 1, 0) == 1 && (in.revents & POLLIN)) {
      const ssize_t got = ::read(file, buffer, sizeof buffer);
      if (got <= 0) break;
      text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
  }
  static void say_all() {
    log(LogLevel::error, "one");
    log(LogLevel::warning, "two");
    log(LogLevel::info, "three {} %s");
  }

  const std::string folder_ = testing::TempDir() + "log." + std::to_string(::getpid());
};

constexpr const char* kAll = "nimble: error: one\nnimble: warning: two\nnimble: info: three {} %s\n";

TEST_F(LogTest, LinesGoToStderr) {
  in_child([&] {
    begin();
    say_all();
    EXPECT_EQ(read("stderr"), kAll);
  });
}

TEST_F(LogTest, AsMuchIsSaidAsTheUserWants) {
  for (const auto& [level, said] : std::vector<std::pair<std::string, std::string>>{
           {"off", ""},
           {"error", "nimble: error: one\n"},
           {"warn", "nimble: error: one\nnimble: warning: two\n"},
           {"info", kAll},
           {"loud",
            "nimble: warning: NIMBLE_LOG=loud is not one of off, error, warn, info: using info\n" + std::string(kAll)}})
    in_child([&, level = level, said = said] {
      ::setenv("NIMBLE_LOG", level.c_str(), 1);
      begin(level);
      say_all();
      EXPECT_EQ(read(level), said);
    });
}

// prog > file 2> file: two descriptors, each with a position.
TEST_F(LogTest, LinesInAFileOverwriteNothing) {
  in_child([&] {
    const int output = ::open(path("both").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    begin_with(::open(path("both").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    EXPECT_EQ(::write(output, "row 1\n", 6), 6);
    log(LogLevel::error, "one");
    EXPECT_EQ(read("both"), "row 1\nnimble: error: one\n");
    EXPECT_EQ(::lseek(STDERR_FILENO, 0, SEEK_CUR), 0);  // where it is without us
  });
}

TEST_F(LogTest, InAFileTheProgramsNextLineFollowsOurs) {
  in_child([&] {
    begin_with(::open(path("stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    EXPECT_EQ(::write(STDERR_FILENO, "begun\n", 6), 6);
    log(LogLevel::error, "one");
    EXPECT_EQ(::write(STDERR_FILENO, "done\n", 5), 5);
    EXPECT_EQ(read("stderr"), "begun\nnimble: error: one\ndone\n");
  });
}

TEST_F(LogTest, AFileThatGotTheNumberOfStderrIsNoPlaceForLines) {
  in_child([&] {
    begin();
    const int before = ::dup(STDERR_FILENO);
    ::close(STDERR_FILENO);
    say_all();
    EXPECT_EQ(open("theirs"), STDERR_FILENO);
    say_all();
    EXPECT_EQ(read("theirs"), "");
    EXPECT_EQ(read("stderr"), "");
    ::dup2(before, STDERR_FILENO);  // it is what it was
    say_all();
    EXPECT_EQ(read("stderr"), kAll);
  });
}

TEST_F(LogTest, WhoBeganWithoutStderrHasNone) {
  in_child([&] {
    ::close(STDERR_FILENO);
    remember_stderr();
    EXPECT_EQ(open("theirs"), STDERR_FILENO);
    say_all();
    EXPECT_EQ(read("theirs"), "");
  });
}

TEST_F(LogTest, AFullPipeIsNotWaitedForForGood) {
  in_child([&] {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const int in = ends[0];
    begin_with(ends[1]);
    say_all();
    EXPECT_EQ(read_what_is_there(in), kAll);
    ::fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
    while (::write(STDERR_FILENO, "x", 1) == 1) {
    }
    ::fcntl(STDERR_FILENO, F_SETFL, 0);
    say_all();
    EXPECT_EQ(read_what_is_there(in).find_first_not_of('x'), std::string::npos) << "no part of a line";
    say_all();
    EXPECT_EQ(read_what_is_there(in), kAll) << "where there is room again";
  });
}

TEST_F(LogTest, AReaderThatHasGoneIsNoSignal) {
  in_child([&] {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    begin_with(ends[1]);
    ::close(ends[0]);
    say_all();
  });
  in_child([&] {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    begin_with(ends[1]);
    say_all();
    EXPECT_EQ(read_what_is_there(ends[0]), kAll);
    ::close(ends[0]);
    say_all();
  });
}

TEST_F(LogTest, AFileOfTheUsersIsInTheFolderWhereTheProcessBegan) {
  std::ofstream(path("said")) << "before\n";
  for (const char* const name : {"said", "new"})
    in_child([&] {
      ::setenv("NIMBLE_LOG_FILE", name, 1);
      begin();
      ASSERT_EQ(::chdir("later"), 0);
      EXPECT_FALSE(std::filesystem::exists(path("new"))) << "nothing was said yet";
      say_all();
      EXPECT_EQ(read("stderr"), "");
    });
  EXPECT_EQ(read("said"), std::string("before\n") + kAll);
  EXPECT_EQ(read("new"), kAll);
  struct stat found;
  ASSERT_EQ(::stat(path("new").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0600u);
  EXPECT_TRUE(std::filesystem::is_empty(path("later")));
}

TEST_F(LogTest, WhereItCannotBeOpenedStderrSaysSoOnce) {
  std::filesystem::create_symlink(path("elsewhere"), path("link"));
  const std::pair<std::string, std::string> cases[] = {{"link", "it is a link, and links are not followed"},
                                                       {"no/file", "No such file or directory"}};
  for (const auto& [name, why] : cases)
    in_child([&, name = name, why = why] {
      ::setenv("NIMBLE_LOG_FILE", path(name).c_str(), 1);
      ::unlink(path("stderr").c_str());
      begin();
      say_all();
      EXPECT_EQ(read("stderr"), "nimble: error: NIMBLE_LOG_FILE: cannot open " + path(name) + ": " + why +
                                    ". Messages go to stderr\n" + kAll);
    });
  EXPECT_FALSE(std::filesystem::exists(path("elsewhere")));
}

TEST_F(LogTest, WhatTheProgramClosesIsOpenedAgain) {
  in_child([&] {
    ::setenv("NIMBLE_LOG_FILE", "said", 1);
    begin();
    say_all();
    std::vector<int> all;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      all.push_back(std::stoi(entry.path().filename().string()));
    for (const int file : all) {
      struct stat facts, said;
      ASSERT_EQ(::stat(path("said").c_str(), &said), 0);
      if (::fstat(file, &facts) != 0 || facts.st_ino != said.st_ino || facts.st_dev != said.st_dev) continue;
      const int theirs = open("theirs");
      ASSERT_EQ(::dup2(theirs, file), file);  // who has closed it opens something else
    }
    ASSERT_TRUE(std::filesystem::exists(path("theirs")));
    say_all();
    EXPECT_EQ(read("said"), std::string(kAll) + kAll);
    EXPECT_EQ(read("theirs"), "");
  });
}

TEST_F(LogTest, AForkedChildHasAFileOfItsOwn) {
  in_child([&] {
    ::setenv("NIMBLE_LOG_FILE", "said-%p", 1);
    begin();
    log(LogLevel::info, "parent");
    const pid_t parent = ::getpid();
    in_child([&] {
      log(LogLevel::info, "child");
      EXPECT_EQ(read("said-" + std::to_string(::getpid())), "nimble: info: child\n");
    });
    EXPECT_EQ(read("said-" + std::to_string(parent)), "nimble: info: parent\n");
  });
}

}  // namespace
}  // namespace nimble::shim
