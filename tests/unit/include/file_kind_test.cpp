#include "nimble/internal/files/file_kind.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace nimble {
namespace {

class FileKindTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override {
    ::unlink(path().c_str());
    ::rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/stats.json"; }
  void write(const std::string& text) const { std::ofstream(path()) << text; }
  std::string why_not() const {
    FileFacts found;
    const char* const why = why_not_replaced(path(), FileKind::counters, found);
    return why ? why : "";
  }
  // Whether another process finds it locked.
  bool is_locked() const {
    const pid_t child = ::fork();
    if (child == 0) {
      const int file = ::open(path().c_str(), O_RDWR);
      struct flock lock {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      ::_exit(file >= 0 && ::fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? 1 : 0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WEXITSTATUS(status) == 1;
  }

 private:
  std::string folder_ = testing::TempDir() + "file_kind_XXXXXX";
};

TEST_F(FileKindTest, OursAreReplacedAndOthersAreNot) {
  EXPECT_EQ(why_not(), "");
  write("{\"nimble_stats\":1}");
  EXPECT_EQ(why_not(), "");
  write("{\"mine\":1}");
  EXPECT_EQ(why_not(), "was not written by Nimble");
}

// The process's locks on a file end when any descriptor of it is closed.
TEST_F(FileKindTest, LocksOfTheProgramStay) {
  for (const char* const text : {"{\"mine\":1}", "{\"nimble_stats\":1}"}) {
    write(text);
    const int file = ::open(path().c_str(), O_RDWR);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    ASSERT_EQ(::fcntl(file, F_SETLK, &lock), 0);
    ASSERT_TRUE(is_locked());
    EXPECT_EQ(why_not(), "is open in this process");
    EXPECT_TRUE(is_locked());
    ::close(file);
  }
}

}  // namespace
}  // namespace nimble
