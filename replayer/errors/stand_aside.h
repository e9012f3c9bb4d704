// Whether replay goes on: the reason why it stands aside, for good, and messages for the log.
//
// Code that finds a reason reports it here and goes on (for what the program does: replayer/step/step_player.cpp);
// StepPlayer releases the streams when the current call is done. Allocates only if there is something to log. Not
// synchronised: the replayer's lock guards it.
#pragma once

#include <cuda.h>

#include <string>
#include <utility>

#include "replayer/driver/result_name.h"

namespace nimble {

class StandAside {
 public:
  // Replay ends with the current call. The first reason stays.
  void stand_aside(std::string why) {
    if (why_.empty()) why_ = std::move(why);
  }
  // Ordering streams may have failed, and then was done by waiting. Replay should not go on like that.
  void keep_order(CUresult result) {
    if (result != CUDA_SUCCESS) [[unlikely]]
      stand_aside("the driver refused a call that keeps streams in order (" + result_name(result) + ")");
  }
  // A context that replay uses has ended.
  void end() {
    ended_ = why_.empty();
    stand_aside("a context ended");
  }

  bool aside() const { return !why_.empty(); }
  // Non-empty once replay must not go on.
  const std::string& why() const { return why_; }
  // Whether that is normal at the end of a program, and no cause for concern.
  bool ended() const { return ended_; }

  // A new message for the log.
  void tell(std::string news) { news_ = std::move(news); }
  bool has_news() const { return !news_.empty(); }
  std::string take_news() { return std::exchange(news_, {}); }

 private:
  std::string why_, news_;
  bool ended_ = false;
};

}  // namespace nimble
