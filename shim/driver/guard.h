// Marks a thread as inside an intercepted call, so that driver calls made by the driver itself, or by us, pass through.
// One per wrapper call, on its stack; the mark is the thread's own.
#pragma once

namespace nimble::shim {

class Guard {
 public:
  Guard() : outermost_(!inside_) { inside_ = true; }
  ~Guard() {
    if (outermost_) inside_ = false;
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Marks the calling thread, one of ours, for its whole life. Nothing is registered for its end, which would allocate,
  // and glibc ends the process where it cannot.
  static void stay_inside() { inside_ = true; }

  bool outermost() const { return outermost_; }
  // Whether this thread is inside one.
  static bool inside() { return inside_; }

 private:
  // A preloaded library is there from the start, so its thread-locals may use the fast, static model.
  static constinit thread_local bool inside_ __attribute__((tls_model("initial-exec")));
  bool outermost_;
};

}  // namespace nimble::shim
