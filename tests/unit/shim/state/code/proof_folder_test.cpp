// The folder of proofs is the user's own, or there is none; what others do to it is no error.
#include "shim/state/code/proof_folder.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace nimble::shim {
namespace {

namespace fs = std::filesystem;

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "nimble_proofs_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    base_ = name;
    folder_ = name + "/nimble/proofs";
  }
  void TearDown() override {
    fs::permissions(base_, fs::perms::owner_all);
    fs::remove_all(base_);
  }

  ProofFolder files(std::uint64_t most_bytes = ProofFolder::kMostBytes) {
    return ProofFolder(
        folder_, [this](const std::string& text) { told_.push_back(text); }, most_bytes);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& each : fs::directory_iterator(folder_)) found.push_back(each.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
  void age(const std::string& name, int hours) const {
    fs::last_write_time(folder_ + "/" + name, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }

  std::string base_, folder_;
  std::vector<std::string> told_;
};

mode_t mode_of(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 ? facts.st_mode & 07777 : 0;
}

TEST_F(Folder, IsMadeForItsOwnerAlone) {
  ProofFolder one = files();
  EXPECT_FALSE(one.read("a"));
  EXPECT_FALSE(fs::exists(folder_)) << "nothing is made to be read";
  one.write("a", std::string("some\0thing", 10));
  EXPECT_EQ(mode_of(folder_), 0700u);
  EXPECT_EQ(mode_of(base_ + "/nimble"), 0700u);
  EXPECT_EQ(mode_of(folder_ + "/a.proof"), 0600u);
  EXPECT_EQ(names(), std::vector<std::string>{"a.proof"});
  ProofFolder other = files();
  EXPECT_EQ(other.read("a"), std::string("some\0thing", 10));
  other.write("a", "else");
  EXPECT_EQ(one.read("a"), "else");
  EXPECT_TRUE(told_.empty());
}

TEST_F(Folder, ThatOthersMayWriteToIsNotUsed) {
  files().write("a", "it");
  for (const mode_t mode : {0770, 0707, 0777}) {
    ASSERT_EQ(::chmod(folder_.c_str(), mode), 0);
    told_.clear();
    ProofFolder one = files();
    EXPECT_FALSE(one.read("a"));
    one.write("b", "it");
    EXPECT_FALSE(fs::exists(folder_ + "/b.proof"));
    EXPECT_EQ(told_.size(), 1u) << "once";
  }
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  EXPECT_EQ(files().read("a"), "it") << "others may look";
}

TEST_F(Folder, OfAnotherUserIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a folder away";
  files().write("a", "it");
  ASSERT_EQ(::chown((folder_ + "/a.proof").c_str(), 65534, 65534), 0);
  EXPECT_FALSE(files().read("a")) << "nor is a file";
  ASSERT_EQ(::chown(folder_.c_str(), 65534, 65534), 0);
  ProofFolder one = files();
  one.write("b", "it");
  EXPECT_FALSE(fs::exists(folder_ + "/b.proof"));
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_NE(told_[0].find("belongs to another user"), std::string::npos);
}

TEST_F(Folder, FollowsNoLink) {
  files().write("a", "it");
  fs::create_symlink(folder_ + "/a.proof", folder_ + "/b.proof");
  EXPECT_FALSE(files().read("b"));
  ::mkfifo((folder_ + "/c.proof").c_str(), 0600);
  EXPECT_FALSE(files().read("c"));
  fs::create_directory(folder_ + "/d.proof");
  EXPECT_FALSE(files().read("d"));
  // A link is replaced, not written through.
  files().write("b", "other");
  EXPECT_EQ(files().read("a"), "it");
  EXPECT_EQ(files().read("b"), "other");
  fs::rename(folder_, base_ + "/elsewhere");
  fs::create_directory_symlink(base_ + "/elsewhere", folder_);
  EXPECT_FALSE(files().read("a"));
  files().write("e", "it");
  EXPECT_FALSE(fs::exists(base_ + "/elsewhere/e.proof"));
}

TEST_F(Folder, ThatCannotBeMadeIsNoError) {
  std::ofstream(base_ + "/nimble") << "a file";
  ProofFolder one = files();
  one.write("a", "it");
  one.write("b", "it");
  EXPECT_FALSE(one.read("a"));
  EXPECT_EQ(told_.size(), 1u);
}

TEST_F(Folder, WithoutRoomIsNoError) {
  // In a child: the limit on a file's size stands for a full disk.
  const pid_t child = fork();
  if (child == 0) {
    ProofFolder one = files();
    one.write("a", "it");
    rlimit limit{8, 8};
    setrlimit(RLIMIT_FSIZE, &limit);
    errno = 77;
    one.write("b", std::string(100, 'x'));
    const bool is_good = errno == 77 && one.read("b") == std::nullopt && told_.size() == 1;
    _exit(is_good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(names(), std::vector<std::string>{"a.proof"}) << "nothing half written is left";
}

TEST_F(Folder, KeepsWhatWasUsedLast) {
  const std::string kilobyte(1024, 'x');
  {
    ProofFolder one = files(8 * 1024);
    for (int i = 0; i < 9; ++i) one.write("k" + std::to_string(i), kilobyte);
  }
  for (int i = 0; i < 9; ++i) age("k" + std::to_string(i) + ".proof", 100 - i);
  std::ofstream(folder_ + "/notes.txt") << kilobyte;
  std::ofstream(folder_ + "/old.1.1.1.part") << kilobyte;
  std::ofstream(folder_ + "/new.1.1.1.part") << kilobyte;
  age("old.1.1.1.part", 5);
  age("notes.txt", 500);
  EXPECT_EQ(files().read("k0"), kilobyte);  // used now
  files(8 * 1024).write("new", kilobyte);
  EXPECT_EQ(names(), (std::vector<std::string>{"k0.proof", "k4.proof", "k5.proof", "k6.proof", "k7.proof", "k8.proof",
                                               "new.1.1.1.part", "new.proof", "notes.txt"}));
}

TEST_F(Folder, ManyProcessesAtOnceSeeWholeFiles) {
  constexpr int kProcesses = 20, kRounds = 200;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = fork();
    if (child == 0) {
      ProofFolder one = files(64 * 1024);
      bool is_good = true;
      for (int i = 0; i < kRounds; ++i) {
        const std::string name = std::to_string(i % 7);
        const auto found = one.read(name);
        is_good &= !found || *found == std::string(4096, found->front());
        one.write(name, std::string(4096, static_cast<char>('a' + process)));
      }
      _exit(is_good && told_.empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(names().size(), 7u);
}

// --- Where it is.

class Place : public Folder {
 protected:
  void SetUp() override {
    Folder::SetUp();
    for (const char* name : {"HOME", "XDG_CACHE_HOME"}) {
      const char* const value = std::getenv(name);
      before_.emplace_back(name, value ? std::optional<std::string>(value) : std::nullopt);
    }
    setenv("HOME", base_.c_str(), 1);
    unsetenv("XDG_CACHE_HOME");
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) value ? setenv(name, value->c_str(), 1) : unsetenv(name);
    Folder::TearDown();
  }
  std::string place(const std::string& option = "") {
    why_.clear();
    return folder_of_proofs(option, why_);
  }

  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
  std::string why_;
};

TEST_F(Place, IsTheUsersCacheFolder) {
  EXPECT_EQ(place(), base_ + "/.cache/nimble/proofs");
  setenv("XDG_CACHE_HOME", (base_ + "/").c_str(), 1);
  EXPECT_EQ(fs::path(place()).lexically_normal(), fs::path(base_ + "/nimble/proofs"));
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(place(), base_ + "/.cache/nimble/proofs");
  EXPECT_EQ(place("/else/where"), "/else/where");
  EXPECT_EQ(place("none"), "");
  EXPECT_EQ(why_, "");
}

TEST_F(Place, IsNotInAHomeThatIsMissingOrAnothers) {
  unsetenv("HOME");
  EXPECT_EQ(place(), "");
  EXPECT_NE(why_, "");
  setenv("HOME", (base_ + "/missing").c_str(), 1);
  EXPECT_EQ(place(), "");
  EXPECT_NE(why_, "");
  if (geteuid() != 0) return;
  setenv("HOME", base_.c_str(), 1);
  ASSERT_EQ(::chown(base_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(place(), "");
  EXPECT_NE(why_.find("another user"), std::string::npos);
}

TEST_F(Place, IsNotInProgramsWithAnotherUsersRights) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  const pid_t child = fork();
  if (child == 0) {
    const bool is_other = ::setresuid(65534, 0, 0) == 0;
    _exit(is_other && place().empty() && !why_.empty() && place("/else/where").empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace nimble::shim
