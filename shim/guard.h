// Marks a thread as inside an intercepted call, so that driver calls made by the driver itself, or by us, pass through.
// One per wrapper call, on its stack; the mark is the thread's own.
#pragma once

namespace nimble::shim {

class Guard {
 public:
  Guard() : outermost_(depth_++ == 0) {}
  ~Guard() { --depth_; }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  bool outermost() const { return outermost_; }

  // How many guards this thread has.
  static unsigned depth() { return depth_; }

 private:
  // A preloaded library is there from the start, so its thread-locals may use the fast, static model.
  static constinit thread_local unsigned depth_ __attribute__((tls_model("initial-exec")));
  bool outermost_;
};

}  // namespace nimble::shim
