// Recognising our files by their beginning, which names are taken, and what happens to files in the way.
#include "nimble/internal/files/own_file.h"
#include "nimble/internal/files/file_facts.h"
#include "nimble/internal/files/file_kind.h"
#include "nimble/internal/files/growing_file.h"
#include "nimble/internal/files/part_file.h"
#include "nimble/internal/files/written_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace nimble {
namespace {

class OwnFileTest : public testing::Test {
 protected:
  OwnFileTest() { std::filesystem::create_directory(folder_); }
  ~OwnFileTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  static std::string read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()));
  }

  const std::string folder_ = testing::TempDir() + "own_file." + std::to_string(getpid());
};

constexpr const char* kOurs = "{\"nimble_schedule\":6,\n";

TEST(OwnFileMarks, TellWhoseAFileIs) {
  EXPECT_TRUE(has_mark("[\n{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"nimble.trace\",\"args\":{", FileKind::trace));
  EXPECT_TRUE(has_mark("[\n {\"ph\": \"M\",\n \"name\": \"nimble.trace\", ", FileKind::trace));
  EXPECT_FALSE(has_mark("[\n{\"ph\":\"M\",\"name\":\"x\"},{\"ph\":\"M\",\"name\":\"nimble.trace\"", FileKind::trace));
  EXPECT_FALSE(has_mark("[", FileKind::trace));
  EXPECT_FALSE(has_mark("", FileKind::trace));
  EXPECT_TRUE(has_mark(kOurs, FileKind::schedule));
  EXPECT_FALSE(has_mark("{\"nimble_schedules\":6}", FileKind::schedule));
  EXPECT_FALSE(has_mark(kOurs, FileKind::report));
  EXPECT_TRUE(has_mark("digraph step {\n  node [shape=box, fontsize=10];\n", FileKind::dot));
  EXPECT_FALSE(has_mark("digraph step {\n  a;\n", FileKind::dot));
  EXPECT_TRUE(has_mark("{\"nimble_code\": 1, ", FileKind::code_report));
  EXPECT_TRUE(has_mark("{\"nimble_kernels\":1,", FileKind::kernels_report));
}

TEST(OwnFileNames, StandBesideTheWantedOne) {
  EXPECT_EQ(name_in_place("a/t.json", 0), "a/t.json");
  EXPECT_EQ(name_in_place("a/t.json", 1), "a/t.nimble.json");
  EXPECT_EQ(name_in_place("a.b/t", 2), "a.b/t.nimble.2");
  EXPECT_EQ(name_in_place(".hidden", 1), ".hidden.nimble");
}

TEST_F(OwnFileTest, WritesReplacesItsOwnAndTakesAnotherName) {
  WrittenFile done = write_own_file(path("s.json"), kOurs, FileKind::schedule);
  EXPECT_EQ(done.path, path("s.json"));
  EXPECT_EQ(std::filesystem::status(done.path).permissions(), std::filesystem::perms(0600));
  done = write_own_file(path("s.json"), std::string(kOurs) + "2", FileKind::schedule);
  EXPECT_EQ(done.path, path("s.json")) << done.why_other;
  EXPECT_EQ(read(done.path), std::string(kOurs) + "2");
  write("s.json", "mine");
  done = write_own_file(path("s.json"), kOurs, FileKind::schedule, Taken::refuse);
  EXPECT_EQ(done.error, EEXIST);
  done = write_own_file(path("s.json"), kOurs, FileKind::schedule);
  EXPECT_EQ(done.path, path("s.nimble.json"));
  EXPECT_EQ(read(path("s.json")), "mine");
  EXPECT_EQ(files(), 2u) << "nothing else is left";
  done = write_own_file(path("s.json"), kOurs, FileKind::schedule, Taken::replace);
  EXPECT_EQ(read(path("s.json")), kOurs);
}

TEST_F(OwnFileTest, AFileFinishedAfterItsBeginningStays) {
  OwnFile file;
  ASSERT_EQ(file.open(path("s.json")), 0);
  ASSERT_EQ(file.write(kOurs, 3), 0);
  const timespec later[2] = {{time(nullptr) + 5, 0}, {time(nullptr) + 5, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, write("s.json", kOurs).c_str(), later, 0), 0);
  EXPECT_EQ(file.place(FileKind::schedule), 0);
  EXPECT_EQ(file.path(), path("s.nimble.json"));
  EXPECT_EQ(read(path("s.json")), kOurs);
}

TEST_F(OwnFileTest, TheFirstToBeginHasTheName) {
  OwnFile first, second;
  ASSERT_EQ(first.open(path("s.json")), 0);
  ASSERT_EQ(second.open(path("s.json")), 0);
  EXPECT_EQ(parts_of(path("s.json")).size(), 2u);
  EXPECT_TRUE(parts_of(path("s.json")).front().is_written());
  EXPECT_EQ(second.place(FileKind::schedule), 0);
  EXPECT_EQ(second.path(), path("s.nimble.json"));
  first.close();
  EXPECT_FALSE(parts_of(path("s.json")).front().is_written());
  EXPECT_TRUE(parts_of(path("other.json")).empty());
}

