#include "shim/record/trace/stream_tracks.h"

#include <gtest/gtest.h>

#include <string>

namespace nimble::shim {
namespace {

class StreamTracksTest : public testing::Test {
 protected:
  static StreamTracks::Op op(std::uint64_t seq, std::uint32_t stream = 0) {
    return {seq, stream, kNone, "cuMemcpyAsync", CallKind::copy};
  }
  static std::string bar(const char* times, const char* args) {
    return std::string(R"({"ph":"X","pid":2,"tid":0,)") + times + R"(,"name":"cuMemcpyAsync","cat":"copy","args":{)" +
           args + "}},\n";
  }

  std::string out_;
  TraceDefinitions definitions_{out_};
  StreamTracks tracks_{definitions_, out_, 1000};
};

TEST_F(StreamTracksTest, TimesCountFromTheBeginning) {
  EXPECT_EQ(tracks_.microseconds(3500), 2.5);
  EXPECT_EQ(tracks_.microseconds(10), 0) << "before it";
}

TEST_F(StreamTracksTest, BarsOfTheHostsTimesDoNotOverlapOnOneTrack) {
  tracks_.add(op(1), 10, 5);
  tracks_.add(op(2), 12, 5);
  EXPECT_EQ(out_, bar(R"("ts":10.000,"dur":5.000)", R"("seq":1)") + bar(R"("ts":15.000,"dur":5.000)", R"("seq":2)"));
  out_.clear();
  tracks_.add(op(3, 1), 12, 5);
  EXPECT_NE(out_.find(R"("tid":1,"ts":12.000)"), std::string::npos) << out_;
}

TEST_F(StreamTracksTest, ATimeMayComeAfterItsOp) {
  EXPECT_FALSE(tracks_.await(7, op(1)));
  EXPECT_TRUE(out_.empty());
  tracks_.came({7, 2000, 4000}, true);
  EXPECT_EQ(out_, bar(R"("ts":1.000,"dur":2.000)", R"("seq":1,"device":true)"));
  tracks_.came({7, 2000, 4000}, true);
  EXPECT_EQ(out_.find('\n'), out_.size() - 1) << "it has its bar";
}

TEST_F(StreamTracksTest, OrBeforeIt) {
  tracks_.came({7, 2000, 4000}, true);
  EXPECT_TRUE(out_.empty());
  const auto early = tracks_.await(7, op(1));
  ASSERT_TRUE(early);
  tracks_.came(*early, true);
  EXPECT_FALSE(out_.empty());
}

TEST_F(StreamTracksTest, WhereThereIsNoRoomThereIsNoBar) {
  tracks_.await(7, op(1));
  tracks_.came({7, 2000, 4000}, false);
  EXPECT_TRUE(out_.empty());
}

TEST_F(StreamTracksTest, OfWhatIsNotInTheTraceThereIsNoBar) {
  tracks_.await(7, op(1));
  tracks_.await(8, op(2));
  tracks_.forget(7);
  tracks_.came({7, 2000, 4000}, true);
  EXPECT_TRUE(out_.empty());
  tracks_.forget_awaited();
  tracks_.came({8, 2000, 4000}, true);
  EXPECT_TRUE(out_.empty());
}

}  // namespace
}  // namespace nimble::shim
