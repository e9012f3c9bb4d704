// For code that may not throw though it allocates, such as a destructor of nlohmann::json: small requests that malloc
// refuses are met by a reserve while there is a MemoryReserve on the thread. libnimble.so has the reserve
// (shim/process/reserve.cpp); other programs end where there is no memory, as they may.
//
// The reserve is small, and works like a stack: only the piece that was taken last can be used again when it is given
// back. So it is for memory that is held for a moment. Whether it is open is each thread's own; no locks.
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

// Destroys what a JSON value holds at the end of a scope: long lists element by element, since the value itself would
// first make a list of all that it holds.
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
