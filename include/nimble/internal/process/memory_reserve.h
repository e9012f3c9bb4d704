// For code that allocates but must not throw, such as nlohmann::json's destructor: while the thread has a
// MemoryReserve, a reserve serves small requests that malloc refuses. libnimble.so has the reserve
// (shim/process/reserve.cpp); other programs may simply end when memory runs out.
//
// The reserve is small, and works like a stack: only the last piece taken can be reused when it is freed. So it is for
// memory that is held briefly. Whether it is open is thread-local; no locks.
#pragma once

namespace nimble {

class MemoryReserve {
 public:
  MemoryReserve() noexcept { ++depth_; }
  ~MemoryReserve() { --depth_; }
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  static bool is_open() noexcept { return depth_ > 0; }

 private:
  static inline constinit thread_local int depth_ __attribute__((tls_model("initial-exec"))) = 0;
};

// Destroys a JSON value's content at the end of a scope: long lists element by element, since the value itself would
// first build a list of everything in it.
template <class Json>
class JsonEnds {
 public:
  explicit JsonEnds(Json& value) noexcept : value_(value) {}
  ~JsonEnds() {
    const MemoryReserve reserve;
    if (value_.is_object()) {
      for (Json& part : value_) empty(part);
    }
    empty(value_);
    value_ = nullptr;
  }
  JsonEnds(const JsonEnds&) = delete;
  JsonEnds& operator=(const JsonEnds&) = delete;

 private:
  static void empty(Json& value) noexcept {
    if (!value.is_array()) return;
    while (!value.empty()) value.erase(value.size() - 1);
  }

  Json& value_;
};

}  // namespace nimble
