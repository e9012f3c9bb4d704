// What a call has told Onlookers before it goes to the driver, needed again when it comes back; and where that is kept
// meanwhile, with the thread that makes the call. Calls of one thread do not nest.
//
// Any thread; no lock. No thread-local variable: those are on the stacks of the program's threads, which may be small.
#pragma once

#include "replayer/onlookers/stream_clocks.h"

namespace nimble {

struct Passage {
  StreamClocks::Op op;
  StreamClocks::Token token = 0;
  bool forgets = false;   // it may have recorded any event
  bool captured = false;  // its stream captures
};

// What the call that this thread is making has said, and to whom; null for no one.
struct PassageOfThread {
  const void* to = nullptr;
  Passage passage;

  // Of this thread, until it ends. Null where memory is short.
  static PassageOfThread* mine();
};

}  // namespace nimble
