#include "replayer/tune/step_clock.h"

namespace nimble {

void StepClock::begin(Way way, CUstream stream) {
  begun_ = nullptr;
  if (full()) return;
  Pair& pair = pairs_[newest_ % kMost];
  for (CUevent* event : {&pair.begin, &pair.end})
    if (!*event && driver_.cuEventCreate_(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
      *event = nullptr;
      return;
    }
  pair.way = way;
  if (driver_.cuEventRecord_(pair.begin, stream) == CUDA_SUCCESS) begun_ = &pair;
}

void StepClock::end(CUstream stream) {
  if (begun_ && driver_.cuEventRecord_(begun_->end, stream) == CUDA_SUCCESS) ++newest_;
  begun_ = nullptr;
}

void StepClock::abandon() {
  pairs_ = {};
  oldest_ = newest_ = 0;
  begun_ = nullptr;
}

void StepClock::close() {
  for (const Pair& pair : pairs_)
    for (const CUevent event : {pair.begin, pair.end})
      if (event) driver_.cuEventDestroy_(event);
  abandon();
}

}  // namespace nimble
