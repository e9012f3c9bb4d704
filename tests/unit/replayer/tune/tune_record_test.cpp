// What of a schedule's file is another afterwards, and which files are left alone.
#include "replayer/tune/tune_record.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "replayer/schedule/schedule_reader.h"
#include "replayer/tune/tuner.h"

namespace nimble {
namespace {

constexpr auto kGraphs = static_cast<std::uint32_t>(Way::schedule), kOwn = static_cast<std::uint32_t>(Way::own);

// Keys in an order that no map would keep.
constexpr const char* kSchedule =
    R"({"nimble_schedule":6,"policy":"nimble","trace_digest":"00","streams":[{"kind":"blocking","forked":false}],)"
    R"("functions":[],"objects":[],"ops":[{"kind":"host_function","submit":"direct","segment":null,"lane":0}],)"
    R"("segments":[],"arena_bytes":0)";

class TuneRecordTest : public testing::Test {
 protected:
  TuneRecordTest() {
    std::filesystem::create_directory(folder_);
    write(std::string(kSchedule) + "}\n");
  }
  ~TuneRecordTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& text) const { std::ofstream(path_) << text; }
  std::string read() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()));
  }

  // Into the file as it is now.
  std::string save(const std::vector<ScheduleChoice>& choices) const {
    return save_choices(path_, what_is_at(path_), choices);
  }

  const std::string folder_ = testing::TempDir() + "tune_record." + std::to_string(getpid());
  const std::string path_ = folder_ + "/schedule.json";
};

TEST_F(TuneRecordTest, ARunReadsWhatOneHasKept) {
  ASSERT_EQ(save({{kGraphs, {12.5, -1, 0.25}}, {}, {kOwn, {3, 4, 5}}}), "");
  const Schedule schedule = read_schedule(path_);
  ASSERT_EQ(schedule.tuned.size(), 3u);
  EXPECT_EQ(schedule.tuned[0].way, kGraphs);
  EXPECT_EQ(schedule.tuned[0].us[0], 12.5);
  EXPECT_LT(schedule.tuned[0].us[1], 0) << "not timed";
  EXPECT_EQ(schedule.tuned[0].us[2], 0.25);
  EXPECT_EQ(schedule.tuned[1].way, kNone);
  EXPECT_EQ(schedule.tuned[2].way, kOwn);
}

TEST_F(TuneRecordTest, AllElseStaysAsItWas) {
  ASSERT_EQ(save({{kGraphs, {1, 2, 3}}}), "");
  EXPECT_EQ(read(), std::string(kSchedule) + R"(,"tuned":[["schedule",[1000,2000,3000]]]})" + "\n");
  ASSERT_EQ(save({{}}), "");
  EXPECT_EQ(read(), std::string(kSchedule) + R"(,"tuned":[null]})" + "\n") << "the last run's alone";
  EXPECT_EQ(files(), 1u);
}

TEST_F(TuneRecordTest, TheFileKeepsItsMode) {
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  ASSERT_EQ(save({{kGraphs, {1, 2, 3}}}), "");
  struct stat found;
  ASSERT_EQ(stat(path_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0640u);
}

TEST_F(TuneRecordTest, WhatIsNoScheduleAnyMoreIsLeftAlone) {
  for (const auto& [text, why] : {std::pair("", "was not written by Nimble"),
                                  {"[1]", "was not written by Nimble"},
                                  {"{\"nimble_schedule\":6,", "can no longer be read"},
                                  {"5", "was not written by Nimble"}}) {
    write(text);
    EXPECT_EQ(save({{}}), why) << text;
    EXPECT_EQ(read(), text);
  }
  write("{\"mine\":1}");
  EXPECT_NE(save({{}}), "");
  EXPECT_EQ(read(), "{\"mine\":1}");
  std::filesystem::remove(path_);
  EXPECT_EQ(save({{}}), "has changed since it was read");
  EXPECT_EQ(files(), 0u);
}

TEST_F(TuneRecordTest, SoIsOneThatHasTakenThePlaceOfWhatWasRead) {
  const FileFacts before = what_is_at(path_);
  write(std::string(kSchedule) + ",\"tuned\":[]}\n");
  EXPECT_EQ(save_choices(path_, before, {{}}), "has changed since it was read");
  EXPECT_EQ(read(), std::string(kSchedule) + ",\"tuned\":[]}\n");
}

TEST_F(TuneRecordTest, NothingIsReadFromWhatIsNoFile) {
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(save({{}}), "is not a file");
}

TEST_F(TuneRecordTest, ALinkIsLeftAlone) {
  const std::string real = folder_ + "/real.json";
  std::filesystem::rename(path_, real);
  std::filesystem::create_symlink(real, path_);
  const std::string before = read();
  EXPECT_NE(save({{}}), "");
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(read(), before);
  EXPECT_EQ(files(), 2u);
}

}  // namespace
}  // namespace nimble
