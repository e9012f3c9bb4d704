// Who waits for whom: the program's threads that push, the writer, and those who look at what was written.
#include "shim/record/trace/record_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <string>
#include <thread>

namespace nimble::shim {
namespace {

class RecordQueueTest : public testing::Test {
 protected:
  ~RecordQueueTest() override { std::filesystem::remove(path_); }

  QueueOptions options() const {
    QueueOptions options;
    options.path = path_;
    options.is_read = true;
    return options;
  }
  static void push(
      RecordQueue& queue, const std::function<void()>& inside = [] {}) {
    Call call;
    call.kind = CallKind::context_synchronize;
    call.symbol = "cuCtxSynchronize";
    RecordFacts facts;
    queue.push(facts, call, [&](Record&) { inside(); });
  }
  // Whether it is done while others go on.
  static bool is_soon(std::future<void>& done) {
    return done.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  }

  const std::string path_ = testing::TempDir() + "record_queue." + std::to_string(getpid()) + ".json";
};

TEST_F(RecordQueueTest, WhoLooksAtWhatIsWrittenDoesNotMeetWhoPushes) {
  RecordQueue queue(options());
  push(queue);
  std::future<void> looks;
  push(queue, [&] {
    looks = std::async(std::launch::async, [&] {
      queue.hurry();
      std::uint64_t bytes = 0;
      GrowingFile* const file = queue.reading(bytes);
      EXPECT_TRUE(file && file->open());
      queue.stop({"enough was seen", true});
    });
    EXPECT_TRUE(is_soon(looks));
  });
  looks.wait();
  EXPECT_TRUE(queue.is_over());
  queue.join();
  std::ifstream file(path_);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find("enough was seen"), std::string::npos) << text;
}

TEST_F(RecordQueueTest, WhatIsWrittenCanBeReadMeanwhile) {
  RecordQueue queue(options());
  std::uint64_t bytes = 0;
  EXPECT_EQ(queue.reading(bytes), nullptr);
  for (std::uint64_t i = 1; i < 20; ++i) {
    push(queue);
    queue.hurry();
    while (queue.written() < i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    GrowingFile* const file = queue.reading(bytes);
    ASSERT_TRUE(file && file->open());
    std::string text(bytes, ' ');
    ASSERT_EQ(file->read(text.data(), bytes, 0), bytes);
    EXPECT_EQ(text.substr(bytes - 2), ",\n");
  }
  queue.join();
}

// The file is a pipe without a reader: it takes its beginning, and then nothing more.
TEST_F(RecordQueueTest, IfItEndsEarlyTheFileIsNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  const int reader = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const int filler = ::open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_TRUE(reader >= 0 && filler >= 0);
  std::atomic<bool> is_full{false};
  QueueOptions ending = options();
  ending.stops = [&] {
    while (::write(filler, "x", 1) == 1) {
    }
    is_full = true;
  };
  RecordQueue queue(ending);
  push(queue);
  while (queue.written() < 1) {  // a pipe is opened in the program's own calls
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    push(queue);
  }
  EXPECT_TRUE(queue.stop({"enough was seen", true}));
  while (!is_full) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the writer is in the pipe
  std::future<void> goes_on = std::async(std::launch::async, [&] {
    push(queue);
    queue.set_coverage({});
  });
  EXPECT_TRUE(is_soon(goes_on));
  ::fcntl(reader, F_SETFL, 0);
  std::thread reads([&] {
    char text[4096];
    while (::read(reader, text, sizeof text) > 0) {
    }
  });
  ::close(filler);
  queue.join();
  reads.join();
  ::close(reader);
}

}  // namespace
}  // namespace nimble::shim