TEST_F(OwnFileTest, NamesThatAreTooLongForMore) {
  const std::string name = path(std::string(250, 'a') + ".json");
  OwnFile file;
  ASSERT_EQ(file.open(name), 0);
  EXPECT_EQ(file.place(FileKind::schedule), 0);
  EXPECT_EQ(file.path(), name);
  file.discard();
  EXPECT_TRUE(std::filesystem::exists(name)) << "it has its name";
}

TEST_F(OwnFileTest, AFileThatTheProgramHasClosedIsOpenedAgain) {
  OwnFile file;
  ASSERT_EQ(file.open(path("s.json")), 0);
  ASSERT_EQ(file.write(kOurs, 5), 0);
  ::close(file.number());
  ASSERT_EQ(file.write("more", 4), 0);
  EXPECT_EQ(read(file.location()), std::string(kOurs).substr(0, 5) + "more");
  // Not where another file has its name by now.
  ::close(file.number());
  const std::string part = file.location();
  std::filesystem::rename(part, path("moved"));
  std::ofstream(part) << "mine";
  EXPECT_EQ(file.write("more", 4), EBADF);
  EXPECT_EQ(read(part), "mine");
}

TEST_F(OwnFileTest, CanBeReadWhileItIsWritten) {
  OwnFile file;
  ASSERT_EQ(file.open(path("s.json")), 0);
  ASSERT_EQ(file.write(kOurs, 5), 0);
  GrowingFile reading = file.reading();
  ASSERT_TRUE(reading.open());
  char text[6] = {};
  EXPECT_EQ(reading.read(text, 6, 0), 5u);
  EXPECT_EQ(std::string(text), std::string(kOurs).substr(0, 5));
  EXPECT_EQ(file.write("more", 4), 0) << "reading moves no place";
  EXPECT_EQ(read(file.location()), std::string(kOurs).substr(0, 5) + "more");
  OwnFile device;
  ASSERT_EQ(device.open("/dev/null"), 0);
  EXPECT_FALSE(device.reading().is_file());
  EXPECT_FALSE(device.reading().open());
}

// As forked children may, which inherit what is open.
TEST_F(OwnFileTest, WhoReadsItStillKeepsNothingLocked) {
  OwnFile file;
  ASSERT_EQ(file.open(path("s.json")), 0);
  GrowingFile reading = file.reading();
  ASSERT_TRUE(reading.open());
  EXPECT_TRUE(parts_of(path("s.json")).front().is_written());
  file.close();
  EXPECT_FALSE(parts_of(path("s.json")).front().is_written());
}

TEST_F(OwnFileTest, IsReadOnAfterTheProgramHasClosedAll) {
  OwnFile file;
  ASSERT_EQ(file.open(path("s.json")), 0);
  ASSERT_EQ(file.write(kOurs, 5), 0);
  GrowingFile reading = file.reading();
  ASSERT_TRUE(reading.open());
  for (int number = file.number(), last = number + 16; number < last; ++number) ::close(number);
  char text[6] = {};
  EXPECT_EQ(reading.read(text, 5, 0), 0u);
  ASSERT_TRUE(reading.open());
  EXPECT_EQ(reading.read(text, 5, 0), 5u);
  // Not where another file has its name by now.
  reading.close();
  std::filesystem::rename(file.location(), path("moved"));
  std::ofstream(file.location()) << "mine";
  EXPECT_FALSE(reading.open());
}

TEST_F(OwnFileTest, WhatIsWrittenAfterItWasBegunStays) {
  write("s.json", kOurs);
  for (const std::string how : {"in place", "anew", "anew, with an older time"}) {
    OwnFile file;
    ASSERT_EQ(file.open(path("s.json")), 0);
    ASSERT_EQ(file.write(kOurs, std::strlen(kOurs)), 0);
    if (how != "in place") std::filesystem::remove(path("s.json"));
    write("s.json", kOurs + how);
    if (how.ends_with("time"))
      std::filesystem::last_write_time(path("s.json"),
                                       std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    EXPECT_EQ(file.place_at_wanted(FileKind::schedule), EEXIST);
    EXPECT_NE(file.why_other().find("meanwhile"), std::string::npos) << how << ": " << file.why_other();
    file.discard();
  }
}

TEST_F(OwnFileTest, ReplacesWhatIsThereAndKeepsItsMode) {
  const std::string name = write("s.json", kOurs);
  std::filesystem::permissions(name, std::filesystem::perms(0640));
  EXPECT_EQ(replace_own_file(name, std::string(kOurs) + "2", FileKind::schedule, what_is_at(name)), "");
  EXPECT_EQ(read(name), std::string(kOurs) + "2");
  EXPECT_EQ(std::filesystem::status(name).permissions(), std::filesystem::perms(0640));
  std::filesystem::create_symlink(name, path("link"));
  EXPECT_EQ(replace_own_file(path("link"), kOurs, FileKind::schedule, what_is_at(path("link"))), "is a link");
  write("s.json", "mine");
  EXPECT_EQ(replace_own_file(name, kOurs, FileKind::schedule, what_is_at(name)), "was not written by Nimble");
  const FileFacts read = what_is_at(name);
  write("s.json", std::string(kOurs) + "3");
  EXPECT_EQ(replace_own_file(name, kOurs, FileKind::schedule, read), "was changed meanwhile");
  std::filesystem::remove(name);
  EXPECT_EQ(replace_own_file(name, kOurs, FileKind::schedule, read), "no longer exists");
}

}  // namespace
}  // namespace nimble
