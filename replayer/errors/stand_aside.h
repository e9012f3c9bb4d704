// Whether replay goes on: the reason for which it stands aside, for good, and what there is to say to people.
//
// Whoever finds a reason says so here and goes on with what it does; StepPlayer lets go of the streams when the call at
// hand is done. Allocates where there is something to say, nowhere else. Not synchronised: the replayer's lock guards
// it.
#pragma once

#include <cuda.h>

#include <string>
#include <utility>

namespace nimble {

class StandAside {
 public:
  // Replay ends with the call at hand. The first reason stays.
  void stand_aside(std::string why) {
    if (why_.empty()) why_ = std::move(why);
  }
  // Something of the order of streams may have failed, and then was made by waiting. That is no way to go on.
  void keep_order(CUresult result) {
    if (result != CUDA_SUCCESS) [[unlikely]]
      stand_aside("the driver refused to keep streams in order (error " + std::to_string(result) + ")");
  }
  // A context of ours ended.
  void end() {
    ended_ = why_.empty();
    stand_aside("a context ended");
  }

  bool aside() const { return !why_.empty(); }
  // Non-empty once replay must not go on.
  const std::string& why() const { return why_; }
  // Whether that is how programs end, and no cause for concern.
  bool ended() const { return ended_; }

  // What there is to say since the last time.
  void tell(std::string news) { news_ = std::move(news); }
  bool has_news() const { return !news_.empty(); }
  std::string take_news() { return std::exchange(news_, {}); }

 private:
  std::string why_, news_;
  bool ended_ = false;
};

}  // namespace nimble
